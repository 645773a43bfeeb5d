# SPDX-License-Identifier: Apache-2.0
"""The device plugin's configuration: it is valid, and it fits the node's GPUs."""

from __future__ import annotations

from gpuhook.device_plugin.config.findings import ERROR
from gpuhook.device_plugin.config.findings import WARNING as DOUBT
from gpuhook.device_plugin.config.sharing_section import MPS
from gpuhook.doctor.checks.kubernetes import kubelet, plugin_files
from gpuhook.errors import GpuhookError
from gpuhook.node_facts import kubelet_facts as facts
from gpuhook.node_facts.check import FAILED, WARNING, Finding, absent, check, ok, unless
from gpuhook.vendors.nvidia.doctor.facts import driver_facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.findings import ConfigFinding
    from gpuhook.doctor.checks.kubernetes.plugin_files import ConfigurationFile
    from gpuhook.node_facts.check import ExaminedNode
    from gpuhook.vendors.nvidia.inventory.inventory import Node as Inventory

VALID = "plugin.config"
_MOST = 3  # findings of a file in one message
_EXCLUSIVE = ("exclusive-process", "exclusive-thread")


@check(VALID, "The device plugin's configuration is valid", needs=(kubelet.RUNNING,))
@unless(facts.no_kubelet)
def _valid(node: ExaminedNode) -> Iterator[Finding]:
    files = plugin_files.configuration_files(node)
    if not files:
        yield absent("this node has no device plugin configuration")
    for file in files:
        errors = [one for one in file.reading.findings if one.severity == ERROR]
        doubts = [one for one in file.reading.findings if one.severity == DOUBT]
        when = "now" if file.is_used else "if the label of the node selects it"
        if errors:
            yield _file_finding(
                FAILED if file.is_used else WARNING,
                file,
                f"the configuration {file.key} cannot be used: {_listed(errors)}",
                f'{when}, NVIDIA\'s device plugin exits with "unable to load config" and the node '
                "offers no GPU; gpuhook's keeps the last valid one, and offers none if it starts",
            )
        elif doubts and file.is_used:
            yield _file_finding(
                WARNING,
                file,
                f"the configuration {file.key} has settings that have no effect: {_listed(doubts)}",
                "NVIDIA's device plugin ignores them silently: GPUs are not offered as intended",
            )
        else:
            state = "in use" if file.is_used else "not in use"
            yield ok(f"{file.key} is valid and {state}", file.path, subject=file.key)


def _file_finding(
    status: str, file: ConfigurationFile, message: str, meaning: str, command: str = ""
) -> Finding:
    command = command or f"gpuhook device-plugin --validate {file.path} ; {file.edit}"
    return Finding(status, message, file.key, meaning, command, (file.path,))


def _listed(found: list[ConfigFinding]) -> str:
    message = "; ".join(
        f"{one.path or 'the file'} (line {one.line}): {one.message}" for one in found[:_MOST]
    )
    return message + (f"; and {len(found) - _MOST} more" if len(found) > _MOST else "")


def _of_each(
    look: Callable[[ConfigurationFile, Configuration, Inventory], Iterator[Finding]],
) -> Callable[[ExaminedNode], Iterator[Finding]]:
    """Return a look at each configuration in use and the node's GPUs."""

    def looked(node: ExaminedNode) -> Iterator[Finding]:
        inventory = driver_facts.inventory_of(node)
        used = plugin_files.in_use(node)
        if inventory is None or not used:
            yield absent("the node's GPUs are unknown" if used else "no configuration is in use")
            return
        for file, configuration in used:
            yield from look(file, configuration, inventory)

    return looked


@check(
    "plugin.sharing",
    "The GPUs are large enough for the configured sharing",
    needs=("driver.bus", "gpus.lost", "gpus.seen", VALID),
)
@unless(facts.no_kubelet)
@_of_each
def _shares(
    file: ConfigurationFile, configuration: Configuration, inventory: Inventory
) -> Iterator[Finding]:
    from gpuhook.device_plugin import node_config_check

    try:
        found = node_config_check.findings(inventory, configuration, file.reading, file.path)
    except GpuhookError as error:
        yield absent(f"the resources of {file.key} are unknown: {error.message}")
        return
    if not found:
        yield ok(f"the GPUs are large enough for {file.key}", file.path, subject=file.key)
    for one in found:
        is_error = one.severity == ERROR
        yield _file_finding(
            FAILED if is_error else WARNING,
            file,
            f"{file.key}: {one.path + ': ' if one.path else ''}{one.message}",
            "the configuration does not fit these GPUs: the plugin offers none of them"
            if is_error
            else "time slicing does not divide the memory of a GPU: the last process gets "
            '"CUDA out of memory" (cudaErrorMemoryAllocation)',
            f"{file.edit}  # {one.hint}" if one.hint else file.edit,
        )


@check(
    "plugin.compute-mode",
    "Shared GPUs allow several processes",
    needs=(VALID, "gpus.compute-mode"),
)
@unless(facts.no_kubelet)
@_of_each
def _compute_mode(
    file: ConfigurationFile, configuration: Configuration, inventory: Inventory
) -> Iterator[Finding]:
    shared = [one for one in configuration.sharing.resources if one.replicas != 1]
    if not shared or configuration.sharing.strategy == MPS:
        yield absent(f"{file.key} shares no GPU by time slicing")
        return
    wrong = [gpu for gpu in inventory.gpus if gpu.compute_mode in _EXCLUSIVE]
    if not wrong:
        yield ok("the shared GPUs allow several processes", subject=file.key)
    for gpu in wrong:
        yield Finding(
            FAILED,
            f"{file.key} shares GPU {gpu.index}, but its compute mode is {gpu.compute_mode}",
            subject=f"GPU {gpu.index}",
            meaning='the second container on it gets "all CUDA-capable devices are busy or '
            'unavailable" (cudaErrorDevicesUnavailable)',
            command=f"sudo nvidia-smi -i {gpu.index} -c DEFAULT",
            looked_at=(file.path,),
        )


@check("plugin.mig", "The MIG strategy fits the GPUs", needs=(VALID,))
@unless(facts.no_kubelet)
@_of_each
def _mig(
    file: ConfigurationFile, configuration: Configuration, inventory: Inventory
) -> Iterator[Finding]:
    strategy = configuration.flags.mig_strategy
    divided = [gpu for gpu in inventory.gpus if gpu.mig_mode == "enabled" and not gpu.lost]
    indices = ", ".join(str(gpu.index) for gpu in divided)
    empty = [str(gpu.index) for gpu in divided if not gpu.instances]
    if not divided:
        yield absent("no GPU is in MIG mode")
    elif strategy == "none":
        yield _file_finding(
            WARNING,
            file,
            f"{file.key} has MIG strategy none, but GPU {indices} is in MIG mode",
            "such a GPU is offered as a whole nvidia.com/gpu, and CUDA in the container uses at "
            'most one instance, or prints "no CUDA-capable device is detected"',
            f"{file.edit}  # flags.migStrategy: mixed, or single",
        )
    elif empty:
        yield _file_finding(
            WARNING,
            file,
            f"GPU {', '.join(empty)} is in MIG mode, but has no instances",
            "it is not offered; with MIG strategy single, no GPU of the node is offered",
            f"sudo nvidia-smi mig -i {','.join(empty)} -cgi 0 -C",
        )
    else:
        yield ok(f"MIG strategy {strategy} offers the instances", subject=file.key)


CHECKS = (_valid, _shares, _compute_mode, _mig)
