# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's answers to the questions of commands and services (Vendor in vendors/interface.py)."""

from __future__ import annotations


class NvidiaVendor:
    """NVIDIA."""

    name = "nvidia"
    title = "NVIDIA"
    domain = "nvidia.com"
