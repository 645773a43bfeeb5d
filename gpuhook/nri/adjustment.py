# SPDX-License-Identifier: Apache-2.0
"""The changes of a config.json as NRI's ContainerAdjustment.

The runtime applies variables, hooks, CDI devices, devices and mounts in this order; a variable, a
device or a mount replaces the one of the same name or path. It gives each device a cgroup rule.
NRI cannot remove what the config.json has, nor set the groups of the process.
"""

from __future__ import annotations

from gpuhook.apply.rootfs import hook_args
from gpuhook.host.hot import fastjson
from gpuhook.nri.wire import protobuf_wire as wire
from gpuhook.nri.wire.nri_messages import HOOK_STAGES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from gpuhook.cdi.hot.container_edits import ContainerEdits


_NOT_IN_NRI = (
    ("process", "user", "additionalGids"),
    ("linux", "intelRdt"),
    ("linux", "netDevices"),
)


class Adjustment:
    """What is added to a config.json, or replaces a part of it.

    `left_out` are the keys of changes that NRI cannot express.
    """

    __slots__ = ("_had", "cdi_devices", "devices", "env", "hooks", "left_out", "mounts")

    def __init__(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        """Compare the config.json before and after its edits."""
        self._had = _entries(fastjson.strings(before, "process", "env"))
        self.env = _changed_variables(before, after)
        self.mounts: list[dict[str, Any]] = _added(before, after, "mounts")
        self.devices: list[dict[str, Any]] = _added(before, after, "linux", "devices")
        self.hooks: dict[str, list[dict[str, Any]]] = {
            stage: found
            for stage in HOOK_STAGES
            if (found := _added(before, after, "hooks", stage))
        }
        self.cdi_devices: list[str] = []
        self.left_out = [
            place[-1] for place in _NOT_IN_NRI if _at(after, place) != _at(before, place)
        ]
        rules = _added(before, after, "linux", "resources", "devices")
        if not _numbers(rules) <= _numbers(fastjson.array(after, "linux", "devices")):
            self.left_out.append("resources.devices")  # of a node that is bound

    def by_cdi(self, devices: Sequence[str], edits: ContainerEdits) -> None:
        """Leave `edits` to the runtime, which applies the specs of `devices`.

        If the container has all of it already, by the kubelet's CDI names, no device is named a
        second time. A variable that the container had is set here, too. No spec has the hook of
        limits.
        """
        if self.devices or self.mounts:
            self.cdi_devices = list(devices)
        self.devices, self.mounts, self.left_out = [], [], []
        brought = edits.get("env") or ()
        self.env = [
            entry
            for entry in self.env
            if entry not in brought or entry.partition("=")[0] in self._had
        ]
        stages = {
            stage: [hook for hook in found if hook_args.is_ours(hook, hook_args.LIMIT)]
            for stage, found in self.hooks.items()
        }
        self.hooks = {stage: found for stage, found in stages.items() if found}

    def is_empty(self) -> bool:
        return not (self.env or self.mounts or self.devices or self.hooks or self.cdi_devices)

    def response(self) -> bytes:
        """Return a CreateContainerResponse; b"" without changes.

        Raises UnicodeEncodeError for text that is not Unicode, which no runtime accepts.
        """
        if self.is_empty():
            return b""
        pairs = [entry.partition("=")[::2] for entry in self.env]
        parts = [
            *(wire.encode_bytes(3, _mount(mount)) for mount in self.mounts),
            *(wire.encode_bytes(4, _text_pair(*pair)) for pair in pairs),
            wire.encode_bytes(5, _hooks(self.hooks)) if self.hooks else b"",
            wire.encode_bytes(6, b"".join(_device(one) for one in self.devices))
            if self.devices
            else b"",
            *(wire.encode_bytes(8, wire.encode_text(1, name)) for name in self.cdi_devices),
        ]
        return wire.encode_bytes(1, b"".join(parts))


def _at(spec: dict[str, Any], place: Sequence[str]) -> Any:
    found: Any = spec
    for key in place:
        found = found.get(key) if isinstance(found, dict) else None
    return found or None


def _added(before: dict[str, Any], after: dict[str, Any], *place: str) -> list[Any]:
    held = fastjson.array(before, *place)
    return [one for one in fastjson.array(after, *place) if one not in held]


def _numbers(devices: Iterable[dict[str, Any]]) -> set[tuple[Any, Any]]:
    return {(one.get("major"), one.get("minor")) for one in devices}


def _changed_variables(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the entries of the variables that differ; a config.json may have one twice."""
    was, now = (_entries(fastjson.strings(spec, "process", "env")) for spec in (before, after))
    return [found[-1] for name, found in now.items() if was.get(name) != found]


def _entries(env: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in env:
        found.setdefault(entry.partition("=")[0], []).append(entry)
    return found


def _text_pair(key: str, value: str) -> bytes:
    return wire.encode_text(1, key) + wire.encode_text(2, value)


def _mount(mount: dict[str, Any]) -> bytes:
    texts = ((1, "destination"), (2, "type"), (3, "source"))
    head = b"".join(wire.encode_text(number, mount.get(key) or "") for number, key in texts)
    return head + wire.encode_texts(4, mount.get("options") or ())


def _hooks(stages: dict[str, list[dict[str, Any]]]) -> bytes:
    return b"".join(
        wire.encode_bytes(HOOK_STAGES[stage], _hook(hook))
        for stage, found in stages.items()
        for hook in found
    )


def _hook(hook: dict[str, Any]) -> bytes:
    return (
        wire.encode_text(1, hook["path"])
        + wire.encode_texts(2, hook.get("args") or ())
        + wire.encode_texts(3, hook.get("env") or ())
        + wire.encode_wrapped(4, hook.get("timeout"))
    )


def _device(device: dict[str, Any]) -> bytes:
    numbers = wire.encode_integer(3, device.get("major", 0))
    numbers += wire.encode_integer(4, device.get("minor", 0))
    wrapped = ((5, "fileMode"), (6, "uid"), (7, "gid"))
    body = (
        wire.encode_text(1, device["path"])
        + wire.encode_text(2, device["type"])
        + numbers
        + b"".join(wire.encode_wrapped(number, device.get(key)) for number, key in wrapped)
    )
    return wire.encode_bytes(1, body)
