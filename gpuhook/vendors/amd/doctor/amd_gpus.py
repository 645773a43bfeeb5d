# SPDX-License-Identifier: Apache-2.0
"""The state of AMD GPUs: memory errors, left-over memory, partitions, limits of memory."""

from __future__ import annotations

import re
from typing import Any

from gpuhook.node_facts.check import WARNING, Finding, absent, check, first_items, ok, unless
from gpuhook.node_facts.container_facts import ledger_entries
from gpuhook.node_facts.sources import node_tree
from gpuhook.vendors.amd.doctor import amd_facts as facts
from gpuhook.vendors.amd.doctor.amd_devices import TOPOLOGY
from gpuhook.vendors.amd.doctor.amd_driver import ANSWERS
from gpuhook.vendors.amd.hot.amd_memory import AmdMemory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuhook.node_facts.check import ExaminedNode, Findings
    from gpuhook.vendors.amd.doctor.amd_facts import DrivenGpu

_NEEDS = (ANSWERS,)
_PROCESSES = "/sys/class/kfd/kfd/proc"
_CGROUPS = "/sys/fs/cgroup"
_CAPACITY = f"{_CGROUPS}/dmem.capacity"
_PIDS = "/proc/self/ns/pid"
_HOST_PIDS = f"pid:[{0xEFFFFFFC}]"  # linux/proc_ns.h, PROC_PID_INIT_INO
# MI100 and MI200: reading the counters clears them in the hardware.
_CLEARED_BY_READS = ("738c", "738e", "740f", "7408", "740c")
_COUNTERS = "_err_count"
_UNCORRECTABLE = re.compile(r"^ue:[ \t]*(\d+)", re.MULTILINE)
_PAGE = re.compile(r"^0x[0-9a-f]+\s*:\s*0x[0-9a-f]+\s*:\s*([RPF])\s*$", re.MULTILINE)
_PAGES = {"F": "cannot be retired", "P": "are retired at the next load of the driver", "R": ""}
_SUSPENDED = "suspended"
_RESET = "systemctl reboot  # if the errors come again, replace the card"


@check("amd.errors", "No AMD GPU has uncorrectable errors", needs=_NEEDS)
@unless(facts.no_gpus)
def _errors(node: ExaminedNode) -> Findings:
    found = [finding for gpu in facts.gpus(node) for finding in _uncorrectable(node, gpu)]
    return found or ok("no AMD GPU reports uncorrectable errors", facts.BOUND)


def _uncorrectable(node: ExaminedNode, gpu: DrivenGpu) -> Iterable[Finding]:
    if gpu.device_id in _CLEARED_BY_READS or _is_suspended(node, gpu):
        return
    place = f"{gpu.directory}/ras"
    counts = {}
    for name in node.tree.names(place):
        if name.endswith(_COUNTERS):
            number = _UNCORRECTABLE.search(_text(node, f"{place}/{name}"))
            if number and int(number[1]):
                counts[name.removesuffix(_COUNTERS)] = int(number[1])
    if counts:
        listed = ", ".join(f"{count} in {block}" for block, count in counts.items())
        yield Finding(
            WARNING,
            f"{gpu.bus_id} has had uncorrectable errors since the driver was loaded: {listed}",
            subject=gpu.bus_id,
            meaning="the programs that used the memory ended with a fault, or have wrong results; "
            "AMD's exporter and gpuhook's plugin mark the GPU unhealthy when the number rises",
            command=_RESET,
            looked_at=(place,),
        )


def _is_suspended(node: ExaminedNode, gpu: DrivenGpu) -> bool:
    """Return whether the GPU sleeps: reading its counters would wake it."""
    return facts.line(node, f"{gpu.directory}/power/runtime_status") == _SUSPENDED


def _text(node: ExaminedNode, path: str) -> str:
    """Return the text of a driver's file, "" if the driver refuses it, as during a reset."""
    try:
        return node_tree.text(node.tree, path) or ""
    except OSError:
        return ""


@check("amd.pages", "No AMD GPU has bad memory pages", needs=_NEEDS)
@unless(facts.no_gpus)
def _pages(node: ExaminedNode) -> Findings:
    found = [finding for gpu in facts.gpus(node) for finding in _bad_pages(node, gpu)]
    return found or ok("no AMD GPU reports bad memory pages", facts.BOUND)


def _bad_pages(node: ExaminedNode, gpu: DrivenGpu) -> Iterable[Finding]:
    path = f"{gpu.directory}/ras/gpu_vram_bad_pages"
    kinds = [] if _is_suspended(node, gpu) else _PAGE.findall(_text(node, path))
    if not kinds:
        return
    open_ones = [f"{kinds.count(kind)} {why}" for kind, why in _PAGES.items() if why]
    open_ones = [one for one in open_ones if not one.startswith("0 ")]
    rest = f" ({', '.join(open_ones)})" if open_ones else ", all retired"
    yield Finding(
        WARNING,
        f"{gpu.bus_id} has {len(kinds)} bad memory pages{rest}",
        subject=gpu.bus_id,
        meaning="the memory of the card wears out: a program that uses a page that is not retired "
        "fails, and the driver refuses the card above its limit of bad pages",
        command=f"cat {path}; {_RESET}",
        looked_at=(path,),
    )


@check("amd.residue", "No dead process holds memory of an AMD GPU", needs=_NEEDS)
@unless(facts.no_gpus)
def _residue(node: ExaminedNode) -> Findings:
    space = node.tree.status(_PIDS, follow=False)
    if space is not None and space.target != _HOST_PIDS:
        return absent("KFD's processes are known only in the pid namespace of the host", _PIDS)
    dead = [
        pid
        for pid in node.tree.names(_PROCESSES)
        if pid.isdecimal() and node.tree.status(f"/proc/{pid}") is None
    ]
    found = [finding for pid in dead for finding in _held(node, pid)]
    return found or ok("no dead process holds memory of a GPU", _PROCESSES)


def _held(node: ExaminedNode, pid: str) -> Iterator[Finding]:
    place = f"{_PROCESSES}/{pid}"
    amounts = {
        name.removeprefix("vram_"): facts.line(node, f"{place}/{name}")
        for name in node.tree.names(place)
        if name.startswith("vram_")
    }
    for gpu_id, amount in amounts.items():
        if not amount.isdecimal() or not int(amount):
            continue
        name = _device_name(node, gpu_id)
        yield Finding(
            WARNING,
            f"the process {pid} has ended, but holds {int(amount) >> 20} MiB of {name}",
            subject=pid,
            meaning="the driver has not released the memory of a killed program: the next "
            "container with this device has less memory, or fails with hipErrorOutOfMemory",
            command=f"dmesg | grep -i amdgpu | tail -n 40; cat {place}/vram_{gpu_id}  # if it "
            "does not change within a minute, stop all programs of the GPU and reboot",
            looked_at=(place,),
        )


def _device_name(node: ExaminedNode, gpu_id: str) -> str:
    for one in facts.topology(node).nodes:
        if str(one.gpu_id) == gpu_id:
            return f"{one.bus}.0 (renderD{one.minor})"
    return f"a GPU that KFD no longer has (gpu_id {gpu_id})"


@check("amd.partitions", "Every AMD GPU has all partitions of its mode", needs=(ANSWERS, TOPOLOGY))
@unless(facts.no_gpus)
def _partitions(node: ExaminedNode) -> Findings:
    counts = {gpu: len(_own_minors(node, gpu)) for gpu in facts.gpus(node) if gpu.compute_mode}
    if not counts or facts.topology(node).refused:
        return absent("no AMD GPU can be partitioned, or KFD refuses its files")
    best: dict[tuple[str, str], int] = {}
    for gpu, count in counts.items():
        kind = (gpu.device_id, gpu.compute_mode)
        best[kind] = max(best.get(kind, 0), count)
    short = [
        (gpu, count, full)
        for gpu, count in counts.items()
        if count < (full := best[gpu.device_id, gpu.compute_mode])
    ]
    if not short:
        modes = ", ".join(dict.fromkeys(f"{g.compute_mode}/{g.memory_mode}" for g in counts))
        return ok(f"every GPU has all partitions of its mode ({modes})", facts.NODES)
    return [_short(gpu, count, full) for gpu, count, full in short]


def _own_minors(node: ExaminedNode, gpu: DrivenGpu) -> list[int]:
    bus = gpu.bus_id.partition(".")[0]
    known = facts.drm_minors(node)
    return [
        one.minor for one in facts.topology(node).nodes if one.bus == bus and one.minor in known
    ]


def _short(gpu: DrivenGpu, count: int, full: int) -> Finding:
    return Finding(
        WARNING,
        f"{gpu.bus_id} is in mode {gpu.compute_mode}, but has {count} of {full} partitions",
        subject=gpu.bus_id,
        meaning="the kernel has at most 64 DRM devices, and one of another driver, such as that "
        "of a BMC, takes the place of a partition: the node offers fewer partitions than expected",
        command="dmesg | grep -i 'skip xcp node'; echo 'blacklist ast' > "
        "/etc/modprobe.d/blacklist-bmc.conf && systemctl reboot  # or use a kernel without the "
        "limit",
        looked_at=(facts.NODES, facts.PLATFORM),
    )


@check("amd.hive", "The AMD GPUs of a hive have the same memory mode", needs=(ANSWERS, TOPOLOGY))
@unless(facts.no_gpus)
def _hive(node: ExaminedNode) -> Findings:
    hives = {one.bus: one.hive for one in facts.topology(node).nodes if one.hive}
    members: dict[int, list[DrivenGpu]] = {}
    for gpu in facts.gpus(node):
        hive = hives.get(gpu.bus_id.partition(".")[0])
        if hive is not None and gpu.memory_mode:
            members.setdefault(hive, []).append(gpu)
    found = [
        _mixed(hive, gpus)
        for hive, gpus in members.items()
        if len({gpu.memory_mode for gpu in gpus}) > 1
    ]
    if found:
        return found
    return ok("each hive has one memory mode", facts.NODES) if members else absent("no XGMI hive")


def _mixed(hive: int, gpus: list[DrivenGpu]) -> Finding:
    modes = ", ".join(f"{gpu.bus_id} {gpu.memory_mode}" for gpu in gpus)
    mode = gpus[0].memory_mode
    return Finding(
        WARNING,
        f"the GPUs of the hive {hive:016x} have different memory modes: {modes}",
        subject=f"{hive:016x}",
        meaning="a memory mode takes effect for the whole hive when amdgpu is loaded again; until "
        "then, links between these GPUs and the sizes of their partitions are undefined",
        command=f"for d in {facts.BOUND}/*:*; do echo {mode} > $d/current_memory_partition; done; "
        "modprobe -r amdgpu && modprobe amdgpu  # after all programs that use a GPU have stopped",
        looked_at=tuple(f"{gpu.directory}/current_memory_partition" for gpu in gpus),
    )


@check("amd.dmem", "The kernel can limit the memory of containers on AMD GPUs", needs=_NEEDS)
@unless(facts.no_gpus)
def _dmem(node: ExaminedNode) -> Finding:
    regions = (_text(node, _CAPACITY)).split()[::2]
    own = {f"drm/{gpu.bus_id}/vram" for gpu in facts.gpus(node)}
    looked = (_CAPACITY, f"{_CGROUPS}/cgroup.controllers")
    limited = {str(one["id"]): why for one in ledger_entries(node) if (why := _unlimited(one))}
    if limited:
        return Finding(
            WARNING,
            f"memory limits on AMD GPUs are not enforced in: {first_items(list(limited))} "
            f"({next(iter(limited.values()))})",
            meaning="a program there can use the memory of the other containers of its GPU; only "
            "the device plugin's guard, if it is on, ends it",
            command="gpuhook limits show  # why, for each container; dmem needs Linux 6.15 and "
            "cgroup v2, and it limits whole GPUs",
            looked_at=looked,
        )
    if own & set(regions):
        return ok(f"dmem limits the memory of {len(own & set(regions))} AMD GPUs", *looked)
    return absent(
        "the kernel has no dmem controller for AMD GPUs (Linux 6.15, cgroup v2), and no container "
        "has a memory limit that needs it",
        *looked,
    )


def _unlimited(entry: dict[str, Any]) -> str:
    """Return why a container's memory limit on an AMD GPU is not enforced, "" if all are."""
    records = entry.get("memory")
    for one in records if isinstance(records, list) else ():
        if AmdMemory().has_device(str(one.get("device"))) and not one.get("by"):
            return str(one.get("trouble") or "no reason is recorded")
    return ""


CHECKS = (_errors, _pages, _residue, _partitions, _hive, _dmem)
