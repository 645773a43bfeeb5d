# SPDX-License-Identifier: Apache-2.0
"""The GPU runtimes that are registered with containerd: whether they can start containers."""

from __future__ import annotations

import re

from gpuhook.doctor.check import FAILED, WARNING, Finding, absent, check, for_each, ok
from gpuhook.doctor.checks.engine.engine_checks import binary_check, not_installed, restart_check
from gpuhook.doctor.checks.engine.engine_findings import (
    unregistered_default,
    unseen_specs,
    without_cdi_dirs,
)
from gpuhook.doctor.commands import package_commands, register_commands
from gpuhook.doctor.facts.engine_facts import containerds, kubelet
from gpuhook.doctor.facts.gpu_runtimes import gpu_runtimes
from gpuhook.doctor.facts.program_facts import program
from gpuhook.engines.configure.engine_plan import NAME
from gpuhook.engines.read import containerd_config as reader
from gpuhook.engines.read import toml_document
from gpuhook.engines.read.containerd_config import covers
from gpuhook.node.node_tree import text
from gpuhook.request.annotation_origin import CRIO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.doctor.facts.engine_facts import ContainerdHere
    from gpuhook.engines.read.engine_config import Runtime

_DRIVER = re.compile(r"^cgroupDriver:\s*\"?(\w+)", re.MULTILINE)
_NO_GPU = "no GPU runtime is registered with containerd"
_ANNOTATIONS = "pod_annotations"
# What a pod can do that may set an annotation with this key.
_MEANINGS = {
    "cdi.k8s.io/": "a pod can request any CDI device of this node by an annotation, whatever the"
    " device plugin assigns it: gpuhook-runtime cannot tell it from an annotation of the kubelet",
    CRIO: "a pod can pass as a container of CRI-O: `gpuhook ps` then shows the pod's own"
    " annotations as the name of the pod",
}
_READ = ("containerd.config",)
_RUNTIME = ("containerd.runtime",)


def _with_gpus(node: ExaminedNode) -> list[tuple[ContainerdHere, list[Runtime]]]:
    """Return the containerds that have GPU runtimes, with these runtimes."""
    found = [(one, gpu_runtimes(node.tree, one.read.configuration)) for one in containerds(node)]
    return [(one, runtimes) for one, runtimes in found if runtimes and one.read.has_cri]


def _with_cri(node: ExaminedNode) -> list[ContainerdHere]:
    return [one for one in containerds(node) if one.read.has_cri]


@check("containerd.runtime-type", "GPU runtimes of containerd have a runtime_type", needs=_RUNTIME)
def _runtime_type(node: ExaminedNode) -> Iterable[Finding]:
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
        yield from found or [ok(f"the runtimes in {one.root} have their type", one.root)]
    if not here:
        yield absent(_NO_GPU)


@check("containerd.default", "containerd's default runtime is registered", needs=_RUNTIME)
@for_each(_with_cri, not_installed("containerd"))
def _default(node: ExaminedNode, one: ContainerdHere) -> Iterable[Finding]:
    configuration = one.read.configuration
    chosen = configuration.runtimes.get(configuration.default)
    if chosen is None:
        yield unregistered_default(
            one.root,
            configuration,
            one.distribution.name,
            "containerd's plugin cri does not start, and with it no pod: invalid plugin"
            " config: no corresponding runtime configured in `containerd.runtimes` for"
            f' `containerd` `default_runtime_name = "{configuration.default}"`',
            _register_default(node, one),
        )
        return
    of_all = chosen in gpu_runtimes(node.tree, configuration)
    message = f'the default runtime is "{chosen.name}" ({chosen.path or "runc"})'
    more = ": every pod uses it, with or without a RuntimeClass" if of_all else ""
    yield ok(message + more, *configuration.files, subject=one.distribution.name)


def _register_default(node: ExaminedNode, one: ContainerdHere) -> str:
    configuration = one.read.configuration
    found = gpu_runtimes(node.tree, configuration)
    if not found and register_commands.has_gpuhook(node) and configuration.default == NAME:
        options = register_commands.as_default(NAME)
        return register_commands.with_containerd(node, one, options=options)
    return f"{_edit_default(one)} && {one.distribution.restart}"


def _edit_default(one: ContainerdHere) -> str:
    configuration = one.read.configuration
    if configuration.default == "runc":
        path = next(iter(configuration.runtimes.values())).where.path
        header = f'[plugins."{one.read.key}".containerd.runtimes.runc]'
        return f"printf '\\n{header}\\n  runtime_type = \"{reader.RUNC}\"\\n' >> {path}"
    other = "runc" if "runc" in configuration.runtimes else next(iter(configuration.runtimes))
    edit = f's/default_runtime_name *=.*/default_runtime_name = "{other}"/'
    return f"sed -i '{edit}' {' '.join(configuration.files)}"


@check("containerd.cdi", "containerd supports CDI if its configuration enables it", needs=_READ)
@for_each(_with_cri, not_installed("containerd"))
def _cdi(node: ExaminedNode, one: ContainerdHere) -> Iterable[Finding]:
    enabled = one.read.configuration.cdi_enabled
    if enabled and one.daemon and one.daemon < reader.HAS_CDI:
        number = ".".join(map(str, one.daemon))
        yield Finding(
            WARNING,
            f"{one.root} has enable_cdi, and containerd {number} does not support CDI",
            subject=one.distribution.name,
            meaning="it ignores the option: a device plugin that hands over GPUs as CDI devices"
            " gives containers none; CDI comes with containerd 1.7",
            command=f"{package_commands.install(node.tree, 'containerd')}"
            " # 1.7 or later; or set DEVICE_LIST_STRATEGY=envvar for the device plugin",
            looked_at=(one.root,),
        )
    else:
        state = "on" if one.read.has_cdi else "off"
        reason = "as configured" if enabled is not None else "by default"
        yield ok(f"CDI is {state} in {one.root}, {reason}", one.root)


@check("containerd.cdi-dirs", "containerd finds the CDI specs of GPUs", needs=_READ)
def _cdi_dirs(node: ExaminedNode) -> Iterable[Finding]:
    here = [one for one in _with_cri(node) if one.read.has_cdi]
    for one in here:
        configuration = one.read.configuration
        command = without_cdi_dirs(configuration, one.distribution.restart)
        message = f"containerd reads CDI specs in {', '.join(configuration.cdi_dirs)}"
        yield from unseen_specs(node, "containerd", configuration, command) or [
            ok(message, one.root, *configuration.cdi_dirs)
        ]
    if not here:
        yield absent("CDI is off in containerd")


@check(
    "containerd.cgroup-driver",
    "GPU runtimes have the kubelet's cgroup driver",
    needs=("containerd.runtime", "containerd.runtime-type"),
)
def _cgroup_driver(node: ExaminedNode) -> Iterable[Finding]:
    path = f"{kubelet(node)}/config.yaml"
    match = _DRIVER.search(text(node.tree, path) or "")
    here = _with_gpus(node) if match else []
    for one, runtimes in here:
        yield from (_driver_finding(one, run, match[1], path) for run in runtimes if match)
    if not here:
        yield absent("the kubelet's configuration does not set its cgroup driver", path)


def _driver_finding(one: ContainerdHere, run: Runtime, required: str, path: str) -> Finding:
    options = run.options.get("options")
    is_systemd = isinstance(options, dict) and options.get("systemdcgroup") is True
    driver = "systemd" if is_systemd or one.read.cri.get("systemd_cgroup") is True else "cgroupfs"
    files = (str(run.where), path)
    if driver == required:
        return ok(f'runtime "{run.name}" has the cgroup driver {driver}', *files, subject=run.name)
    meaning = (
        "containers of this runtime are outside the kubelet's slices: the limits of their pods do"
        " not apply, and GPUs are lost at `systemctl daemon-reload`"
    )
    if driver == "systemd":
        meaning = (
            "no pod of this runtime starts: expected cgroupsPath to be of format"
            ' "slice:prefix:name" for systemd cgroups'
        )
    value = "true" if required == "systemd" else "false"
    edit = f"/runtimes.{run.name}.options\\]/a SystemdCgroup = {value}"
    if isinstance(options, dict) and "systemdcgroup" in options:
        edit = f"s/SystemdCgroup *=.*/SystemdCgroup = {value}/I"
    return Finding(
        FAILED if driver == "systemd" else WARNING,
        f'runtime "{run.name}" ({run.where}) has the cgroup driver {driver}, and the kubelet'
        f" {required}",
        subject=run.name,
        meaning=meaning,
        command=f"sed -i '{edit}' {run.where.path} && {one.distribution.restart}",
        looked_at=files,
    )


@check("containerd.shim", "The shim of GPU runtimes is installed", needs=_RUNTIME)
def _shim(node: ExaminedNode) -> Iterable[Finding]:
    here = [one for one in _with_gpus(node) if one[0].distribution.name == "containerd"]
    for one, runtimes in here:
        kinds = {run.type for run in runtimes if run.type.startswith("io.containerd.runc.")}
        for kind in sorted(kinds):
            name = f"containerd-shim-{'-'.join(kind.split('.')[-2:])}"
            path = program(node.tree, name)
            if path:
                yield ok(f"the shim of {kind} is {path}", path, subject=kind)
                continue
            yield Finding(
                FAILED,
                f"{one.root} has runtimes of type {kind}, and {name} is not installed",
                subject=kind,
                meaning=f'no container of this type starts: runtime "{kind}" binary not installed'
                f' "{name}": file does not exist',
                command=package_commands.install(node.tree, "containerd", again=True),
                looked_at=(one.root,),
            )
    if not here:
        yield absent(_NO_GPU)


@check(
    "containerd.pod-annotations", "Pods cannot write annotations that assign GPUs", needs=_RUNTIME
)
@for_each(containerds, not_installed("containerd"))
def _pod_annotations(node: ExaminedNode, one: ContainerdHere) -> Iterable[Finding]:
    found = [
        finding
        for run in gpu_runtimes(node.tree, one.read.configuration)
        for finding in _copied_annotations(one, run)
    ]
    message = f"no GPU runtime of {one.root} copies annotations of pods that gpuhook trusts"
    yield from found or [ok(message, *one.read.configuration.files)]


def _copied_annotations(one: ContainerdHere, run: Runtime) -> Iterator[Finding]:
    patterns = toml_document.texts(run.options.get(_ANNOTATIONS))
    covering = [part for part in patterns if any(covers(part, key) for key in _MEANINGS)]
    if not covering:
        return
    means = [
        meaning for key, meaning in _MEANINGS.items() if any(covers(part, key) for part in covering)
    ]
    edit = f"vi +{run.where.line or 1} {run.where.path} && {one.distribution.restart}"
    quoted = ", ".join(f'"{pattern}"' for pattern in covering)
    yield Finding(
        WARNING,
        f'runtime "{run.name}" ({run.where}) has {_ANNOTATIONS} = [{quoted}]',
        subject=run.name,
        meaning="; ".join(means),
        command=f"{edit} # remove these patterns",
        looked_at=one.read.configuration.files,
    )


CHECKS = (
    _runtime_type,
    _shim,
    binary_check("containerd"),
    _default,
    _cdi,
    _cdi_dirs,
    restart_check("containerd", "containerd.runtime"),
    _cgroup_driver,
    _pod_annotations,
)
