# SPDX-License-Identifier: Apache-2.0
"""The kubelet's device plugin protocol: sockets, registration, one server per resource."""
