# SPDX-License-Identifier: Apache-2.0
"""Which GPUs of a node a CDI spec describes, and under which names."""

from __future__ import annotations

from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory import Gpu, Node

STRATEGIES = ("index", "uuid", "type-index")
EVERY = "all"


def chosen(node: Node, ids: tuple[str, ...]) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """Return (the GPUs that `ids` name, why others were left out); no ids, or `all`, means all.

    An id is an index, a UUID or a PCI bus id. Raises GH1511 for an id nobody has, GH1512 for a
    GPU that is lost or lacks its device node, GH1513 if no GPU is left.
    """
    troubles = {gpu.index: trouble(node, gpu) for gpu in node.gpus}
    if ids and EVERY not in ids:
        named = [_named(node, identifier) for identifier in ids]
        for gpu, identifier in zip(named, ids, strict=True):
            if troubles[gpu.index]:
                raise fault("GH1512", value=identifier, reason=troubles[gpu.index])
        return tuple(gpu for gpu in node.gpus if gpu in named), ()
    left_out = tuple(
        f"GPU {index} is left out of the spec: {reason}"
        for index, reason in troubles.items()
        if reason
    )
    gpus = tuple(gpu for gpu in node.gpus if not troubles[gpu.index])
    if not gpus:
        raise fault("GH1513", reasons="".join("; " + line for line in left_out))
    return gpus, left_out


def trouble(node: Node, gpu: Gpu) -> str:
    """Return why `gpu` cannot be given to a container, "" if it can."""
    if gpu.lost is not None:
        return f"it is lost ({gpu.lost})"
    if gpu.minor is None:
        return "its minor number is unknown"
    if node_path(gpu) not in {device.path for device in node.device_nodes}:
        return f"{node_path(gpu)} is missing"
    return ""


def node_path(gpu: Gpu) -> str:
    """Return the path of the device node of `gpu`, as containers see it."""
    return f"/dev/nvidia{gpu.minor}"


def names(gpu: Gpu, strategies: tuple[str, ...]) -> list[str]:
    """Return the device names of `gpu`, one for each strategy (a GPU may have no UUID)."""
    known = {"index": str(gpu.index), "uuid": gpu.uuid, "type-index": f"gpu{gpu.index}"}
    found = (known[strategy] for strategy in strategies)
    return [name for name in found if name]


def aliases(gpus: tuple[Gpu, ...], strategies: tuple[str, ...]) -> dict[str, str]:
    """Return the other names of each GPU, in lower case, to the name its spec has for it.

    That is its UUID where the spec has UUIDs. Other names are the PCI bus id in its long and its
    short form, and every name that the strategies have not given.
    """
    found: dict[str, str] = {}
    for gpu in gpus:
        given = names(gpu, strategies)
        if not given:
            continue
        known = gpu.uuid if gpu.uuid in given else given[0]
        others = [*names(gpu, STRATEGIES), gpu.pci_bus_id or "", bus_id(gpu.pci_bus_id or "")]
        lower = {other.lower() for other in others if other}
        found |= dict.fromkeys(sorted(lower - {known}), known)
    return found


def bus_id(text: str) -> str:
    """Return a PCI bus id as the kernel writes it, 0000:00:1e.0; "" if `text` is not one.

    NVML writes eight digits of domain in upper case; a domain may be left out.
    """
    parts = text.lower().replace(".", ":").split(":")
    if len(parts) == 3:
        parts = ["0", *parts]
    try:
        domain, bus, device, function = (int(part, 16) for part in parts)
    except ValueError:
        return ""
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"


def _named(node: Node, identifier: str) -> Gpu:
    for gpu in node.gpus:
        same_bus = bus_id(identifier) and bus_id(identifier) == bus_id(gpu.pci_bus_id or "")
        uuid = (gpu.uuid or "").lower()
        if identifier == str(gpu.index) or identifier.lower() == uuid or same_bus:
            return gpu
    have = ", ".join(f"{gpu.index} ({gpu.uuid or 'no UUID'})" for gpu in node.gpus)
    raise fault("GH1511", value=identifier, have=have or "none")
