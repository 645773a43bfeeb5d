# SPDX-License-Identifier: Apache-2.0
"""The facts of a node that decide its plan: driver, engines, NVIDIA's stack, Kubernetes."""

from __future__ import annotations

import os
from dataclasses import dataclass

from gpuhook.doctor.check_list import checks
from gpuhook.doctor.checks.cdi import systemd_units
from gpuhook.doctor.examination import examine
from gpuhook.doctor.facts import gpu_engine, toolkit_settings
from gpuhook.engines.configure import engine_status
from gpuhook.engines.configure.configure_engine import Where
from gpuhook.engines.configure.engine_plan import ENGINES
from gpuhook.engines.read import engine_config
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.error_text import worded
from gpuhook.host.hot import state
from gpuhook.node_facts import engine_facts, kubelet_facts, program_facts
from gpuhook.node_facts.check import FAILED
from gpuhook.setup.node_commands import WRITES
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.gpu_summary import NO_DEVICE
from gpuhook.vendors.nvidia.doctor.facts import driver_facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.engines.configure.engine_status import EngineStatus
    from gpuhook.engines.read.engine_config import Version
    from gpuhook.node_facts.check import ExaminedNode
    from gpuhook.setup.node_commands import NodeCommands, SpecState
    from gpuhook.vendors.gpu_summary import GpuSummary, ProofDevice

_NEEDED = ("driver", "devices")  # sections of doctor: without them, no container gets a GPU
_PROGRAMS = ("nvidia-ctk", "nvidia-container-runtime", "nvidia-container-runtime-hook")
_REFRESH = "nvidia-cdi-refresh.path"
# The directories of the GPU Operator's containers on the host.
_OPERATOR = {
    "/run/nvidia/driver": "the driver container of the GPU Operator",
    "/usr/local/nvidia/toolkit": "the toolkit container of the GPU Operator",
}
_IS_OF_ROOT = "GH2014"
_CRI = ("containerd", "crio")


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """An engine of the node.

    `needs_root` is set if this user may not configure it, `is_default` if setup configures it
    without --engine.
    """

    name: str
    version: Version | None
    where: Where
    status: EngineStatus
    needs_root: bool = False
    is_default: bool = True

    @property
    def shown(self) -> str:
        """The name with the version."""
        return " ".join((self.name, *([".".join(map(str, self.version))] if self.version else ())))


@dataclass(frozen=True, slots=True)
class SetupFacts:
    """The facts. `summaries` has the GPUs of each vendor that the node has.

    `nvidia` has a sentence for each part of NVIDIA's stack. `kubernetes` is the directory of the
    kubelet, "" if this is not a node of a cluster. `refresh_units` are the enabled units that write
    a missing spec.
    """

    driver: str
    summaries: tuple[GpuSummary, ...]
    engines: tuple[EngineFacts, ...]
    specs: tuple[SpecState, ...]
    nvidia: tuple[str, ...]
    kubernetes: str
    is_root: bool
    refresh_units: tuple[str, ...] = ()

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs by model."""
        return tuple(model for one in self.summaries for model in one.gpus)

    @property
    def devices(self) -> tuple[ProofDevice, ...]:
        """The devices that containers prove: one of each vendor."""
        return tuple(one.device for one in self.summaries if one.device is not None)

    @property
    def no_device(self) -> str:
        """Why there is no such device."""
        return next((one.no_device for one in self.summaries), NO_DEVICE)


def setup_facts(commands: NodeCommands) -> SetupFacts:
    """Return the facts. Raises GH2111, or a vendor's fault, if the driver does not work."""
    node = commands.node()
    found = driver_facts.inventory_of(node)
    summaries, trouble = _summaries(found)
    is_other_kind = driver_facts.is_wsl(node) or driver_facts.is_tegra(node)
    if not (summaries or is_other_kind or driver_facts.has_gpu(node)) and trouble is not None:
        raise trouble
    if not summaries or is_other_kind or driver_facts.has_gpu(node):
        _require_driver(node)
    cluster = engine_facts.kubelet(node) or kubelet_facts.kubelet(node).running
    engines = tuple(_engines(node, commands, is_of_cluster=bool(cluster)))
    specs = tuple(commands.specs(is_dry=True))
    # The inventory of a Tegra or of WSL has no version.
    mark = "" if found and found.driver.version else driver_facts.driver_mark(node)
    return SetupFacts(
        driver=", ".join(filter(None, (mark, *(one.driver for one in summaries)))),
        summaries=tuple(summaries),
        engines=engines,
        specs=specs,
        nvidia=tuple(_nvidia(node, engines, specs)),
        kubernetes=cluster,
        is_root=os.geteuid() == 0,
        refresh_units=tuple(
            one
            for one in systemd_units.REFRESH_UNITS
            if program_facts.unit(node, one).get("enabled") == "enabled"
        ),
    )


def _summaries(inventory: object | None) -> tuple[list[GpuSummary], GpuhookError | None]:
    """Return the GPUs of each vendor, and why one has no answer."""
    found: list[GpuSummary | None] = []
    trouble: GpuhookError | None = None
    for vendor in vendors():
        try:
            found.append(vendor.summary(state.host_root(), inventory))
        except (GpuhookError, OSError) as error:
            trouble = trouble or worded(error)
    return [one for one in found if one is not None], trouble


def _require_driver(node: ExaminedNode) -> None:
    """Raise GH2111 with doctor's root cause, or if the machine has no GPU."""
    needed = [one.id for one in checks() if one.section in _NEEDED]
    examination = examine(node, checks(), needed)
    for result in examination.of(FAILED)[:1]:
        one = result.finding
        command = one.command or "gpuhook doctor"
        raise fault("GH2111", check=result.check.id, message=one.message, command=command)
    is_other_kind = driver_facts.is_wsl(node) or driver_facts.is_tegra(node)
    if not (is_other_kind or driver_facts.has_gpu(node)):
        message = "this machine has no NVIDIA GPU, and no other GPU that gpuhook supports"
        raise fault("GH2111", check="driver.gpu", message=message, command="gpuhook doctor --all")


def _engines(
    node: ExaminedNode, commands: NodeCommands, *, is_of_cluster: bool
) -> Iterator[EngineFacts]:
    installed = engine_facts.installed_engines(node)  # without the containerd of Docker
    of_kubelet = [one for one in _CRI if one in installed and not gpu_engine.why_no_gpus(node, one)]
    for name in ENGINES:
        if not engine_facts.ENGINES[name](node):
            continue
        where = _place(commands, name)
        yield EngineFacts(
            name,
            program_facts.version(node, {"docker": "dockerd"}.get(name, name)),
            where,
            engine_status.engine_status(commands.host, where),
            needs_root=where.home is None and os.geteuid() != 0,
            is_default=name in (of_kubelet if is_of_cluster and of_kubelet else installed),
        )


def _place(commands: NodeCommands, engine: str) -> Where:
    """Return the place of the files of the user's engine, else of root's."""
    try:
        return commands.place(engine)
    except GpuhookError as error:
        if error.code != _IS_OF_ROOT:
            raise
        return Where(engine)


def _nvidia(
    node: ExaminedNode, engines: tuple[EngineFacts, ...], specs: tuple[SpecState, ...]
) -> Iterator[str]:
    """Yield a sentence for each part of NVIDIA's stack."""
    found = [path for name in _PROGRAMS if (path := program_facts.program(node.tree, name))]
    theirs = [path for path in found if not engine_config.is_front(node.tree, path)]
    if theirs:
        yield f"toolkit: {', '.join(theirs)}"
    for settings in toolkit_settings.files(node):
        yield f"settings of the toolkit: {settings.path}"
    for engine in engines:
        yield from _nvidia_runtimes(node, engine)
    for spec in specs:
        if spec.is_foreign:
            yield f"CDI spec: {spec.path}"
    if program_facts.unit(node, _REFRESH).get("active") == "active" and any(
        one.state == WRITES for one in specs
    ):
        yield f"{_REFRESH} is active, and also writes CDI specs: disable it (systemctl disable)"
    for path, text in _OPERATOR.items():
        if node.tree.names(path):
            yield f"{text}: {path}"


def _nvidia_runtimes(node: ExaminedNode, engine: EngineFacts) -> Iterator[str]:
    for one in engine.status.reading.configuration.gpu_runtimes:
        if not engine_config.is_gpuhook_runtime(node.tree, one.path):
            yield f"runtime {one.name} of {engine.name}: {one.path} ({one.where})"
