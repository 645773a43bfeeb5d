# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's answers to the questions of commands and services (Vendor in vendors/interface.py)."""

from __future__ import annotations


class NvidiaVendor:
    """NVIDIA."""

    name = "nvidia"
    title = "NVIDIA"
    domain = "nvidia.com"

    def absence(self, host_root: str, inventory: str | None = None) -> str:
        """Return why a node has no NVIDIA GPUs, "" if it may have some."""
        from gpuhook.vendors.nvidia.hot import host_fingerprint

        if inventory is None:
            return host_fingerprint.absence(host_root)
        from gpuhook.vendors.nvidia.inventory import dump_file

        return "" if dump_file.load(inventory).gpus else host_fingerprint.NO_GPU

    def spec_maker(self) -> None:
        """Return None: a spec has the driver's files, too."""
