# SPDX-License-Identifier: Apache-2.0
"""The GPU runtimes that are registered with containerd: whether containers can be made by them."""

from __future__ import annotations

import re

from gpuhook.doctor import register_commands
from gpuhook.doctor.check import ENGINES, FAILED, WARNING, Check, Finding, absent, ok
from gpuhook.doctor.checks.engine.containerd import NOT_HERE
from gpuhook.doctor.engine_findings import (
    all_is_well,
    gpu_runtimes,
    installing,
    not_read_yet,
    unseen_specs,
    without_cdi_dirs,
    without_program,
)
from gpuhook.doctor.facts.engine_facts import containerds, kubelet, program
from gpuhook.engines.configure.engine_plan import NAME
from gpuhook.engines.read import containerd_config as reader
from gpuhook.node.node_tree import text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.doctor.facts.engine_facts import ContainerdHere
    from gpuhook.engines.read.engine_config import Runtime

_DRIVER = re.compile(r"^cgroupDriver:\s*\"?(\w+)", re.MULTILINE)
_NO_GPU = "no GPU runtime is registered with containerd"


def _with_gpus(node: ExaminedNode) -> list[tuple[ContainerdHere, list[Runtime]]]:
    """Return the containerds that have GPU runtimes, with these."""
    found = [(one, gpu_runtimes(node.tree, one.read.configuration)) for one in containerds(node)]
    return [(one, runtimes) for one, runtimes in found if runtimes and one.read.has_cri]


def runtime_type(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether GPU runtimes have the type of shim that containerd needs to know."""
    here = _with_gpus(node)
    for one, runtimes in here:
        found = [
            Finding(
                FAILED,
                f'{run.where} has runtime "{run.name}" without runtime_type',
                subject=run.name,
                meaning="no pod of this runtime starts: create container failed validation:"
                " container.Runtime.Name must be set: invalid argument",
                command=register_commands.with_containerd(node, one, run),
                looked_at=one.read.configuration.files,
            )
            for run in runtimes
            if not run.type and not run.options.get("runtime_engine")
        ]
        yield from all_is_well(found, f"runtimes of {one.root} have their type", one.root)
    if not here:
        yield absent(_NO_GPU)


def binary(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether the programs of the registered runtimes can be run."""
    here = containerds(node)
    for one in here:
        found = without_program(
            node.tree,
            one.read.configuration.runtimes.values(),
            'no container of this runtime starts: OCI runtime create failed: exec: "{path}":'
            " no such file or directory (or permission denied)",
            f"{installing(node.tree, 'nvidia-container-toolkit', again=True)}"
            f" && {one.distribution.restart}",
            "containerd",
        )
        yield from all_is_well(found, f"the programs of {one.root}'s runtimes are there", one.root)
    if not here:
        yield absent(NOT_HERE)


def default(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether the default runtime is a registered one, and whether it gives GPUs to all."""
    here = [one for one in containerds(node) if one.read.has_cri]
    for one in here:
        configuration = one.read.configuration
        chosen = configuration.runtimes.get(configuration.default)
        files = configuration.files
        if chosen is None:
            yield Finding(
                FAILED,
                f'the default runtime "{configuration.default}" of {one.root} is not registered'
                f" ({', '.join(configuration.runtimes)})",
                subject=one.distribution.name,
                meaning="containerd's plugin cri does not start, and with it no pod: invalid"
                " plugin config: no corresponding runtime configured in `containerd.runtimes` for"
                f' `containerd` `default_runtime_name = "{configuration.default}"`',
                command=_cure_of_default(node, one),
                looked_at=files,
            )
        else:
            of_all = chosen in gpu_runtimes(node.tree, configuration)
            said = f'the default runtime is "{chosen.name}" ({chosen.path or "runc"})'
            more = ": every pod goes through it, with a RuntimeClass or without" if of_all else ""
            yield ok(said + more, *files, subject=one.distribution.name)
    if not here:
        yield absent(NOT_HERE)


def _cure_of_default(node: ExaminedNode, one: ContainerdHere) -> str:
    configuration = one.read.configuration
    found = gpu_runtimes(node.tree, configuration)
    if not found and register_commands.has_gpuhook(node) and configuration.default == NAME:
        return register_commands.with_containerd(
            node, one, options=register_commands.as_default(NAME)
        )
    return f"{_edit_of_default(one)} && {one.distribution.restart}"


def _edit_of_default(one: ContainerdHere) -> str:
    configuration = one.read.configuration
    if configuration.default == "runc":
        path = next(iter(configuration.runtimes.values())).where.path
        header = f'[plugins."{one.read.key}".containerd.runtimes.runc]'
        return f"printf '\\n{header}\\n  runtime_type = \"{reader.RUNC}\"\\n' >> {path}"
    known = "runc" if "runc" in configuration.runtimes else next(iter(configuration.runtimes))
    edit = f's/default_runtime_name *=.*/default_runtime_name = "{known}"/'
    return f"sed -i '{edit}' {' '.join(configuration.files)}"


def cdi(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether CDI, where it is asked for, is something that this containerd does."""
    here = [one for one in containerds(node) if one.read.has_cri]
    for one in here:
        said = one.read.configuration.cdi_enabled
        if said and one.daemon and one.daemon < reader.HAS_CDI:
            number = ".".join(map(str, one.daemon))
            yield Finding(
                WARNING,
                f"{one.root} has enable_cdi, and containerd {number} knows no CDI",
                subject=one.distribution.name,
                meaning="it ignores the option: a device plugin that hands GPUs over as CDI devices"
                " gives containers none; CDI comes with containerd 1.7",
                command=f"{installing(node.tree, 'containerd')}"
                " # 1.7 or later; or have the device plugin use DEVICE_LIST_STRATEGY=envvar",
                looked_at=(one.root,),
            )
        else:
            state = "on" if one.read.has_cdi(one.daemon) else "off"
            reason = "as it says" if said is not None else "by its version"
            yield ok(f"CDI is {state} in {one.root}, {reason}", one.root)
    if not here:
        yield absent(NOT_HERE)


def cdi_dirs(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether containerd finds the CDI specs that are there."""
    here = [one for one in containerds(node) if one.read.has_cdi(one.daemon) and one.read.has_cri]
    for one in here:
        configuration = one.read.configuration
        found = unseen_specs(
            node,
            "containerd",
            configuration,
            without_cdi_dirs(configuration, one.distribution.restart),
        )
        said = f"containerd looks for CDI specs in {', '.join(configuration.cdi_dirs)}"
        yield from all_is_well(found, said, one.root, *configuration.cdi_dirs)
    if not here:
        yield absent("CDI is off in containerd")


def restarted(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether containerd was started after its configuration was written."""
    here = [one for one in containerds(node) if one.started]
    for one in here:
        files = one.read.configuration.files
        of_gpus = {run.where.path for run in gpu_runtimes(node.tree, one.read.configuration)}
        needed = [path for path in files if path in of_gpus or path == one.root]
        others = [path for path in files if path not in needed]
        command, started = one.distribution.restart, one.started or 0.0
        literal = 'no runtime for "nvidia" is configured'
        found = [
            finding
            for paths, fails in ((needed, bool(of_gpus)), (others, False))
            for finding in not_read_yet(
                node.tree, "containerd", paths, started, command, literal=literal, fails=fails
            )
        ]
        yield from all_is_well(found, "containerd was started after its files were written", *files)
    if not here:
        yield absent("no running containerd is known here, so since when cannot be told")


def cgroup_driver(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether GPU runtimes make cgroups the way in which the kubelet names them."""
    wanted = _kubelets_driver(node)
    here = _with_gpus(node) if wanted else []
    for one, runtimes in here:
        place = f"{kubelet(node)}/config.yaml"
        yield from (_driver_of(one, run, wanted, place) for run in runtimes)
    if not here:
        said = "the kubelet's configuration does not say which cgroup driver it has"
        yield absent(said, f"{kubelet(node)}/config.yaml")


def _driver_of(one: ContainerdHere, run: Runtime, wanted: str, place: str) -> Finding:
    options = run.options.get("options")
    is_systemd = isinstance(options, dict) and options.get("systemdcgroup") is True
    driver = "systemd" if is_systemd or one.read.cri.get("systemd_cgroup") is True else "cgroupfs"
    files = (str(run.where), place)
    if driver == wanted:
        return ok(f'runtime "{run.name}" has the cgroup driver {driver}', *files, subject=run.name)
    said = (
        f'runtime "{run.name}" ({run.where}) has the cgroup driver {driver}, and the kubelet'
        f" {wanted}"
    )
    if driver == "systemd":
        meaning = (
            "no pod of this runtime starts: expected cgroupsPath to be of format"
            ' "slice:prefix:name" for systemd cgroups'
        )
    else:
        meaning = (
            "containers of this runtime are outside the kubelet's slices, so that limits of their"
            " pods do not hold, and GPUs are lost at `systemctl daemon-reload`"
        )
    value = "true" if wanted == "systemd" else "false"
    if isinstance(options, dict) and "systemdcgroup" in options:
        edit = f"s/SystemdCgroup *=.*/SystemdCgroup = {value}/I"
    else:
        edit = f"/runtimes.{run.name}.options\\]/a SystemdCgroup = {value}"
    return Finding(
        FAILED if driver == "systemd" else WARNING,
        said,
        subject=run.name,
        meaning=meaning,
        command=f"sed -i '{edit}' {run.where.path} && {one.distribution.restart}",
        looked_at=files,
    )


def _kubelets_driver(node: ExaminedNode) -> str:
    found = _DRIVER.search(text(node.tree, f"{kubelet(node)}/config.yaml") or "")
    return found.group(1) if found else ""


def shim(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether the shim of the GPU runtimes' type is installed."""
    here = [one for one in _with_gpus(node) if one[0].distribution.name == "containerd"]
    for one, runtimes in here:
        kinds = {run.type for run in runtimes if run.type.startswith("io.containerd.runc.")}
        names = {kind: f"containerd-shim-{'-'.join(kind.split('.')[-2:])}" for kind in kinds}
        for kind, name in sorted(names.items()):
            path = program(node.tree, name)
            if path:
                yield ok(f"the shim of {kind} is {path}", path, subject=kind)
            else:
                yield Finding(
                    FAILED,
                    f"{one.root} has runtimes of type {kind}, and {name} is not installed",
                    subject=kind,
                    meaning=f'no container of it starts: runtime "{kind}" binary not installed'
                    f' "{name}": file does not exist',
                    command=installing(node.tree, "containerd", again=True),
                    looked_at=(one.root,),
                )
    if not here:
        yield absent(_NO_GPU)


_RUNTIME = ("containerd.runtime",)
CHECKS = (
    Check(
        "containerd.runtime-type",
        ENGINES,
        "GPU runtimes of containerd have a runtime_type",
        runtime_type,
        _RUNTIME,
    ),
    Check("containerd.shim", ENGINES, "The shim of GPU runtimes is installed", shim, _RUNTIME),
    Check(
        "containerd.binary",
        ENGINES,
        "The programs of containerd's runtimes can be run",
        binary,
        ("containerd.config",),
    ),
    Check(
        "containerd.default",
        ENGINES,
        "containerd's default runtime is registered",
        default,
        _RUNTIME,
    ),
    Check(
        "containerd.cdi",
        ENGINES,
        "containerd does CDI where it is told to",
        cdi,
        ("containerd.config",),
    ),
    Check(
        "containerd.cdi-dirs",
        ENGINES,
        "containerd finds the CDI specs of GPUs",
        cdi_dirs,
        ("containerd.config",),
    ),
    Check(
        "containerd.restarted",
        ENGINES,
        "containerd was started after its configuration was written",
        restarted,
        _RUNTIME,
    ),
    Check(
        "containerd.cgroup-driver",
        ENGINES,
        "GPU runtimes have the kubelet's cgroup driver",
        cgroup_driver,
        ("containerd.runtime", "containerd.runtime-type"),
    ),
)
