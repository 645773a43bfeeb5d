# SPDX-License-Identifier: Apache-2.0
"""The kubelet's protocol: sockets, registration, lists, calls."""
