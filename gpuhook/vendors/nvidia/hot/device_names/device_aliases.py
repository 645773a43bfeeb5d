# SPDX-License-Identifier: Apache-2.0
"""Other names of GPUs and MIG instances, derived from CDI specs and the kernel's files.

Needed only without node.json, for example for a spec in /etc/cdi after a reboot. A name that is
another spelling of one in the spec means that one; any other name leads to a device node
(/proc/driver/nvidia), and means the device with this node. The index and the UUID of a MIG instance
are NVML's alone: they are known only if the spec has them.
"""

from __future__ import annotations

import os

from gpuhook.vendors.nvidia.hot import mig_capabilities, vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_GPUS = "/proc/driver/nvidia/gpus"
_OLD_MIG = vocabulary.OLD_MIG.lower()
_TYPES = ("gpu", "mig")  # of the names gpu0 and mig0:1


class _Gpu:
    """A GPU as the kernel module describes it, in lower case."""

    __slots__ = ("bus_id", "minor", "uuid")

    def __init__(self, bus_id: str, facts: dict[str, str]) -> None:
        self.bus_id = bus_id.lower()
        self.uuid = facts.get("gpu uuid", "").lower()
        self.minor = facts.get("device minor", "")


def alias(
    name: str, host_root: str, devices: list[str], nodes_of: Callable[[str], list[str]]
) -> str | None:
    """Return which of `devices`, the names in the spec, another name means; None for none.

    `nodes_of` returns the paths of a device's own nodes. The spec's `all` is not a device.
    """
    lower = name.lower()
    named = {device.lower(): device for device in devices}
    for spelling in _spellings(lower):
        if spelling in named:
            return named[spelling]
    path = _node(lower, host_root)
    if not path:
        return None
    own = (device for device in devices if device != "all")
    return next((device for device in own if _is_of(path, nodes_of(device))), None)


def uuids(host_root: str) -> list[str]:
    """Return the UUIDs of the GPUs that the kernel module reports, in lower case."""
    return [gpu.uuid for gpu in _gpus(host_root) if gpu.uuid]


def _spellings(lower: str) -> list[str]:
    """Return a name, and its forms with and without the prefix of the type-index strategy."""
    plain = lower[3:] if lower.startswith(_TYPES) else lower
    typed = ("mig" if ":" in plain else "gpu") + plain
    is_index = plain.replace(":", "", 1).isdigit() and lower in (plain, typed)
    return [lower, plain, typed] if is_index else [lower]


def _is_of(path: str, nodes: list[str]) -> bool:
    """Return whether a device with these nodes is the GPU, or the instance, that `path` opens."""
    whole = [node for node in nodes if vocabulary.is_whole_gpu(node)]
    parts = [node for node in nodes if vocabulary.is_gpu_node(node) and node not in whole]
    if vocabulary.is_whole_gpu(path):
        return whole == [path] and not parts
    return path in parts and len(whole) == 1 and len(parts) == 2


def _node(lower: str, host_root: str) -> str:
    """Return the path of the node that opens exactly the device `lower`, "" for none."""
    gpus = _gpus(host_root)
    if lower.startswith(_OLD_MIG):
        return _instance_node(lower[len("mig-") :], host_root, gpus)
    for index, gpu in enumerate(gpus):
        if lower in (gpu.uuid, str(index), gpu.bus_id) or _is_long(lower, gpu.bus_id):
            return f"/dev/nvidia{gpu.minor}" if gpu.minor.isdigit() else ""
    return ""


def _is_long(lower: str, bus_id: str) -> bool:
    return lower == "0000" + bus_id


def _instance_node(old: str, host_root: str, gpus: list[_Gpu]) -> str:
    """Return the node of the compute instance `gpu-<uuid>/<gi>/<ci>`, "" if there is none."""
    uuid, _, instance = old.partition("/")
    first, _, second = instance.partition("/")
    gpu = next((one for one in gpus if one.uuid == uuid), None)
    if gpu is None or not (first.isdigit() and second.isdigit()):
        return ""
    name = f"gpu{gpu.minor}/gi{first}/ci{second}/access"
    minor = mig_capabilities.minors(host_root).get(name)
    capability = mig_capabilities.capability(host_root, mig_capabilities.file(name), minor)
    return "" if capability is None else vocabulary.capability_node(capability.minor)


def _gpus(host_root: str) -> list[_Gpu]:
    """Return the GPUs in the order of their bus ids, which is NVML's; without excluded ones."""
    try:
        bus_ids = sorted(os.listdir(host_root.rstrip("/") + _GPUS))
    except OSError:
        return []
    found = []
    for bus_id in bus_ids:
        facts = _facts(mig_capabilities.proc_text(host_root, f"{_GPUS}/{bus_id}/information"))
        if facts.get("gpu excluded", "").lower() != "yes":
            found.append(_Gpu(bus_id, facts))
    return found


def _facts(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip().lower(): value.strip() for key, _, value in pairs}
