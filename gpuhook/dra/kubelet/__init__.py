# SPDX-License-Identifier: Apache-2.0
"""The driver's sockets, and the services that the kubelet calls on them."""
