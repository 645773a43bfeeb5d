# SPDX-License-Identifier: Apache-2.0
"""The present usage of the node's GPUs, as the document gpuhook/ps/v1.

It joins four sources, each of which may be missing: the ledger and the runtimes' state have the
containers, the driver has the processes on each GPU and their memory, the kernel has the container
of each process, and the kubelet has the replicas and the claims of each container.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuhook.containers import find
from gpuhook.containers.hot import ledger, ledger_warnings
from gpuhook.containers.warm import state_roots
from gpuhook.device_plugin.kubelet import device_checkpoint
from gpuhook.host.text_table import counted
from gpuhook.request import replicas
from gpuhook.usage import (
    claim_holders,
    container_sharing,
    gpu_processes,
    injection_route,
    ledger_holders,
    plugin_containers,
    usage_devices,
)
from gpuhook.usage.display_names import GpuNames
from gpuhook.usage.usage_devices import NodeDevices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from gpuhook.containers.warm.runtime_state import Found
    from gpuhook.device_plugin.kubelet.device_checkpoint import KubeletAnswer
    from gpuhook.errors import GpuhookError
    from gpuhook.usage.claim_holders import ClaimHolders
    from gpuhook.usage.gpu_processes import Users
    from gpuhook.vendors.usage.usage_device import UsageDevice

SCHEMA = "gpuhook/ps/v1"


@dataclass(frozen=True, slots=True)
class UsageQuestion:
    """The sources in addition to the ledger.

    `roots` are further state roots of runtimes. `kubelet` is the kubelet's root directory, "" for
    none. `only_recorded`: only containers of the ledger. `is_judged`: also the sharing of GPUs.
    """

    roots: tuple[str, ...] = ()
    kubelet: str = ""
    only_recorded: bool = False
    is_judged: bool = False


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """The document, and the sources that could not be read, as faults and sentences.

    `units` has all units of each device that the kubelet has. `has_driver`: of any vendor.
    """

    document: dict[str, Any]
    trouble: tuple[GpuhookError, ...]
    warnings: tuple[str, ...]
    units: Mapping[str, tuple[str, ...]]
    has_driver: bool = True


def look(question: UsageQuestion, node: NodeDevices) -> NodeUsage:
    """Return the present usage; `node` has the answers of the drivers."""
    ids = {device.uuid for device in node.devices}
    kubelet = device_checkpoint.kubelet_units(question.kubelet, ids)
    claims = claim_holders.claim_holders(question.kubelet)
    running, denied = find.visible(question.roots)
    living = ledger.living()
    entries = [entry for entry in living if ledger.is_holder(entry)]
    warned = {entry["id"]: entry for entry in living if not ledger.is_holder(entry)}
    members = gpu_processes.Members(running, (entry["id"] for entry in entries))
    devices = node.devices
    users = gpu_processes.attribute(devices, members)
    by_node = usage_devices.by_node(devices)
    for entry in entries:
        entry["device_plugin"] = plugin_containers.is_recorded_plugin(entry, question.kubelet)
    others = []
    if not question.only_recorded:
        others = _others(running, entries, users.containers, by_node, question.kubelet)
    for entry in others:
        entry["warnings"] = ledger_warnings.read(warned.pop(entry["id"], {}))
    if kubelet.held:
        _add_pods(entries, running)
    whole = [_with_units(entry, kubelet) for entry in (*entries, *others)]
    whole.sort(key=lambda entry: (entry["since"], entry["id"]))
    parts = {device.uuid for device in devices if ":" in device.index}
    containers = ledger_holders.holders_of(
        whole, by_node, is_judged=question.is_judged, parts=parts
    )
    _complete(containers, entries, running)
    if claims is not None and not claims.trouble:
        for one in containers:
            place = (one["namespace"] or "", one["pod"] or "", one["container"] or "")
            held = claims.devices.get(place, [])
            one["claims"] = claim_holders.confirmed(one["claims"], held)
    _add_uses(containers, devices, users, kubelet)
    by_id = {found.id: found for found in running}
    without = [_without_gpu(entry, by_id.get(entry["id"])) for entry in warned.values()]
    has_processes = any(one.processes for one in devices)
    faults = (*node.trouble, members.trouble if has_processes else None, denied)
    return NodeUsage(
        _document(node, users, containers, without),
        tuple(one for one in faults if one is not None),
        (*node.warnings, *_unread(kubelet, claims), *_started_without(without)),
        kubelet.units,
        node.absence is None,
    )


def _document(
    node: NodeDevices,
    users: Users,
    containers: list[dict[str, Any]],
    without: list[dict[str, Any]],
) -> dict[str, Any]:
    trouble = node.trouble[0] if node.trouble else node.absence
    return {
        "schema": SCHEMA,
        "containers": containers,
        "gpus": [_device(one, users) for one in node.devices],
        "processes": users.documents(),
        "without_gpu": without,
        "driver": {
            "asked": node.is_asked,
            "trouble": trouble.message if trouble else "",
            "code": trouble.code if trouble else "",
        },
    }


def _unread(kubelet: KubeletAnswer, claims: ClaimHolders | None) -> list[str]:
    """Return a sentence for each of the kubelet's answers that cannot be read."""
    troubles = {"replica": kubelet.trouble, "claim": claims.trouble if claims else ""}
    return [
        f"cannot read which container holds which {what}: {trouble}"
        for what, trouble in troubles.items()
        if trouble
    ]


def _without_gpu(entry: dict[str, Any], found: Found | None) -> dict[str, Any]:
    """Return a container that requested a GPU and started without one, which has only warnings."""
    names = {key: entry.get(key) for key in ("id", "pod", "namespace", "container", "since")}
    return {**names, **_names(entry, found), "warnings": ledger_warnings.read(entry)}


def _started_without(found: Sequence[dict[str, Any]]) -> list[str]:
    """Return a sentence on the containers that started without a requested GPU, [] for none."""
    if not found:
        return []
    codes = ", ".join(sorted({warning["code"] for one in found for warning in one["warnings"]}))
    return [f"{counted(len(found), 'container')} started without a requested GPU ({codes})"]


def node_devices(library: str = "") -> tuple[UsageDevice, ...]:
    """Return the recorded devices; of a vendor without any, those of its driver at `library`."""
    return usage_devices.known_devices(library).devices


def names_of(devices: Iterable[UsageDevice], others: Iterable[str] = ()) -> GpuNames:
    """Return the names of devices in tables; `others` are further names that will be shown."""
    return GpuNames(empty(devices)["gpus"], others)


def empty(devices: Iterable[UsageDevice]) -> dict[str, Any]:
    """Return the document of devices without usage, such as those of a dump."""
    node = NodeDevices(tuple(devices), is_asked=False)
    return _document(node, gpu_processes.Users(), [], [])


def _others(
    running: Iterable[Found],
    entries: Iterable[dict[str, Any]],
    users: Mapping[str, list[str]],
    by_node: Mapping[str, str],
    kubelet_root: str,
) -> list[dict[str, Any]]:
    """Return entries for the containers that hold or use a GPU and have none in the ledger.

    If the devices of their nodes are unknown, they have the paths of the nodes as devices.
    """
    recorded = {(state_roots.real(entry["root"]), entry["id"]) for entry in entries}
    pids = {entry.get("pid") for entry in entries if not entry["root"]}
    found = []
    for one in running:
        if (state_roots.real(one.state_root), one.id) in recorded or one.pid in pids:
            continue
        spec = injection_route.config(one)
        has = injection_route.injected_devices(one, spec)
        if not (has.is_holder or one.id in users):
            continue
        if not has.is_holder:  # the nodes that it can open are not those that it uses
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
    """Set the UID of the pod, which the ledger does not have, of each entry with replicas."""
    by_place = {(state_roots.real(one.state_root), one.id): one for one in running}
    by_pid = {one.pid: one for one in by_place.values()}
    for entry in entries:
        place = (state_roots.real(entry["root"]), entry["id"])
        found = by_place.get(place) if entry["root"] else by_pid.get(entry.get("pid", 0))
        if entry["replicas"] and found is not None:
            entry["pod_uid"] = injection_route.pod_uid(injection_route.config(found))


def _with_units(entry: dict[str, Any], kubelet: KubeletAnswer) -> dict[str, Any]:
    """Return an entry with the replicas that the kubelet assigned to its container, if any.

    `replicas` of an entry comes from a variable, which any container can set.
    """
    units = kubelet.held.get((entry.get("pod_uid", ""), entry.get("container") or ""), ())
    held = [unit for unit in units if replicas.device_of(unit)]
    return {**entry, "replicas": held} if held else entry


def _complete(
    containers: Iterable[dict[str, Any]],
    entries: Iterable[dict[str, Any]],
    running: Iterable[Found],
) -> None:
    """Add to each container whether the ledger has it, and its engine and pid."""
    recorded_ids = {entry["id"] for entry in entries}
    by_id = {found.id: found for found in running}
    for one in containers:
        found = by_id.get(one["id"])
        one["recorded"] = one["id"] in recorded_ids
        one["engine"] = (found.engine if found else "") or None
        one["pid"] = found.pid if found else None
        one |= _names(one, found)


def _names(entry: Mapping[str, Any], found: Found | None) -> dict[str, str | None]:
    """Return the name and the image of a container; of its pod, the ledger has the name, too."""
    name = (found.name if found else "") or entry.get("container")
    return {"name": name or None, "image": (found.image if found else "") or None}


def _add_uses(
    containers: Sequence[dict[str, Any]],
    devices: Iterable[UsageDevice],
    users: Users,
    kubelet: KubeletAnswer,
) -> None:
    """Add to each container its usage of its devices, and of other devices that it uses."""
    by_uuid = {device.uuid: device for device in devices if device.uuid}
    used = users.containers
    held = {one["id"]: list(dict.fromkeys([*one["gpus"], *used.get(one["id"], ())]))
            for one in containers}  # fmt: skip
    holders = container_sharing.holder_counts(
        held[one["id"]] for one in containers if not one["device_plugin"]
    )
    for one in containers:
        one["usage"] = [
            _use(
                one,
                gpu,
                by_uuid.get(gpu),
                users,
                units=kubelet.units.get(gpu, ()),
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
    if not uses and device is not None and not device.is_complete:
        is_told = False  # its processes may be among those that could not be read
    used = gpu_processes.known_sum([use.memory_bytes for use in uses]) if is_told else None
    percent = gpu_processes.known_sum([use.percent for use in uses])
    share = None
    if not container["device_plugin"]:
        share = container_sharing.fair_share(gpu, total, container, units, holders)
    return {
        "gpu": gpu,
        "held": gpu in container["gpus"],
        "used": used,
        "total": total,
        "share": share,
        "over": container_sharing.is_over(used, share),
        "percent": percent if device is not None and is_told and device.has_percents else None,
        "processes": [gpu_processes.process_document(use) for use in uses],
    }


def _device(device: UsageDevice, users: Users) -> dict[str, Any]:
    """Return a device with the used memory that no process accounts for."""
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
    """Return the used bytes that belong to no known process, None if that is unknown.

    Without `reserved`, the used memory includes that of the driver, and the residual one is all
    that is known to have no process. Some drivers report no memory of processes.
    """
    if device.is_split or device.processes is None or None in {device.used, device.reserved}:
        return device.residual or None
    if any(use.memory_bytes is None for use in device.processes):
        return None
    strangers = users.strangers(device.uuid)
    known = sum(use.memory_bytes or 0 for use in device.processes if use.pid not in strangers)
    return max(0, (device.used or 0) - known)
