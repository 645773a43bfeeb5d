# SPDX-License-Identifier: Apache-2.0
"""ContainerEdits: everything that a container gets, as the CDI JSON object of that name.

The objects are plain dicts with CDI's own keys; the TypedDicts below are for the type checker only.
Source: CDI SPEC.md, section "CDI JSON Specification".
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypedDict

    class DeviceNode(TypedDict, total=False):
        """A device node: `path` in the container, `hostPath` on the host when it differs."""

        path: str
        hostPath: str
        type: str
        major: int
        minor: int
        fileMode: int
        permissions: str
        uid: int
        gid: int

    class Mount(TypedDict, total=False):
        """A mount of `hostPath` at `containerPath`."""

        hostPath: str
        containerPath: str
        type: str
        options: list[str]

    class Hook(TypedDict, total=False):
        """An OCI hook of the stage `hookName`; `timeout` is in seconds."""

        hookName: str
        path: str
        args: list[str]
        env: list[str]
        timeout: int

    class ContainerEdits(TypedDict, total=False):
        """The edits of one device, of one spec, or of one container."""

        env: list[str]
        deviceNodes: list[DeviceNode]
        mounts: list[Mount]
        hooks: list[Hook]
        additionalGids: list[int]
        intelRdt: dict[str, object]
        netDevices: list[dict[str, object]]

    class Device(TypedDict, total=False):
        """A named device of a spec."""

        name: str
        annotations: dict[str, str]
        containerEdits: ContainerEdits

    class Spec(TypedDict, total=False):
        """A CDI specification file."""

        cdiVersion: str
        kind: str
        annotations: dict[str, str]
        containerEdits: ContainerEdits
        devices: list[Device]


# The field by which a later item replaces an earlier one; variables have none.
_IDENTITY = {
    "env": "", "deviceNodes": "path", "mounts": "containerPath", "netDevices": "hostInterfaceName",
}  # fmt: skip


def merged(parts: list[ContainerEdits]) -> ContainerEdits:
    """Return one ContainerEdits with all of `parts`, in order, identical items once.

    The result equals applying the parts one after another (CDI: spec-level edits first, then each
    device's).
    """
    whole: dict[str, list[object]] = {}
    for part in parts:
        for key, items in part.items():
            items_before = whole.setdefault(key, [])
            if isinstance(items, list):
                # Duplicates within one part remain; the first part is used as it is.
                new = (
                    [item for item in items if item not in items_before] if items_before else items
                )
                if len(new) < len(items):
                    new = _without_repeated(key, items, items_before)
                items_before.extend(new)
            elif items not in items_before:
                items_before.append(items)
    result: dict[str, object] = {k: v for k, v in whole.items() if v and k != "intelRdt"}
    if whole.get("intelRdt"):
        result["intelRdt"] = whole["intelRdt"][-1]
    return result  # type: ignore[return-value]


def _without_repeated(key: str, items: list[Any], before: list[Any]) -> list[Any]:
    """Return `items` without those of `before`, unless another item has replaced one of these."""
    if key not in _IDENTITY:
        return [item for item in items if item not in before]

    def name(item: Any) -> Any:
        return item.partition("=")[0] if key == "env" else item[_IDENTITY[key]]

    current = {name(item): item for item in before}
    new = []
    for item in items:
        if item not in before or current[name(item)] != item:
            new.append(item)
        current[name(item)] = item
    return new
