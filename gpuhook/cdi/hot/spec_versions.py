# SPDX-License-Identifier: Apache-2.0
"""The versions of CDI, and the lowest one that supports a spec's content.

Source: CDI SPEC.md, "Released versions"; minimum versions as its reference library computes them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSIONS = (
    "0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0",
)  # fmt: skip
NEWEST = VERSIONS[-1]
_FLOOR = "0.3.0"


def lowest(spec: dict[str, Any]) -> str:
    """Return the lowest cdiVersion that can express the content of `spec`."""
    return needed(spec)[0]


def is_newer(version: str) -> bool:
    """Return whether `version` is a version number above NEWEST."""
    numbers = version.split(".")
    if len(numbers) != 3 or not all(part.isdecimal() and len(part) < 6 for part in numbers):
        return False
    return [int(part) for part in numbers] > [int(part) for part in NEWEST.split(".")]


def needed(spec: dict[str, Any]) -> tuple[str, str]:
    """Return the lowest sufficient version, and the part of the content that needs it."""
    devices = spec.get("devices") or ()
    all_edits = [part.get("containerEdits") or {} for part in (spec, *devices)]
    found = [_edits_need(edits) for edits in all_edits if edits]
    if any(part.get("annotations") for part in (spec, *devices)):
        found.append(("0.6.0", "an annotation"))
    if "." in str(spec.get("kind", "")).partition("/")[2]:
        found.append(("0.6.0", "a class with a dot"))
    digits = [
        str(device.get("name")) for device in devices if str(device.get("name"))[:1].isdigit()
    ]
    if digits:
        found.append(("0.5.0", f"the device name {digits[0]!r}"))
    return max([*found, (_FLOOR, "")], key=lambda need: VERSIONS.index(need[0]))


def _edits_need(edits: dict[str, Any]) -> tuple[str, str]:
    rdt = edits.get("intelRdt")
    if edits.get("netDevices"):
        return "1.1.0", "netDevices"
    if rdt and (rdt.get("schemata") or rdt.get("enableMonitoring")):
        return "1.1.0", "intelRdt's schemata or enableMonitoring"
    if rdt or edits.get("additionalGids"):
        return "0.7.0", "intelRdt" if rdt else "additionalGids"
    if any(node.get("hostPath") for node in edits.get("deviceNodes") or ()):
        return "0.5.0", "the hostPath of a device node"
    if any(mount.get("type") for mount in edits.get("mounts") or ()):
        return "0.4.0", "the type of a mount"
    return _FLOOR, ""
