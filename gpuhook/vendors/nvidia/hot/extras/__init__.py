# SPDX-License-Identifier: Apache-2.0
"""Devices that a container gets in addition to its GPUs, looked up on the node itself."""
