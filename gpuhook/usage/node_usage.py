# SPDX-License-Identifier: Apache-2.0
"""One look at who uses which GPU, as the document gpuhook/ps/v1.

Four witnesses are put together, each of which may be missing: the ledger and the runtimes' own
state say which containers there are, the driver which process uses how much of which GPU, the
kernel whose the process is, and the kubelet who holds which replica.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuhook.containers.hot import ledger, ledger_warnings
from gpuhook.containers.warm import find, state_roots
from gpuhook.request import replicas
from gpuhook.usage import (
    attribution,
    container_share,
    gpu_processes,
    injection_route,
    kubelet_units,
    ledger_holders,
    plugin_containers,
)
from gpuhook.usage import usage_devices as known_devices
from gpuhook.vendors.nvidia.hot import node_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from gpuhook.containers.warm.runtime_state import Found
    from gpuhook.errors import GpuhookError
    from gpuhook.usage.attribution import Users
    from gpuhook.usage.gpu_readings import UsageDevice, UsageLook
    from gpuhook.usage.kubelet_units import KubeletAnswer

SCHEMA = "gpuhook/ps/v1"


@dataclass(frozen=True, slots=True)
class UsageQuestion:
    """What is to be looked at, besides the ledger.

    `roots` are further state roots of runtimes; `kubelet` is the kubelet's root, "" for none;
    `only_recorded`: no containers but the ledger's; `is_judged`: how each shares its GPUs.
    """

    roots: tuple[str, ...] = ()
    kubelet: str = ""
    only_recorded: bool = False
    is_judged: bool = False


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """What there was to see: the document, and what could not be seen, as faults and sentences.

    `units` are all units of each device that the kubelet has.
    """

    document: dict[str, Any]
    trouble: tuple[GpuhookError, ...] = ()
    warnings: tuple[str, ...] = ()
    units: Mapping[str, tuple[str, ...]] | None = None


def look(wanted: UsageQuestion, driver: UsageLook) -> NodeUsage:
    """Return who uses what now; `driver` is what the driver has just told."""
    told = kubelet_units.kubelet_units(wanted.kubelet)
    running, denied = find.visible(wanted.roots)
    known = ledger.living()
    entries = [entry for entry in known if ledger.is_holder(entry)]
    warned = {entry["id"]: entry for entry in known if not ledger.is_holder(entry)}
    members = gpu_processes.Members(running, (entry["id"] for entry in entries))
    devices = driver.devices or known_devices.noted()
    users = attribution.attribute(devices, members)
    by_node = known_devices.by_node(devices, node_json.uuids())
    for entry in entries:
        entry["device_plugin"] = plugin_containers.is_recorded_plugin(entry, wanted.kubelet)
    others = []
    if not wanted.only_recorded:
        others = _others(running, entries, users.containers, by_node, wanted.kubelet)
    for entry in others:
        entry["warnings"] = ledger_warnings.read(warned.pop(entry["id"], {}))
    if told.held:
        _add_pods(entries, running)
    whole = [_with_units(entry, told) for entry in (*entries, *others)]
    whole.sort(key=lambda entry: (entry["since"], entry["id"]))
    containers = ledger_holders.holders_of(whole, by_node, is_judged=wanted.is_judged)
    _complete(containers, entries, running)
    _add_uses(containers, devices, users, told)
    has_processes = any(one.processes for one in devices)
    faults = [driver.trouble, members.trouble if has_processes else None, denied]
    without = [_without_gpu(entry) for entry in warned.values()]
    document = {
        "schema": SCHEMA,
        "containers": containers,
        "gpus": [_device(one, users) for one in devices],
        "processes": users.documents(),
        "without_gpu": without,
        "driver": {
            "asked": driver.is_asked,
            "trouble": driver.trouble.message if driver.trouble else "",
            "code": driver.trouble.code if driver.trouble else "",
        },
    }
    warnings = _started_without(without)
    if told.trouble:
        reason = f"cannot read which container holds which replica: {told.trouble}"
        warnings.insert(0, reason)
    trouble = tuple(one for one in faults if one is not None)
    return NodeUsage(document, trouble, tuple(warnings), told.units)


def _without_gpu(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a container that requested a GPU, started without one, and has warnings alone."""
    names = {key: entry.get(key) for key in ("id", "pod", "namespace", "container", "since")}
    return {**names, "warnings": ledger_warnings.read(entry)}


def _started_without(found: Sequence[dict[str, Any]]) -> list[str]:
    """Return a sentence on the containers that started without the GPU that they requested."""
    if not found:
        return []
    codes = ", ".join(sorted({told["code"] for one in found for told in one["warnings"]}))
    who = "1 container" if len(found) == 1 else f"{len(found)} containers"
    return [f"{who} started without a requested GPU ({codes})"]


def empty(devices: Iterable[UsageDevice]) -> dict[str, Any]:
    """Return the document of devices that nobody uses, such as those of a dump."""
    gpus = [_device(one, attribution.Users()) for one in devices]
    driver = {"asked": False, "trouble": "", "code": ""}
    nothing: dict[str, Any] = {"containers": [], "gpus": gpus, "processes": [], "without_gpu": []}
    return {"schema": SCHEMA, **nothing, "driver": driver}


def _others(
    running: Iterable[Found],
    entries: Iterable[dict[str, Any]],
    users: Mapping[str, list[str]],
    by_node: Mapping[str, str],
    kubelet_root: str,
) -> list[dict[str, Any]]:
    """Return entries for the containers that hold or use a GPU and have none in the ledger.

    Where nobody tells which devices their nodes are of, they stand under the nodes.
    """
    known = {(state_roots.real(entry["root"]), entry["id"]) for entry in entries}
    pids = {entry.get("pid") for entry in entries if not entry["root"]}
    found = []
    for one in running:
        if (state_roots.real(one.state_root), one.id) in known or one.pid in pids:
            continue
        spec = injection_route.config(one)
        has = injection_route.injected_devices(one, spec)
        if not (has.is_holder or one.id in users):
            continue
        if not has.is_holder:  # what it may open says nothing of what it uses
            has = replace(has, nodes=())
        entry = injection_route.entry(one, spec, has, by_node)
        entry["device_plugin"] = plugin_containers.is_plugin(spec, kubelet_root)
        if not has.nodes and one.id in users:
            entry["devices"] = users[one.id]
        elif not any(node in by_node for node in has.nodes):
            entry["devices"] = list(has.nodes)
        found.append(entry)
    return found


def _add_pods(entries: Iterable[dict[str, Any]], running: Iterable[Found]) -> None:
    """Set the UID of the pod of each entry that has replicas: the ledger does not have it."""
    by_place = {(state_roots.real(one.state_root), one.id): one for one in running}
    by_pid = {one.pid: one for one in by_place.values()}
    for entry in entries:
        place = (state_roots.real(entry["root"]), entry["id"])
        found = by_place.get(place) if entry["root"] else by_pid.get(entry.get("pid", 0))
        if entry["replicas"] and found is not None:
            entry["pod_uid"] = injection_route.pod_uid(injection_route.config(found))


def _with_units(entry: dict[str, Any], told: KubeletAnswer) -> dict[str, Any]:
    """Return an entry with the replicas that the kubelet assigned to its container, if any.

    Any container can set the variable that `replicas` comes from.
    """
    units = told.held.get((entry.get("pod_uid", ""), entry.get("container") or ""), ())
    held = [unit for unit in units if replicas.device_of(unit)]
    return {**entry, "replicas": held} if held else entry


def _complete(
    containers: Iterable[dict[str, Any]],
    entries: Iterable[dict[str, Any]],
    running: Iterable[Found],
) -> None:
    """Say of each container whether the ledger has it, and what its runtime's state tells."""
    recorded_ids = {entry["id"] for entry in entries}
    by_id = {found.id: found for found in running}
    for one in containers:
        found = by_id.get(one["id"])
        one["recorded"] = one["id"] in recorded_ids
        one["engine"] = (found.engine if found else "") or None
        one["pid"] = found.pid if found else None


def _add_uses(
    containers: Sequence[dict[str, Any]],
    devices: Iterable[UsageDevice],
    users: Users,
    told: KubeletAnswer,
) -> None:
    """Say of each container what it uses of each of its devices, and of others if it does."""
    by_uuid = {device.uuid: device for device in devices if device.uuid}
    used = users.containers
    held = {one["id"]: list(dict.fromkeys([*one["gpus"], *used.get(one["id"], ())]))
            for one in containers}  # fmt: skip
    holders: dict[str, int] = {}
    plugins = {one["id"] for one in containers if one["device_plugin"]}
    for identity, gpus in held.items():
        for gpu in gpus if identity not in plugins else ():
            holders[gpu] = holders.get(gpu, 0) + 1
    for one in containers:
        one["usage"] = [
            _use(
                one,
                gpu,
                by_uuid.get(gpu),
                users,
                units=told.units.get(gpu, ()),
                holders=holders.get(gpu, 0),
            )
            for gpu in held[one["id"]]
            if by_uuid
        ]


def _use(
    container: dict[str, Any],
    gpu: str,
    device: UsageDevice | None,
    users: Users,
    *,
    units: Sequence[str],
    holders: int,
) -> dict[str, Any]:
    uses = users.by_key.get((container["id"], gpu), [])
    is_told = device is not None and device.processes is not None
    total = device.total if device is not None else None
    used = attribution.total([use.memory_bytes for use in uses]) if is_told else None
    percent = attribution.total([use.percent for use in uses])
    share = None
    if not container["device_plugin"]:
        share = container_share.fair_share(gpu, total, container, units, holders)
    return {
        "gpu": gpu,
        "held": gpu in container["gpus"],
        "used": used,
        "total": total,
        "share": share,
        "over": container_share.over(used, share),
        "percent": percent if is_told and _busy(device) else None,
        "processes": [attribution.document(use) for use in uses],
    }


def _busy(device: UsageDevice | None) -> bool:
    """Return whether the driver tells how busy processes are: not of MIG instances."""
    return device is not None and device.index.isdecimal()


def _device(device: UsageDevice, users: Users) -> dict[str, Any]:
    """Return a device, with what of its used memory no process accounts for."""
    return {
        "gpu": device.uuid or None,
        "index": device.index,
        "of": device.gpu or None,
        "name": device.name or None,
        "profile": device.profile or None,
        "split": device.is_split,
        "total": device.total,
        "used": device.used,
        "reserved": device.reserved,
        "unattributed": _unattributed(device, users),
        "percent": device.percent,
        "lost": device.lost or None,
    }


def _unattributed(device: UsageDevice, users: Users) -> int | None:
    """Return the bytes in use that no process known by name has, None where that is not told.

    An old driver counts what it has for itself as used, and some do not tell it of processes.
    """
    if device.is_split or device.processes is None or None in {device.used, device.reserved}:
        return None
    if any(use.memory_bytes is None for use in device.processes):
        return None
    strange = attribution.strangers(users, device.uuid)
    known = sum(use.memory_bytes or 0 for use in device.processes if use.pid not in strange)
    return max(0, (device.used or 0) - known)
