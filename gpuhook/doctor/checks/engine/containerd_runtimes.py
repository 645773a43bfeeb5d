# SPDX-License-Identifier: Apache-2.0
"""The GPU runtimes that are registered with containerd: whether they can start containers."""

from __future__ import annotations

import re

from gpuhook.doctor.checks.engine.engine_checks import binary_check, not_installed, restart_check
from gpuhook.doctor.checks.engine.engine_findings import cdi_findings, unregistered_default
from gpuhook.doctor.commands import register_commands
from gpuhook.doctor.facts.gpu_runtimes import gpu_runtimes
from gpuhook.engines.configure.engine_plan import NAME
from gpuhook.engines.read import containerd_config as reader
from gpuhook.engines.read import toml_document
from gpuhook.engines.read.containerd_config import covers
from gpuhook.node_facts import package_commands
from gpuhook.node_facts.check import FAILED, WARNING, Finding, absent, check, for_each, ok
from gpuhook.node_facts.engine_facts import containerds, kubelet
from gpuhook.node_facts.program_facts import program
from gpuhook.node_facts.sources.node_tree import text
from gpuhook.request.annotation_origin import CRIO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.engines.read.engine_config import Runtime
    from gpuhook.node_facts.check import ExaminedNode, Findings
    from gpuhook.node_facts.engine_facts import ContainerdHere

_DRIVER = re.compile(r"^cgroupDriver:\s*\"?(\w+)", re.MULTILINE)
_NO_GPU = "no GPU runtime is registered with containerd"
_ANNOTATIONS = "pod_annotations"
# What a pod can do that may set an annotation with this key.
_MEANINGS = {
    "cdi.k8s.io/": "a pod can request any CDI device of this node by an annotation, whatever the"
    " device plugin assigns it: gpuhook-runtime cannot tell it from an annotation of the kubelet",
    CRIO: "a pod can pose as a CRI-O container: `gpuhook ps` then shows the pod's own"
    " annotations as the name of the pod",
}
_READ = ("containerd.config",)
_RUNTIME = ("containerd.runtime",)


def _with_gpus(node: ExaminedNode) -> list[ContainerdHere]:
    return [one for one in _with_cri(node) if gpu_runtimes(node.tree, one.configuration)]


def _with_cri(node: ExaminedNode) -> list[ContainerdHere]:
    return [one for one in containerds(node) if one.read.has_cri]


@check("containerd.runtime-type", "GPU runtimes of containerd have a runtime_type", needs=_RUNTIME)
@for_each(_with_gpus, absent(_NO_GPU))
def _runtime_type(node: ExaminedNode, one: ContainerdHere) -> Findings:
    found = [
        Finding(
            FAILED,
            f'{run.where} has runtime "{run.name}" without runtime_type',
            subject=run.name,
            meaning="no pod with this runtime starts: create container failed validation:"
            " container.Runtime.Name must be set: invalid argument",
            command=register_commands.register(node, one, run),
            looked_at=one.configuration.files,
        )
        for run in gpu_runtimes(node.tree, one.configuration)
        if not run.type and not run.options.get("runtime_engine")
    ]
    return found or ok(f"the runtimes in {one.path} have their type", one.path)


@check("containerd.default", "containerd's default runtime is registered", needs=_RUNTIME)
@for_each(_with_cri, not_installed("containerd"))
def _default(node: ExaminedNode, one: ContainerdHere) -> Finding:
    configuration = one.configuration
    chosen = configuration.runtimes.get(configuration.default)
    if chosen is None:
        return unregistered_default(
            one.path,
            configuration,
            one.name,
            "containerd's cri plugin does not start, and no pods start: invalid plugin"
            " config: no corresponding runtime configured in `containerd.runtimes` for"
            f' `containerd` `default_runtime_name = "{configuration.default}"`',
            _register_default(node, one),
        )
    of_all = chosen in gpu_runtimes(node.tree, configuration)
    message = f'the default runtime is "{chosen.name}" ({chosen.path or "runc"})'
    more = ": every pod uses it, with or without a RuntimeClass" if of_all else ""
    return ok(message + more, *configuration.files, subject=one.name)


def _register_default(node: ExaminedNode, one: ContainerdHere) -> str:
    configuration = one.configuration
    found = gpu_runtimes(node.tree, configuration)
    if not found and register_commands.has_gpuhook(node) and configuration.default == NAME:
        options = register_commands.as_default(NAME)
        return register_commands.register(node, one, options=options)
    return f"{_edit_default(one)} && {one.restart}"


def _edit_default(one: ContainerdHere) -> str:
    configuration = one.configuration
    if configuration.default == "runc":
        path = next(iter(configuration.runtimes.values())).where.path
        header = f'[plugins."{one.read.key}".containerd.runtimes.runc]'
        return f"printf '\\n{header}\\n  runtime_type = \"{reader.RUNC}\"\\n' >> {path}"
    other = "runc" if "runc" in configuration.runtimes else next(iter(configuration.runtimes))
    edit = f's/default_runtime_name *=.*/default_runtime_name = "{other}"/'
    return f"sed -i '{edit}' {' '.join(configuration.files)}"


@check("containerd.cdi", "containerd supports CDI if its configuration enables it", needs=_READ)
@for_each(_with_cri, not_installed("containerd"))
def _cdi(node: ExaminedNode, one: ContainerdHere) -> Finding:
    enabled = one.configuration.cdi_enabled
    if not (enabled and one.daemon and one.daemon < reader.HAS_CDI):
        state = "on" if one.read.has_cdi else "off"
        reason = "as configured" if enabled is not None else "by default"
        return ok(f"CDI is {state} in {one.path}, {reason}", one.path)
    number = ".".join(map(str, one.daemon))
    return Finding(
        WARNING,
        f"{one.path} sets enable_cdi, but containerd {number} does not support CDI",
        subject=one.name,
        meaning="it ignores the option: containers get no GPUs from a device plugin that"
        " passes them as CDI devices; containerd 1.7 and newer support CDI",
        command=f"{package_commands.install(node.tree, 'containerd')}"
        " # 1.7 or later; or set DEVICE_LIST_STRATEGY=envvar for the device plugin",
        looked_at=(one.path,),
    )


def _with_cdi(node: ExaminedNode) -> list[ContainerdHere]:
    return [one for one in _with_cri(node) if one.read.has_cdi]


@check("containerd.cdi-dirs", "containerd finds the CDI specs of GPUs", needs=_READ)
@for_each(_with_cdi, absent("CDI is off in containerd"))
def _cdi_dirs(node: ExaminedNode, one: ContainerdHere) -> Findings:
    return cdi_findings(node, "containerd", one, one.path)


@check(
    "containerd.cgroup-driver",
    "GPU runtimes use the kubelet's cgroup driver",
    needs=("containerd.runtime", "containerd.runtime-type"),
)
def _cgroup_driver(node: ExaminedNode) -> Findings:
    path = f"{kubelet(node)}/config.yaml"
    match = _DRIVER.search(text(node.tree, path) or "")
    found = [
        _driver_finding(one, run, match[1], path)
        for one in _with_gpus(node)
        for run in gpu_runtimes(node.tree, one.configuration)
        if match
    ]
    return found or absent("the kubelet's configuration does not set its cgroup driver", path)


def _driver_finding(one: ContainerdHere, run: Runtime, required: str, path: str) -> Finding:
    options = run.options.get("options")
    is_systemd = isinstance(options, dict) and options.get("systemdcgroup") is True
    driver = "systemd" if is_systemd or one.read.cri.get("systemd_cgroup") is True else "cgroupfs"
    files = (str(run.where), path)
    if driver == required:
        return ok(f'runtime "{run.name}" uses the cgroup driver {driver}', *files, subject=run.name)
    meaning = (
        "containers of this runtime are outside the kubelet's slices: the limits of their pods do"
        " not apply, and GPUs are lost at `systemctl daemon-reload`"
    )
    if driver == "systemd":
        meaning = (
            "no pod with this runtime starts: expected cgroupsPath to be of format"
            ' "slice:prefix:name" for systemd cgroups'
        )
    value = "true" if required == "systemd" else "false"
    edit = f"/runtimes.{run.name}.options\\]/a SystemdCgroup = {value}"
    if isinstance(options, dict) and "systemdcgroup" in options:
        edit = f"s/SystemdCgroup *=.*/SystemdCgroup = {value}/I"
    return Finding(
        FAILED if driver == "systemd" else WARNING,
        f'runtime "{run.name}" ({run.where}) uses the cgroup driver {driver}, and the kubelet'
        f" {required}",
        subject=run.name,
        meaning=meaning,
        command=f"sed -i '{edit}' {run.where.path} && {one.restart}",
        looked_at=files,
    )


def _packaged(node: ExaminedNode) -> list[ContainerdHere]:
    return [one for one in _with_gpus(node) if one.name == "containerd"]


@check("containerd.shim", "The shim of GPU runtimes is installed", needs=_RUNTIME)
@for_each(_packaged, absent(_NO_GPU))
def _shim(node: ExaminedNode, one: ContainerdHere) -> Findings:
    kinds = {run.type for run in gpu_runtimes(node.tree, one.configuration)}
    found = [
        _shim_finding(node, one, kind)
        for kind in sorted(kinds)
        if kind.startswith("io.containerd.runc.")
    ]
    return found or absent(f"the GPU runtimes in {one.path} have no shim for runc", one.path)


def _shim_finding(node: ExaminedNode, one: ContainerdHere, kind: str) -> Finding:
    name = f"containerd-shim-{'-'.join(kind.split('.')[-2:])}"
    if path := program(node.tree, name):
        return ok(f"the shim of {kind} is {path}", path, subject=kind)
    return Finding(
        FAILED,
        f"{one.path} has runtimes of type {kind}, but {name} is not installed",
        subject=kind,
        meaning=f'no container with this runtime type starts: runtime "{kind}" binary not installed'
        f' "{name}": file does not exist',
        command=package_commands.install(node.tree, "containerd", again=True),
        looked_at=(one.path,),
    )


@check(
    "containerd.pod-annotations", "Pods cannot write annotations that assign GPUs", needs=_RUNTIME
)
@for_each(containerds, not_installed("containerd"))
def _pod_annotations(node: ExaminedNode, one: ContainerdHere) -> Findings:
    found = [
        finding
        for run in gpu_runtimes(node.tree, one.configuration)
        for finding in _copied_annotations(one, run)
    ]
    message = f"no GPU runtime of {one.path} copies annotations of pods that gpuhook trusts"
    return found or ok(message, *one.configuration.files)


def _copied_annotations(one: ContainerdHere, run: Runtime) -> Iterator[Finding]:
    patterns = toml_document.texts(run.options.get(_ANNOTATIONS))
    covering = [part for part in patterns if any(covers(part, key) for key in _MEANINGS)]
    if not covering:
        return
    means = [
        meaning for key, meaning in _MEANINGS.items() if any(covers(part, key) for part in covering)
    ]
    edit = f"vi +{run.where.line or 1} {run.where.path} && {one.restart}"
    quoted = ", ".join(f'"{pattern}"' for pattern in covering)
    yield Finding(
        WARNING,
        f'runtime "{run.name}" ({run.where}) has {_ANNOTATIONS} = [{quoted}]',
        subject=run.name,
        meaning="; ".join(means),
        command=f"{edit} # remove these patterns",
        looked_at=one.configuration.files,
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
