# SPDX-License-Identifier: Apache-2.0
"""The GPUs and MIG instances of a node that a CDI spec describes, and their names.

A GPU in MIG mode is never given as a whole, only its instances are.
"""

from __future__ import annotations

from dataclasses import replace

from gpuhook.cdi.hot.names import is_device
from gpuhook.errors import fault
from gpuhook.vendors.nvidia.devices import drm
from gpuhook.vendors.nvidia.hot import mig_capabilities, vocabulary
from gpuhook.vendors.plugin.vendor_device import bus_id as bus_id  # noqa: PLC0414

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.vendors.nvidia.inventory.inventory import Gpu, MigInstance, Node

STRATEGIES = ("index", "uuid", "type-index")
EVERY = "all"
_MIG_MODE = "it is in MIG mode"


def chosen(node: Node, ids: tuple[str, ...]) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """Return (the GPUs that `ids` name, why others were left out); no ids, or `all`, means all.

    A GPU in MIG mode has only the selected instances, at least one. An id is any name of a GPU or
    an instance. Raises GH1511 for an unknown id, GH1512 for a GPU or instance that cannot be used,
    and for a GPU in MIG mode, GH1513 if nothing is left.
    """
    if ids and EVERY not in ids:
        return _named(node, ids), ()
    gpus, left_out = [], []
    for gpu in node.gpus:
        usable, reasons = _usable(node, gpu)
        left_out += reasons
        gpus += [] if usable is None else [usable]
    if not gpus:
        raise fault("GH1513", reasons="".join("; " + line for line in left_out))
    return tuple(gpus), tuple(left_out)


def _usable(node: Node, gpu: Gpu) -> tuple[Gpu | None, list[str]]:
    """Return (`gpu` with its usable instances or None, why the rest is skipped)."""
    reason = trouble(node, gpu)
    if not reason and is_divided(gpu) and not gpu.instances:
        reason = f"{_MIG_MODE} and has no MIG instance"
    if reason:
        return None, [f"{_label(gpu, None)} is omitted from the spec: {reason}"]
    if not is_divided(gpu):
        return gpu, []
    troubles = {one.index: instance_trouble(node, gpu, one) for one in gpu.instances}
    usable = tuple(one for one in gpu.instances if not troubles[one.index])
    left_out = [
        f"{_label(gpu, one)} is omitted from the spec: {troubles[one.index]}"
        for one in gpu.instances
        if troubles[one.index]
    ]
    return (replace(gpu, instances=usable) if usable else None), left_out


def is_divided(gpu: Gpu) -> bool:
    """Return whether `gpu` is in MIG mode, so that it is not given as a whole."""
    return gpu.mig_mode == "enabled"


def trouble(node: Node, gpu: Gpu) -> str:
    """Return why no container can get `gpu`, or any part of it, "" if one can."""
    return gpu_trouble(gpu) or _missing(node, [node_path(gpu)])


def gpu_trouble(gpu: Gpu) -> str:
    """Return why `gpu` has no device node, "" if it may have one."""
    if gpu.lost is not None:
        return f"it is lost ({gpu.lost})"
    return "its minor number is unknown" if gpu.minor is None else ""


def instance_trouble(node: Node, gpu: Gpu, instance: MigInstance) -> str:
    """Return why no container can get a MIG instance of `gpu`, "" if one can."""
    reason = trouble(node, gpu) or instance.trouble
    if reason:
        return reason
    if None in (instance.gpu_instance_minor, instance.compute_instance_minor):
        return "the minor numbers of its capabilities are unknown"
    return _missing(node, node_paths(gpu, instance))


def _missing(node: Node, paths: list[str]) -> str:
    present = {device.path for device in node.device_nodes}
    absent = [path for path in paths if path not in present]
    return f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} missing" if absent else ""


def node_path(gpu: Gpu) -> str:
    """Return the path of the device node of `gpu`, as containers see it."""
    return f"/dev/nvidia{gpu.minor}"


def node_paths(gpu: Gpu, instance: MigInstance | None = None) -> list[str]:
    """Return the paths of the nodes that a container needs for `gpu`, or for an instance of it."""
    if instance is None:
        return [node_path(gpu)]
    minors = (instance.gpu_instance_minor, instance.compute_instance_minor)
    return [
        node_path(gpu),
        *(vocabulary.capability_node(minor) for minor in minors if minor is not None),
    ]


def drm_paths(gpu: Gpu, instance: MigInstance | None = None) -> list[str]:
    """Return the paths of the graphics nodes of a GPU; the host may lack some.

    A MIG instance has them only if its profile has graphics (1g.12gb+gfx).
    """
    return list(drm.paths(gpu)) if instance is None or instance.has_graphics else []


def offered(gpu: Gpu) -> Iterator[MigInstance | None]:
    """Yield the devices of a GPU: None for the GPU itself, or each instance of one in MIG mode."""
    if is_divided(gpu):
        yield from gpu.instances
    else:
        yield None


def names(gpu: Gpu, strategies: tuple[str, ...], instance: MigInstance | None = None) -> list[str]:
    """Return the device names of `gpu`, or of its `instance`, one for each strategy.

    The UUID may be unknown, and that of an old driver's MIG device is not a valid CDI name.
    """
    known = _known(gpu, instance)
    found = (known[strategy] for strategy in strategies)
    return [name for name in found if name and is_device(name)]


def strategy(name: str) -> str:
    """Return the strategy that made the name of a device of generate-cdi."""
    if name.startswith(("GPU-", "MIG-")):
        return "uuid"
    return "index" if name[:1].isdigit() else "type-index"


def nameless(gpus: tuple[Gpu, ...], strategies: tuple[str, ...]) -> list[str]:
    """Return a sentence about each GPU or instance for which no strategy has a name."""
    return [
        f"{_label(gpu, instance)} has no device in the spec: {_unfit(gpu, instance)}"
        for gpu in gpus
        for instance in offered(gpu)
        if not names(gpu, strategies, instance)
    ]


def _label(gpu: Gpu, instance: MigInstance | None) -> str:
    if instance is None:
        return f"GPU {gpu.index}"
    return f"MIG instance {gpu.index}:{instance.index}"


def _unfit(gpu: Gpu, instance: MigInstance | None) -> str:
    uuid = gpu.uuid if instance is None else instance.uuid
    return "its UUID is unknown" if uuid is None else f"CDI takes no name like {uuid}"


def _known(gpu: Gpu, instance: MigInstance | None) -> dict[str, str | None]:
    if instance is None:
        return {"index": str(gpu.index), "uuid": gpu.uuid, "type-index": f"gpu{gpu.index}"}
    index = f"{gpu.index}:{instance.index}"
    return {"index": index, "uuid": instance.uuid, "type-index": f"mig{index}"}


def every_name(gpu: Gpu, instance: MigInstance | None = None) -> list[str]:
    """Return all names of `gpu`, or of its `instance`, in lower case, including invalid CDI names.

    They include the PCI bus id of a GPU in its long and its short form, and the form
    MIG-GPU-<uuid>/<gi>/<ci> of old drivers for an instance.
    """
    found = list(_known(gpu, instance).values())
    if instance is None:
        found += [gpu.pci_bus_id, bus_id(gpu.pci_bus_id or "")]
    elif gpu.uuid:
        found.append(
            mig_capabilities.old_uuid(gpu.uuid, instance.gpu_instance, instance.compute_instance)
        )
    return [name.lower() for name in found if name]


def aliases(gpus: tuple[Gpu, ...], strategies: tuple[str, ...]) -> dict[str, str]:
    """Return the other names of each GPU or instance, in lower case, to the name in its spec.

    The spec's name is the UUID if the spec has UUIDs.
    """
    found: dict[str, str] = {}
    for gpu in gpus:
        for instance in offered(gpu):
            in_spec = names(gpu, strategies, instance)
            if not in_spec:
                continue
            uuid = gpu.uuid if instance is None else instance.uuid
            name = uuid if uuid in in_spec else in_spec[0]
            lower = set(every_name(gpu, instance))
            found |= dict.fromkeys(sorted(lower - {name}), name)
    return found


def _named(node: Node, ids: tuple[str, ...]) -> tuple[Gpu, ...]:
    whole: set[int] = set()
    parts: dict[int, set[int]] = {}
    for identifier in ids:
        gpu, instance = device(node.gpus, identifier)
        reason = _refusal(node, gpu, instance)
        if reason:
            raise fault("GH1512", value=identifier, reason=reason)
        if instance is None:
            whole.add(gpu.index)
        else:
            parts.setdefault(gpu.index, set()).add(instance.index)
    gpus = []
    for gpu in node.gpus:
        mine = tuple(one for one in gpu.instances if one.index in parts.get(gpu.index, ()))
        if gpu.index in whole or mine:
            gpus.append(replace(gpu, instances=mine))
    return tuple(gpus)


def device(gpus: tuple[Gpu, ...], identifier: str) -> tuple[Gpu, MigInstance | None]:
    """Return the GPU, or the instance, with any of its names; raises GH1511."""
    forms = {identifier.lower(), bus_id(identifier)} - {""}
    for gpu in gpus:
        for some in (None, *gpu.instances):
            if not forms.isdisjoint(every_name(gpu, some)):
                return gpu, some
    have = [f"{gpu.index} ({gpu.uuid or 'no UUID'})" for gpu in gpus]
    have += [f"{gpu.index}:{one.index}" for gpu in gpus for one in gpu.instances]
    raise fault("GH1511", value=identifier, have=", ".join(have) or "none")


def _refusal(node: Node, gpu: Gpu, instance: MigInstance | None) -> str:
    if instance is not None:
        return instance_trouble(node, gpu, instance)
    reason = trouble(node, gpu)
    if not reason and is_divided(gpu):
        own = ", ".join(f"{gpu.index}:{instance.index}" for instance in gpu.instances)
        return f"{_MIG_MODE}, so select its instances instead ({own or 'it has none'})"
    return reason
