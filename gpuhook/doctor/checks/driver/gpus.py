# SPDX-License-Identifier: Apache-2.0
"""The GPUs: the driver answers for each, and programs may use it."""

from __future__ import annotations

from gpuhook.doctor.check import FAILED, GPUS, WARNING, Check, Finding, absent, ok
from gpuhook.doctor.facts import driver_facts as facts
from gpuhook.doctor.facts import driver_user_space, gpu_loss, service_state
from gpuhook.node import node_readings, node_tree
from gpuhook.vendors.nvidia.driver.driver_locations import GKE
from gpuhook.vendors.nvidia.spec import device_selection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.vendors.nvidia.devices.driver_nodes import ProcGpu
    from gpuhook.vendors.nvidia.inventory import inventory
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu

_NO_PERMISSION = "GH1205"
_UNIT = "nvidia-persistenced.service"
# What has NVML open for as long as it runs.
_HOLDERS = ("nvidia-device-plugin", "nv-hostengine", "nvidia-cuda-mps-control")
_UNASKED = "what NVML knows cannot be told from files alone"
# GPUs that go to sleep between programs, and take seconds to wake, matter where jobs come and go.
_DATA_CENTRE = ("Tesla", "A10", "A16", "A2", "A30", "A40", "A100", "A800", "B100", "B200", "B300",
                "GB200", "GB300", "GH200", "H100", "H200", "H800", "H20", "L2", "L4", "L20", "L40",
                "L40S", "T4", "V100", "P100", "P40", "P4")  # fmt: skip


def _nvml(node: ExaminedNode) -> Iterable[Finding]:
    reading = node.readings.of(node_readings.INVENTORY)
    if reading.document is not None:
        found = facts.inventory_of(node)
        count = len(found.gpus) if found else 0
        return [ok(f"NVML answers for {facts.counted(count)}", "libnvidia-ml.so.1")]
    if reading == node_readings.NOT_RUNNING or not facts.has_gpu(node):
        return [absent(_UNASKED if facts.has_gpu(node) else "this machine has no NVIDIA GPU")]
    if reading.code == _NO_PERMISSION:
        return [absent(f"{reading.trouble}: {reading.hint}")]
    return [
        Finding(
            FAILED,
            f"NVML does not answer: {reading.trouble}",
            meaning='nvidia-smi says "Failed to initialize NVML" or "Unable to determine the '
            'device handle", and GPU containers do not start: "nvidia-container-cli: '
            'initialization error: nvml error"',
            command="nvidia-smi; dmesg | grep -iE 'nvrm|xid' | tail -n 20",
            looked_at=("libnvidia-ml.so.1",),
        )
    ]


def _lost(node: ExaminedNode) -> Iterable[Finding]:
    found = facts.inventory_of(node)
    if found is None:
        return [absent(_UNASKED)]
    lost = _lost_gpus(node, found)
    if not lost:
        return [ok("no GPU is lost", "libnvidia-ml.so.1")]
    numbers = ", ".join(str(gpu.index) for gpu in lost)
    verb = "GPUs {} are" if len(lost) > 1 else "GPU {} is"
    reasons = " and ".join(dict.fromkeys(str(gpu.lost) for gpu in lost))
    named = [_described(node, gpu) for gpu in lost if gpu.pci_bus_id]
    if any(gpu.pci_bus_id is None for gpu in lost):
        named += [_described(node, gpu) for gpu in _unseen(node, found)]
    which = f": {', '.join(map(str, named))}" if named else ""
    buses = ",".join(gpu.bus_id for gpu in named) or numbers.replace(" ", "")
    return [
        Finding(
            FAILED,
            f"{verb.format(numbers)} lost ({reasons}){which}",
            subject=",".join(gpu.uuid or gpu.bus_id for gpu in named) or numbers,
            meaning='programs that use it fail with XID 79, "GPU has fallen off the bus", '
            'nvidia-smi says "Unable to determine the device handle for GPU", and containers '
            "that are given it find no device",
            command=f"nvidia-smi --gpu-reset -i {buses}  # stop every container that uses it "
            "first; if this fails, reboot; if it is lost again, check the card, its power supply "
            "and its slot",
            looked_at=("libnvidia-ml.so.1",),
        )
    ]


def _lost_gpus(node: ExaminedNode, found: inventory.Node) -> list[Gpu]:
    """Return the lost GPUs, without those that driver.gpu or driver.bus reports."""
    lost = [gpu for gpu in found.gpus if gpu.lost is not None]
    known = [gpu for gpu in lost if not gpu_loss.is_missing(node, gpu.uuid, gpu.pci_bus_id)]
    nameless = [gpu for gpu in known if gpu.pci_bus_id is None]
    if nameless and len(gpu_loss.missing(node)) >= len(nameless) and not _unseen(node, found):
        return [gpu for gpu in known if gpu.pci_bus_id is not None]
    return known


def _described(node: ExaminedNode, gpu: Gpu | ProcGpu) -> gpu_loss.NamedGpu:
    return gpu_loss.described(node, gpu.uuid, gpu.minor, gpu.pci_bus_id)


def _seen(node: ExaminedNode) -> Iterable[Finding]:
    found = facts.inventory_of(node)
    if found is None:
        return [absent(_UNASKED)]
    unseen = _unseen(node, found)
    nameless = [gpu for gpu in found.gpus if gpu.lost is not None and gpu.pci_bus_id is None]
    if len(unseen) <= len(nameless):  # NVML has no names for a lost GPU; gpus.lost reports these
        return [ok("NVML has every GPU that the kernel module has", facts.GPUS)]
    told = ", ".join(str(_described(node, gpu)) for gpu in unseen)
    return [
        Finding(
            FAILED,
            f"the kernel module has {facts.counted(len(unseen))} that NVML does not have: {told}",
            subject=",".join(gpu.pci_bus_id for gpu in unseen),
            meaning="no container gets a GPU that did not start (dmesg: RmInitAdapter failed)",
            command="dmesg | grep -iE 'nvrm|xid' | tail -n 20; systemctl reboot",
            looked_at=(facts.GPUS,),
        )
    ]


def _unseen(node: ExaminedNode, found: inventory.Node) -> list[ProcGpu]:
    """Return the GPUs of the kernel module, and on the bus, that NVML has no names for."""
    known = {device_selection.bus_id(gpu.pci_bus_id or "") for gpu in found.gpus}
    return [
        gpu
        for gpu in facts.gpus(node)
        if device_selection.bus_id(gpu.pci_bus_id) not in known
        and not _is_excluded(node, gpu)
        and not gpu_loss.is_missing(node, gpu.uuid, gpu.pci_bus_id)
    ]


def _is_excluded(node: ExaminedNode, gpu: ProcGpu) -> bool:
    """Return whether the driver was told to leave the GPU alone (NVreg_ExcludedGpus)."""
    path = f"{facts.GPUS}/{device_selection.bus_id(gpu.pci_bus_id)}/information"
    lines = (node_tree.text(node.tree, path) or "").splitlines()
    return any(line.split() == ["GPU", "Excluded:", "Yes"] for line in lines)


def _compute_mode(node: ExaminedNode) -> Iterable[Finding]:
    gpus = _working(node)
    if gpus is None:
        return [absent(_UNASKED)]
    found = [finding for gpu in gpus for finding in _mode(gpu)]
    return found or [ok("the compute mode of every GPU lets several programs use it")]


def _mode(gpu: Gpu) -> Iterable[Finding]:
    if gpu.compute_mode in (None, "default"):
        return
    prohibited = gpu.compute_mode == "prohibited"
    meaning = "all programs" if prohibited else "every program but the first, and every replica,"
    yield Finding(
        FAILED if prohibited else WARNING,
        f"the compute mode of GPU {gpu.index} is {gpu.compute_mode}",
        subject=gpu.uuid or str(gpu.index),
        meaning=f'{meaning} fail with "all CUDA-capable devices are busy or unavailable" '
        "(CUDA_ERROR_DEVICE_UNAVAILABLE, 46)",
        command=f"nvidia-smi -i {gpu.index} -c DEFAULT",
        looked_at=("libnvidia-ml.so.1",),
    )


def _mig(node: ExaminedNode) -> Iterable[Finding]:
    gpus = _working(node)
    if gpus is None:
        return [absent(_UNASKED)]
    divided = [gpu for gpu in gpus if device_selection.is_divided(gpu)]
    if not divided:
        return [absent("no GPU is in MIG mode")]
    empty = [gpu for gpu in divided if not gpu.instances]
    if not empty:
        return [ok("every GPU in MIG mode has MIG devices")]
    return [
        Finding(
            WARNING,
            f"GPU {gpu.index} is in MIG mode and has no MIG device",
            subject=gpu.uuid or str(gpu.index),
            meaning='nothing of this GPU can be used: CUDA says "no CUDA-capable device is '
            'detected", and its resource has the count 0',
            command=f"nvidia-smi mig -i {gpu.index} -cgi 0 -C  # nvidia-smi mig -lgip lists the "
            f"profiles; or, to leave MIG mode: nvidia-smi -i {gpu.index} -mig 0",
            looked_at=("libnvidia-ml.so.1",),
        )
        for gpu in empty
    ]


def _working(node: ExaminedNode) -> list[Gpu] | None:
    found = facts.inventory_of(node)
    return None if found is None else [gpu for gpu in found.gpus if gpu.lost is None]


def _needs_none(node: ExaminedNode, names: list[str]) -> str:
    """Return why the GPUs stay initialised, or need not, without the daemon; "" else."""
    if not any(set(name.replace("-", " ").split()) & set(_DATA_CENTRE) for name in names):
        return "nvidia-persistenced does not run; on a workstation it need not"
    if holder := next((one for one in _HOLDERS if service_state.runs(node, "", one)), ""):
        return f"{holder} has the GPUs open, which keeps them initialised"
    is_gke = driver_user_space.driver_user_space(node).root == GKE
    return f"the driver of {GKE} comes without nvidia-persistenced" if is_gke else ""


def _persistence(node: ExaminedNode) -> Iterable[Finding]:
    names = [gpu.model or "" for gpu in facts.gpus(node)]
    if not names:
        return [absent("the kernel module has no GPU")]
    runs = service_state.runs(node, _UNIT, "nvidia-persistenced")
    if runs is None:
        return [absent("whether nvidia-persistenced runs cannot be told from files alone")]
    if runs:
        return [ok("nvidia-persistenced keeps the GPUs initialised", "nvidia-persistenced.service")]
    if why := _needs_none(node, names):
        return [absent(why)]
    has_unit = service_state.unit(node, _UNIT).get("load") == "loaded"
    return [
        Finding(
            WARNING,
            f"nvidia-persistenced does not run, on a node with {names[0]} (GPUs: {len(names)})",
            meaning="where persistence mode was not set by nvidia-smi -pm 1 either, the driver "
            "initialises every GPU anew when nobody uses one: containers and nvidia-smi take "
            "seconds longer to start, and settings such as clocks are forgotten",
            command=f"systemctl enable --now {_UNIT}"
            if has_unit
            else "nvidia-smi -pm 1  # until the next boot; nvidia-persistenced does it for good",
            looked_at=(_UNIT,),
        )
    ]


_NEEDS = ("driver.module", "driver.version", "driver.libraries")
_ANSWERS = ("gpus.nvml",)

CHECKS: tuple[Check, ...] = (
    Check(
        "gpus.nvml",
        GPUS,
        "NVML, the driver's library for managing GPUs, answers",
        _nvml,
        needs=(*_NEEDS, "devices.control"),
    ),
    Check("gpus.lost", GPUS, "No GPU has fallen off the bus", _lost, needs=_ANSWERS),
    Check("gpus.seen", GPUS, "NVML has every GPU of the kernel module", _seen, needs=_ANSWERS),
    Check(
        "gpus.compute-mode",
        GPUS,
        "Programs may use the GPUs, and share them",
        _compute_mode,
        needs=_ANSWERS,
    ),
    Check("gpus.mig", GPUS, "GPUs in MIG mode are divided", _mig, needs=_ANSWERS),
    Check(
        "gpus.persistence",
        GPUS,
        "The driver keeps the GPUs initialised between programs",
        _persistence,
        needs=("driver.module",),
    ),
)
