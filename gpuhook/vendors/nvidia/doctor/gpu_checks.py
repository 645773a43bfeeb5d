# SPDX-License-Identifier: Apache-2.0
"""The GPUs: the driver answers for each, and programs can use it."""

from __future__ import annotations

from gpuhook.node_facts import program_facts
from gpuhook.node_facts.check import FAILED, WARNING, Finding, absent, check, for_each, ok
from gpuhook.node_facts.sources import node_readings, node_tree
from gpuhook.vendors.nvidia.doctor.facts import driver_facts as facts
from gpuhook.vendors.nvidia.doctor.facts import driver_user_space, gpu_loss
from gpuhook.vendors.nvidia.driver.driver_locations import GKE
from gpuhook.vendors.nvidia.spec import device_selection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.node_facts.check import ExaminedNode, Findings
    from gpuhook.vendors.nvidia.devices.driver_nodes import ProcGpu
    from gpuhook.vendors.nvidia.inventory import inventory
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu

_NO_PERMISSION = "GH1205"
_UNIT = "nvidia-persistenced.service"
# Programs that keep NVML open while they run.
_HOLDERS = ("nvidia-device-plugin", "nv-hostengine", "nvidia-cuda-mps-control")
_UNASKED = "the files of a node do not contain NVML's answers"
# GPUs of servers, where jobs start often: initialising a GPU for each takes seconds.
_DATA_CENTRE = ("Tesla", "A10", "A16", "A2", "A30", "A40", "A100", "A800", "B100", "B200", "B300",
                "GB200", "GB300", "GH200", "H100", "H200", "H800", "H20", "L2", "L4", "L20", "L40",
                "L40S", "T4", "V100", "P100", "P40", "P4")  # fmt: skip


_NEEDS = ("driver.module", "driver.version", "driver.libraries")
_ANSWERS = ("gpus.nvml",)


@check(
    "gpus.nvml",
    "NVML, the driver's management library, responds",
    needs=(*_NEEDS, "devices.control"),
)
def _nvml(node: ExaminedNode) -> Findings:
    reading = node.readings.of(node_readings.INVENTORY)
    if reading.document is not None:
        found = facts.inventory_of(node)
        count = len(found.gpus) if found else 0
        return ok(f"NVML answers for {facts.gpu_count(count)}", "libnvidia-ml.so.1")
    if reading == node_readings.NOT_RUNNING or not facts.has_gpu(node):
        return absent(_UNASKED if facts.has_gpu(node) else "this machine has no NVIDIA GPU")
    if reading.code == _NO_PERMISSION:
        return absent(f"{reading.trouble}: {reading.hint}")
    return Finding(
        FAILED,
        f"NVML does not answer: {reading.trouble}",
        meaning='nvidia-smi prints "Failed to initialize NVML" or "Unable to determine the '
        'device handle", and GPU containers do not start: "nvidia-container-cli: '
        'initialization error: nvml error"',
        command="nvidia-smi; dmesg | grep -iE 'nvrm|xid' | tail -n 20",
        looked_at=("libnvidia-ml.so.1",),
    )


def _answers(node: ExaminedNode) -> list[inventory.Node]:
    found = facts.inventory_of(node)
    return [] if found is None else [found]


@check("gpus.lost", "No GPU has fallen off the bus", needs=_ANSWERS)
@for_each(_answers, absent(_UNASKED))
def _lost(node: ExaminedNode, found: inventory.Node) -> Finding:
    lost = _lost_gpus(node, found)
    if not lost:
        return ok("no GPU is lost", "libnvidia-ml.so.1")
    numbers = ", ".join(str(gpu.index) for gpu in lost)
    verb = "GPUs {} are" if len(lost) > 1 else "GPU {} is"
    reasons = " and ".join(dict.fromkeys(str(gpu.lost) for gpu in lost))
    named = [_described(node, gpu) for gpu in lost if gpu.pci_bus_id]
    if any(gpu.pci_bus_id is None for gpu in lost):
        named += [_described(node, gpu) for gpu in _unseen(node, found)]
    which = f": {', '.join(map(str, named))}" if named else ""
    buses = ",".join(gpu.bus_id for gpu in named) or numbers.replace(" ", "")
    return Finding(
        FAILED,
        f"{verb.format(numbers)} lost ({reasons}){which}",
        subject=",".join(gpu.uuid or gpu.bus_id for gpu in named) or numbers,
        meaning='programs that use it fail with XID 79, "GPU has fallen off the bus", '
        'nvidia-smi prints "Unable to determine the device handle for GPU", and containers '
        "with it find no device",
        command=f"nvidia-smi --gpu-reset -i {buses}  # stop every container that uses it "
        "first; if this fails, reboot; if it is lost again, check the card, its power supply "
        "and its slot",
        looked_at=("libnvidia-ml.so.1",),
    )


def _lost_gpus(node: ExaminedNode, found: inventory.Node) -> list[Gpu]:
    """Return the lost GPUs that neither driver.gpu nor driver.bus reports."""
    lost = [gpu for gpu in found.gpus if gpu.lost is not None]
    known = [gpu for gpu in lost if not gpu_loss.is_missing(node, gpu.uuid, gpu.pci_bus_id)]
    nameless = [gpu for gpu in known if gpu.pci_bus_id is None]
    if nameless and len(gpu_loss.missing_gpus(node)) >= len(nameless) and not _unseen(node, found):
        return [gpu for gpu in known if gpu.pci_bus_id is not None]
    return known


def _described(node: ExaminedNode, gpu: Gpu | ProcGpu) -> gpu_loss.NamedGpu:
    return gpu_loss.gpu_with_users(node, gpu.uuid, gpu.minor, gpu.pci_bus_id)


@check("gpus.seen", "NVML lists every GPU of the kernel module", needs=_ANSWERS)
@for_each(_answers, absent(_UNASKED))
def _seen(node: ExaminedNode, found: inventory.Node) -> Finding:
    unseen = _unseen(node, found)
    nameless = [gpu for gpu in found.gpus if gpu.lost is not None and gpu.pci_bus_id is None]
    if len(unseen) <= len(nameless):  # NVML has no name for a lost GPU; gpus.lost reports it
        return ok("NVML lists every GPU of the kernel module", facts.GPUS)
    named = ", ".join(str(_described(node, gpu)) for gpu in unseen)
    return Finding(
        FAILED,
        f"the kernel module has {facts.gpu_count(len(unseen))} that NVML does not list: {named}",
        subject=",".join(gpu.pci_bus_id for gpu in unseen),
        meaning="no container gets a GPU that failed to start (dmesg: RmInitAdapter failed)",
        command="dmesg | grep -iE 'nvrm|xid' | tail -n 20; systemctl reboot",
        looked_at=(facts.GPUS,),
    )


def _unseen(node: ExaminedNode, found: inventory.Node) -> list[ProcGpu]:
    """Return the GPUs of the kernel module that are on the bus and that NVML does not name."""
    known = {device_selection.bus_id(gpu.pci_bus_id or "") for gpu in found.gpus}
    return [
        gpu
        for gpu in facts.gpus(node)
        if device_selection.bus_id(gpu.pci_bus_id) not in known
        and not _is_excluded(node, gpu)
        and not gpu_loss.is_missing(node, gpu.uuid, gpu.pci_bus_id)
    ]


def _is_excluded(node: ExaminedNode, gpu: ProcGpu) -> bool:
    """Return whether the driver is configured to ignore the GPU (NVreg_ExcludedGpus)."""
    path = f"{facts.GPUS}/{device_selection.bus_id(gpu.pci_bus_id)}/information"
    lines = (node_tree.text(node.tree, path) or "").splitlines()
    return any(line.split() == ["GPU", "Excluded:", "Yes"] for line in lines)


@check("gpus.compute-mode", "Programs can use the GPUs and share them", needs=_ANSWERS)
@for_each(_answers, absent(_UNASKED))
def _compute_mode(_node: ExaminedNode, answer: inventory.Node) -> Findings:
    found = [finding for gpu in _working(answer) for finding in _mode(gpu)]
    return found or [ok("the compute mode of every GPU allows several programs")]


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


@check("gpus.mig", "GPUs in MIG mode are divided", needs=_ANSWERS)
@for_each(_answers, absent(_UNASKED))
def _mig(_node: ExaminedNode, answer: inventory.Node) -> Findings:
    divided = [gpu for gpu in _working(answer) if device_selection.is_divided(gpu)]
    if not divided:
        return absent("no GPU is in MIG mode")
    empty = [gpu for gpu in divided if not gpu.instances]
    if not empty:
        return ok("every GPU in MIG mode has MIG devices")
    return [
        Finding(
            WARNING,
            f"GPU {gpu.index} is in MIG mode, but has no MIG devices",
            subject=gpu.uuid or str(gpu.index),
            meaning='this GPU cannot be used: CUDA prints "no CUDA-capable device is '
            'detected", and the node offers 0 of its resource',
            command=f"nvidia-smi mig -i {gpu.index} -cgi 0 -C  # nvidia-smi mig -lgip lists the "
            f"profiles; or, to leave MIG mode: nvidia-smi -i {gpu.index} -mig 0",
            looked_at=("libnvidia-ml.so.1",),
        )
        for gpu in empty
    ]


def _working(answer: inventory.Node) -> list[Gpu]:
    return [gpu for gpu in answer.gpus if gpu.lost is None]


def _needs_none(node: ExaminedNode, names: list[str]) -> str:
    """Return why the node does not need the daemon, "" if it does."""
    if not any(set(name.replace("-", " ").split()) & set(_DATA_CENTRE) for name in names):
        return "nvidia-persistenced is not running; a workstation does not need it"
    if holder := next((one for one in _HOLDERS if program_facts.runs(node, "", one)), ""):
        return f"{holder} has the GPUs open, which keeps them initialized"
    is_gke = driver_user_space.driver_user_space(node).root == GKE
    return f"the driver of {GKE} does not include nvidia-persistenced" if is_gke else ""


@check(
    "gpus.persistence",
    "The driver keeps the GPUs initialized between programs",
    needs=("driver.module",),
)
def _persistence(node: ExaminedNode) -> Findings:
    names = [gpu.model or "" for gpu in facts.gpus(node)]
    if not names:
        return absent("the kernel module has no GPU")
    runs = program_facts.runs(node, _UNIT, "nvidia-persistenced")
    if runs is None:
        return absent("the files of a node do not show whether nvidia-persistenced is running")
    if runs:
        return ok("nvidia-persistenced keeps the GPUs initialized", "nvidia-persistenced.service")
    gpus = [gpu for answer in _answers(node) for gpu in _working(answer)]
    if gpus and all(gpu.persistence_mode == "enabled" for gpu in gpus):
        return ok("persistence mode keeps the GPUs initialized until the next boot")
    if why := _needs_none(node, names):
        return absent(why)
    has_unit = program_facts.unit(node, _UNIT).get("load") == "loaded"
    return Finding(
        WARNING,
        f"nvidia-persistenced is not running, on a node with {names[0]} (GPUs: {len(names)})",
        meaning="the driver reinitializes a GPU for each first program: containers and "
        "nvidia-smi start seconds later, and settings such as clocks are lost",
        command=f"systemctl enable --now {_UNIT}"
        if has_unit
        else "nvidia-smi -pm 1  # until the next boot; nvidia-persistenced makes it permanent",
        looked_at=(_UNIT,),
    )


CHECKS = (_nvml, _lost, _seen, _compute_mode, _mig, _persistence)
