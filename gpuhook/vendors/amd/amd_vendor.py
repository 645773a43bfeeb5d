# SPDX-License-Identifier: Apache-2.0
"""AMD's answers to the questions of commands and services (Vendor in vendors/interface.py)."""

from __future__ import annotations


class AmdVendor:
    """AMD."""

    name = "amd"
    title = "AMD"
    domain = "amd.com"
