# SPDX-License-Identifier: Apache-2.0
"""What a device of a spec has in common with all of its devices, and so need not say itself."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.cdi.hot.container_edits import ContainerEdits, Device

_PARTS = ("env", "deviceNodes", "mounts", "hooks")


def without(device: Device, common: ContainerEdits) -> Device:
    """Return `device` without what `common` says too; as it is if nothing would be left of it.

    A spec's own edits are applied before its devices', so nothing changes for a container.
    """
    left: dict[str, Any] = {}
    for key, items in device["containerEdits"].items():
        known = common.get(key)
        if key in _PARTS and isinstance(items, list) and isinstance(known, list):
            items = [item for item in items if item not in known]
            if not items:
                continue
        left[key] = items
    if not left or left == device["containerEdits"]:
        return device
    return {**device, "containerEdits": left}  # type: ignore[typeddict-item] # the keys are its own
