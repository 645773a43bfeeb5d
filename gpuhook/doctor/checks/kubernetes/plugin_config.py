# SPDX-License-Identifier: Apache-2.0
"""The device plugin's configuration: that it can be used, and that the node's GPUs bear it."""

from __future__ import annotations

from gpuhook.device_plugin.config.configuration import MPS
from gpuhook.device_plugin.config.findings import ERROR
from gpuhook.device_plugin.config.findings import WARNING as DOUBT
from gpuhook.doctor.check import FAILED, KUBERNETES, WARNING, Check, Finding, absent, ok
from gpuhook.doctor.checks.kubernetes import kubelet, plugin_files
from gpuhook.doctor.checks.kubernetes import kubelet_facts as facts
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.findings import ConfigFinding as Told
    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.doctor.checks.kubernetes.plugin_files import ConfigurationFile
    from gpuhook.vendors.nvidia.inventory.inventory import Node as Inventory

VALID = "plugin.config"
_MOST = 3  # findings of a file that are told
_EXCLUSIVE = ("exclusive-process", "exclusive-thread")


def _valid(node: ExaminedNode) -> Iterator[Finding]:
    files = node.once(plugin_files.configuration_files)
    if not files:
        yield absent("no device plugin's configuration is to be seen on this node")
    for file in files:
        errors = [one for one in file.reading.findings if one.severity == ERROR]
        doubts = [one for one in file.reading.findings if one.severity == DOUBT]
        if errors:
            yield _unusable(file, errors)
        elif doubts and file.counts:
            yield _doubtful(file, doubts)
        else:
            said = "counts" if file.counts else "can be chosen"
            yield ok(f"{file.key} is valid, and {said}", file.path, subject=file.key)


def _unusable(file: ConfigurationFile, errors: list[Told]) -> Finding:
    when = "counts" if file.counts else "is chosen by the label of a node"
    return Finding(
        FAILED if file.counts else WARNING,
        f"the configuration {file.key} cannot be used: {_told(errors)}",
        subject=file.key,
        meaning=f'where it {when}, NVIDIA\'s device plugin ends with "unable to load config" and '
        "the node has no GPU to offer; gpuhook's keeps the last good one, and has none at a start",
        command=f"gpuhook device-plugin --validate {file.path} ; {file.edit}",
        looked_at=(file.path,),
    )


def _doubtful(file: ConfigurationFile, doubts: list[Told]) -> Finding:
    return Finding(
        WARNING,
        f"the configuration {file.key} says what has no effect or surprises: {_told(doubts)}",
        subject=file.key,
        meaning="NVIDIA's device plugin ignores it without a word: GPUs are offered otherwise "
        "than was meant",
        command=f"gpuhook device-plugin --validate {file.path} ; {file.edit}",
        looked_at=(file.path,),
    )


def _told(found: list[Told]) -> str:
    said = "; ".join(
        f"{one.path or 'the file'} (line {one.line}): {one.message}" for one in found[:_MOST]
    )
    return said + (f"; and {len(found) - _MOST} more" if len(found) > _MOST else "")


def _of_each(
    look: Callable[[ConfigurationFile, Configuration, Inventory], Iterator[Finding]],
) -> Callable[[ExaminedNode], Iterator[Finding]]:
    """Return a look at each configuration that counts, on the node's GPUs."""

    def looked(node: ExaminedNode) -> Iterator[Finding]:
        inventory = node.once(facts.inventory)
        used = node.once(plugin_files.in_use)
        if inventory is None or not used:
            what = "the node's GPUs are not known" if used else "no configuration is to be seen"
            yield absent(what)
            return
        for file, configuration in used:
            yield from look(file, configuration, inventory)

    return looked


def _shares(
    file: ConfigurationFile, configuration: Configuration, inventory: Inventory
) -> Iterator[Finding]:
    from gpuhook.device_plugin import node_config_check

    try:
        told = node_config_check.findings(inventory, configuration, file.reading, file.path)
    except GpuhookError as error:
        yield absent(f"what is offered by {file.key} is not known: {error.message}")
        return
    if not told:
        yield ok(f"the GPUs bear what {file.key} shares", file.path, subject=file.key)
    for one in told:
        is_error = one.severity == ERROR
        yield Finding(
            FAILED if is_error else WARNING,
            f"{file.key}: {one.path + ': ' if one.path else ''}{one.message}",
            subject=file.key,
            meaning="the configuration is not for these GPUs: the plugin offers none of them"
            if is_error
            else "nothing divides the memory of a GPU between time slices: who comes last gets "
            '"CUDA out of memory" (cudaErrorMemoryAllocation)',
            command=(one.hint and f"{file.edit}  # {one.hint}") or file.edit,
            looked_at=(file.path,),
        )


def _compute_mode(
    file: ConfigurationFile, configuration: Configuration, inventory: Inventory
) -> Iterator[Finding]:
    shared = [one for one in configuration.sharing.resources if one.replicas != 1]
    if not shared or configuration.sharing.strategy == MPS:
        yield absent(f"{file.key} shares no GPU by time slices")
        return
    wrong = [gpu for gpu in inventory.gpus if gpu.compute_mode in _EXCLUSIVE]
    if not wrong:
        yield ok("the GPUs that are shared let several processes in", subject=file.key)
    for gpu in wrong:
        yield Finding(
            FAILED,
            f"{file.key} shares GPU {gpu.index}, whose compute mode is {gpu.compute_mode}",
            subject=f"GPU {gpu.index}",
            meaning='the second container on it gets "all CUDA-capable devices are busy or '
            'unavailable" (cudaErrorDevicesUnavailable)',
            command=f"sudo nvidia-smi -i {gpu.index} -c DEFAULT",
            looked_at=(file.path,),
        )


def _mig(
    file: ConfigurationFile, configuration: Configuration, inventory: Inventory
) -> Iterator[Finding]:
    strategy = configuration.flags.mig_strategy
    divided = [gpu for gpu in inventory.gpus if gpu.mig_mode == "enabled" and not gpu.lost]
    if not divided:
        yield absent("no GPU is in MIG mode")
    elif strategy != "none":
        empty = [str(gpu.index) for gpu in divided if not gpu.instances]
        if empty:
            yield _without_instances(file, empty)
        else:
            yield ok(f"MIG strategy {strategy} offers the instances", subject=file.key)
    else:
        indices = ", ".join(str(gpu.index) for gpu in divided)
        yield Finding(
            WARNING,
            f"{file.key} has MIG strategy none, and GPU {indices} is in MIG mode",
            subject=file.key,
            meaning="such a GPU is offered as a whole nvidia.com/gpu, and CUDA in the container "
            'uses one instance at most, or says "no CUDA-capable device is detected"',
            command=f"{file.edit}  # flags.migStrategy: mixed, or single",
            looked_at=(file.path,),
        )


def _without_instances(file: ConfigurationFile, empty: list[str]) -> Finding:
    return Finding(
        WARNING,
        f"GPU {', '.join(empty)} is in MIG mode and has no instance",
        subject=file.key,
        meaning="it is offered to nobody; with MIG strategy single no GPU of the node is",
        command=f"sudo nvidia-smi mig -i {','.join(empty)} -cgi 0 -C",
        looked_at=(file.path,),
    )


CHECKS = (
    Check(
        VALID,
        KUBERNETES,
        "The device plugin's configuration is valid",
        facts.with_kubelet(_valid),
        needs=(kubelet.RUNNING,),
    ),
    Check(
        "plugin.sharing",
        KUBERNETES,
        "The GPUs bear what the configuration shares",
        facts.with_kubelet(_of_each(_shares)),
        needs=("driver.bus", "gpus.lost", "gpus.seen", VALID),
    ),
    Check(
        "plugin.compute-mode",
        KUBERNETES,
        "GPUs that are shared let several processes in",
        facts.with_kubelet(_of_each(_compute_mode)),
        needs=(VALID, "gpus.compute-mode"),
    ),
    Check(
        "plugin.mig",
        KUBERNETES,
        "The MIG strategy fits the GPUs",
        facts.with_kubelet(_of_each(_mig)),
        needs=(VALID,),
    ),
)
