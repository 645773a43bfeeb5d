# SPDX-License-Identifier: Apache-2.0
"""containerd's configuration: CRI is on, and a GPU runtime is registered where containerd reads."""

from __future__ import annotations

from gpuhook.doctor.checks.engine.engine_checks import config_check, not_installed
from gpuhook.doctor.commands import register_commands
from gpuhook.doctor.facts.gpu_engine import why_no_gpus
from gpuhook.doctor.facts.gpu_runtimes import gives_gpus, gpu_runtimes, runtime_names
from gpuhook.engines.read import containerd_config as reader
from gpuhook.node_facts.check import FAILED, WARNING, Finding, absent, check, for_each, ok
from gpuhook.node_facts.engine_facts import containerds, installed_engines, kubelet
from gpuhook.node_facts.sources.node_tree import matching, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.read.engine_config import Runtime
    from gpuhook.node_facts.check import ExaminedNode, Findings
    from gpuhook.node_facts.engine_facts import ContainerdHere

NO_RUNTIME = (
    "pods with runtimeClassName: nvidia stay in ContainerCreating: failed to get sandbox runtime:"
    ' no runtime for "nvidia" is configured'
)
_DROP_INS = ("/etc/containerd/conf.d/*.toml", "/etc/containerd/config.d/*.toml")
_READ = ("containerd.config",)
_REGISTERED = (
    "containerd.config",
    "containerd.cri",
    "containerd.plugin-key",
    "containerd.replaced",
    "containerd.drop-in",
    "containerd.wrong-file",
    "containerd.template",
)


@check("containerd.cri", "containerd provides the kubelet's interface", needs=_READ)
@for_each(containerds, not_installed("containerd"))
def _cri(node: ExaminedNode, one: ContainerdHere) -> Finding:
    if one.read.has_cri:
        return ok("the cri plugin is not disabled", one.path, subject=one.name)
    if not kubelet(node) or "crio" in installed_engines(node):
        message = f"{one.path} disables the cri plugin: this containerd serves only Docker"
        return absent(message, one.path)
    return Finding(
        FAILED,
        f"{one.path} disables the cri plugin: {', '.join(one.read.disabled)}",
        subject=one.name,
        meaning="the kubelet does not start: container runtime is not running: unknown"
        " service runtime.v1.RuntimeService",
        command=_enable_cri(node, one),
        looked_at=(one.path,),
    )


def _enable_cri(node: ExaminedNode, one: ContainerdHere) -> str:
    found = gpu_runtimes(node.tree, one.configuration)
    if register_commands.has_gpuhook(node) and all(
        register_commands.is_gpuhooks(node, run) for run in found
    ):
        return register_commands.register(node, one, options=" --enable-cri")
    edit = f"sed -i 's/^disabled_plugins/#disabled_plugins/' {one.path}"
    return f"{edit} && {one.restart}"


@check(
    "containerd.plugin-key",
    "GPU runtimes are registered under the plugin that this version of containerd reads",
    needs=_READ,
)
@for_each(containerds, not_installed("containerd"))
def _plugin_key(node: ExaminedNode, one: ContainerdHere) -> Findings:
    found = [
        _lost(
            one,
            ignored,
            f' under plugin "{ignored.key}", but this containerd reads "{one.read.key}"',
            register_commands.register(node, one, ignored.runtime),
        )
        for ignored in _ignored(node, one, is_replaced=False)
    ]
    message = f'no GPU runtime is under a plugin other than "{one.read.key}"'
    return found or ok(message, one.path, subject=one.name)


def _ignored(node: ExaminedNode, one: ContainerdHere, *, is_replaced: bool) -> list[reader.Ignored]:
    """Return the GPU runtimes that containerd ignores: replaced by a later file, or misplaced."""
    return [
        ignored
        for ignored in one.read.ignored
        if bool(ignored.by) == is_replaced and gives_gpus(node.tree, ignored.runtime)
    ]


def _lost(one: ContainerdHere, ignored: reader.Ignored, why: str, command: str) -> Finding:
    return Finding(
        FAILED,
        f'{ignored.runtime.where} has runtime "{ignored.runtime.name}"{why}',
        subject=ignored.runtime.name,
        meaning=NO_RUNTIME,
        command=command,
        looked_at=one.configuration.files,
    )


@check("containerd.replaced", "No later file replaces a GPU runtime", needs=_READ)
@for_each(containerds, not_installed("containerd"))
def _replaced(node: ExaminedNode, one: ContainerdHere) -> Findings:
    """Up to containerd 2.0, a file replaces the whole table of a plugin."""
    found = [
        _lost(
            one,
            ignored,
            f", and {ignored.by}, which is read later, replaces the whole table of that plugin",
            _restore(node, one, ignored),
        )
        for ignored in _ignored(node, one, is_replaced=True)
    ]
    files = one.configuration.files
    return found or ok("no file replaces a GPU runtime", *files, subject=one.name)


def _restore(node: ExaminedNode, one: ContainerdHere, ignored: reader.Ignored) -> str:
    if register_commands.is_gpuhooks(node, ignored.runtime):
        return register_commands.register(node, one, ignored.runtime)
    return (
        f"{one.configure} --config-source=command"
        f" --drop-in-config={ignored.by.rpartition('/')[0]}/zz-nvidia.toml"
        f" && {one.restart}"
    )


def _usual(node: ExaminedNode) -> list[ContainerdHere]:
    return [one for one in containerds(node) if one.path == reader.PATH]


@check("containerd.drop-in", "Drop-ins with GPU runtimes are imported", needs=_READ)
@for_each(_usual, absent(f"no containerd on this node reads {reader.PATH}", reader.PATH))
def _drop_in(node: ExaminedNode, one: ContainerdHere) -> Findings:
    has_another = bool(gpu_runtimes(node.tree, one.configuration))
    found = [
        Finding(
            WARNING if has_another else FAILED,
            f"{path} has a GPU runtime, and {one.path} imports"
            f" {', '.join(one.read.imports) or 'nothing'}",
            subject=path,
            meaning=NO_RUNTIME,
            command=f"rm {path} # {one.path} registers a GPU runtime itself"
            if has_another
            else _import(node, one, path),
            looked_at=(one.path, path),
        )
        for pattern in _DROP_INS
        for path in matching(node.tree, pattern)
        if path not in one.configuration.files and _runtimes_in(node, path)
    ]
    message = "every drop-in with a GPU runtime is imported"
    return found or ok(message, one.path, *_DROP_INS)


def _runtimes_in(node: ExaminedNode, path: str) -> list[Runtime]:
    read = reader.read(node.tree, path)
    runtimes = [*read.configuration.runtimes.values(), *(one.runtime for one in read.ignored)]
    return [one for one in runtimes if gives_gpus(node.tree, one)]


def _import(node: ExaminedNode, one: ContainerdHere, path: str) -> str:
    runtime = _runtimes_in(node, path)[0]
    if one.read.imports or register_commands.is_gpuhooks(node, runtime):
        return register_commands.register(node, one, runtime)
    edit = f"sed -i '1i imports = [\"{path.rpartition('/')[0]}/*.toml\"]' {one.path}"
    return f"{edit} && {one.restart}"


@check("containerd.wrong-file", "GPU runtimes are in the file that containerd reads", needs=_READ)
def _wrong_file(node: ExaminedNode) -> Findings:
    others = [one for one in containerds(node) if one.path != reader.PATH]
    main = [one for one in _usual(node) if one.started is None]
    if not others or not main:
        return absent(f"{reader.PATH} is the only configuration of containerd here", reader.PATH)
    registered = [run for one in main for run in gpu_runtimes(node.tree, one.configuration)]
    found = [
        Finding(
            FAILED,
            f"{runtime_names(registered)} is registered in {reader.PATH}, but the containerd"
            f" of {one.name} reads {one.path}, which has no GPU runtime",
            subject=one.name,
            meaning=NO_RUNTIME,
            command=register_commands.register(node, one, registered[0]),
            looked_at=(reader.PATH, one.path),
        )
        for one in others
        if registered and not gpu_runtimes(node.tree, one.configuration)
    ]
    return found or ok("no GPU runtime is in a file that is not read", reader.PATH)


def _templates(node: ExaminedNode) -> list[tuple[ContainerdHere, str, str]]:
    """Return each containerd with the path and the text of a template."""
    return [
        (one, path, content)
        for one in containerds(node)
        for path in one.templates
        if (content := text(node.tree, path)) is not None
    ]


@check("containerd.template", "Generated configurations match their template", needs=_READ)
@for_each(_templates, absent("no configuration of containerd here is generated from a template"))
def _template(node: ExaminedNode, found: tuple[ContainerdHere, str, str]) -> Finding:
    one, path, content = found
    if not _has_runtime(content) or gpu_runtimes(node.tree, one.configuration):
        return ok(f"{one.path} has the GPU runtimes of {path}", path, one.path)
    return Finding(
        FAILED,
        f"{path} has a GPU runtime, and {one.path}, which {one.name}"
        " generates from it at startup, has none",
        subject=one.name,
        meaning=NO_RUNTIME,
        command=one.restart,
        looked_at=(path, one.path),
    )


def _has_runtime(template: str) -> bool:
    return any(
        name in line
        for line in template.splitlines()
        if not line.lstrip().startswith("#")
        for name in ("nvidia-container-runtime", "gpuhook-runtime")
    )


@check("containerd.runtime", "containerd can give containers GPUs", needs=_REGISTERED)
@for_each(containerds, not_installed("containerd"))
def _runtime(node: ExaminedNode, one: ContainerdHere) -> Finding:
    found = gpu_runtimes(node.tree, one.configuration)
    files = one.configuration.files
    if not one.read.has_cri:
        return absent(f"{one.path} disables the cri plugin", one.path)
    if found:
        return ok(f"runtime {runtime_names(found)} gives GPUs", *files, subject=one.name)
    if one.read.has_cdi:
        message = f"{one.path} registers no GPU runtime: containers get GPUs only with CDI"
        return ok(message, *files, subject=one.name)
    if why := _why_not(node, one):
        return absent(f"{one.path} registers no GPU runtime: {why}", one.path)
    return Finding(
        FAILED,
        f"{one.path} registers no GPU runtime (only {', '.join(one.configuration.runtimes)}),"
        " and CDI is disabled",
        subject=one.name,
        meaning=NO_RUNTIME,
        command=register_commands.register(node, one),
        looked_at=files or (one.path,),
    )


def _why_not(node: ExaminedNode, one: ContainerdHere) -> str:
    """Return why this containerd need not give GPUs to containers, "" if it has to."""
    if one.started is None and len(containerds(node)) > 1 and one.path == reader.PATH:
        return "another containerd does"
    return why_no_gpus(node, "containerd")


CHECKS = (
    config_check("containerd"),
    _cri,
    _plugin_key,
    _replaced,
    _drop_in,
    _wrong_file,
    _template,
    _runtime,
)
