# SPDX-License-Identifier: Apache-2.0
"""The node that a CDI spec describes: this machine, another root, or a dump."""

from __future__ import annotations

from gpuhook.vendors.amd.hot import amd_sysfs
from gpuhook.vendors.amd.inventory import amd_dump, sysfs_inventory
from gpuhook.vendors.amd.spec import amd_selection, amd_spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.spec_choices import DescribedDevices, SpecChoices


def absence(host_root: str, inventory: str | None = None) -> str:
    """Return why a node has no AMD GPU, "" if it may have one."""
    if inventory is not None:
        node = amd_dump.load(inventory)
        return "" if node.gpus else amd_selection.NO_GPU
    root = host_root.rstrip("/")
    if amd_sysfs.gpu_addresses(root):
        return ""
    has_driver = amd_sysfs.names(root + amd_sysfs.MODULE)
    return amd_selection.NO_GPU if has_driver else amd_selection.NO_DRIVER


def describe(choices: SpecChoices) -> DescribedDevices:
    """Return the CDI spec of a node; raises what amd_spec.describe() raises."""
    if choices.inventory is not None:
        node = amd_dump.load(choices.inventory)
    else:
        node = sysfs_inventory.read(choices.host_root, choices.dev_root)
    return amd_spec.describe(node, choices)
