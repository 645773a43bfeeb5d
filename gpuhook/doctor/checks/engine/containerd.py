# SPDX-License-Identifier: Apache-2.0
"""containerd's configuration: CRI is on, and a GPU runtime is registered where containerd reads."""

from __future__ import annotations

from gpuhook.doctor.check import FAILED, WARNING, Finding, absent, check, for_each, ok
from gpuhook.doctor.checks.engine.engine_checks import config_check, not_installed
from gpuhook.doctor.commands import register_commands
from gpuhook.doctor.facts.engine_facts import containerds, installed_engines, kubelet, why_no_gpus
from gpuhook.doctor.facts.gpu_runtimes import gives_gpus, gpu_runtimes, runtime_names
from gpuhook.engines.read import containerd_config as reader
from gpuhook.node.node_tree import matching, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.doctor.facts.engine_facts import ContainerdHere
    from gpuhook.engines.read.engine_config import Runtime

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


@check("containerd.cri", "containerd has its interface for the kubelet", needs=_READ)
@for_each(containerds, not_installed("containerd"))
def _cri(node: ExaminedNode, one: ContainerdHere) -> Iterable[Finding]:
    if one.read.has_cri:
        yield ok("the plugin cri is not disabled", one.root, subject=one.distribution.name)
    elif not kubelet(node) or "crio" in installed_engines(node):
        message = f"{one.root} disables the plugin cri: this containerd serves only Docker"
        yield absent(message, one.root)
    else:
        yield Finding(
            FAILED,
            f"{one.root} disables the plugin cri: {', '.join(one.read.disabled)}",
            subject=one.distribution.name,
            meaning="the kubelet does not start: container runtime is not running: unknown"
            " service runtime.v1.RuntimeService",
            command=_enable_cri(node, one),
            looked_at=(one.root,),
        )


def _enable_cri(node: ExaminedNode, one: ContainerdHere) -> str:
    found = gpu_runtimes(node.tree, one.read.configuration)
    if register_commands.has_gpuhook(node) and all(
        register_commands.is_gpuhooks(node, run) for run in found
    ):
        return register_commands.with_containerd(node, one, options=" --enable-cri")
    edit = f"sed -i 's/^disabled_plugins/#disabled_plugins/' {one.root}"
    return f"{edit} && {one.distribution.restart}"


@check(
    "containerd.plugin-key",
    "GPU runtimes are registered under the plugin that this version of containerd reads",
    needs=_READ,
)
@for_each(containerds, not_installed("containerd"))
def _plugin_key(node: ExaminedNode, one: ContainerdHere) -> Iterable[Finding]:
    wrong = _ignored(node, one, is_replaced=False)
    for ignored in wrong:
        yield Finding(
            FAILED,
            f'{ignored.runtime.where} has runtime "{ignored.runtime.name}" under plugin'
            f' "{ignored.key}", and this containerd reads "{one.read.key}"',
            subject=ignored.runtime.name,
            meaning=NO_RUNTIME,
            command=register_commands.with_containerd(node, one, ignored.runtime),
            looked_at=one.read.configuration.files,
        )
    if not wrong:
        message = f'no GPU runtime is under another plugin than "{one.read.key}"'
        yield ok(message, one.root, subject=one.distribution.name)


def _ignored(node: ExaminedNode, one: ContainerdHere, *, is_replaced: bool) -> list[reader.Ignored]:
    """Return the GPU runtimes that containerd ignores: replaced by a later file, or misplaced."""
    return [
        ignored
        for ignored in one.read.ignored
        if bool(ignored.by) == is_replaced and gives_gpus(node.tree, ignored.runtime)
    ]


@check("containerd.replaced", "No later file replaces a GPU runtime", needs=_READ)
@for_each(containerds, not_installed("containerd"))
def _replaced(node: ExaminedNode, one: ContainerdHere) -> Iterable[Finding]:
    """Up to containerd 2.0, a file replaces the whole table of a plugin."""
    lost = _ignored(node, one, is_replaced=True)
    for ignored in lost:
        yield Finding(
            FAILED,
            f'{ignored.runtime.where} has runtime "{ignored.runtime.name}", and'
            f" {ignored.by}, which is read later, replaces the whole table of that plugin",
            subject=ignored.runtime.name,
            meaning=NO_RUNTIME,
            command=_restore(node, one, ignored),
            looked_at=one.read.configuration.files,
        )
    if not lost:
        files = one.read.configuration.files
        yield ok("no file replaces a GPU runtime", *files, subject=one.distribution.name)


def _restore(node: ExaminedNode, one: ContainerdHere, ignored: reader.Ignored) -> str:
    if register_commands.is_gpuhooks(node, ignored.runtime):
        return register_commands.with_containerd(node, one, ignored.runtime)
    return (
        f"{one.distribution.configure} --config-source=command"
        f" --drop-in-config={ignored.by.rpartition('/')[0]}/zz-nvidia.toml"
        f" && {one.distribution.restart}"
    )


@check("containerd.drop-in", "Drop-ins with GPU runtimes are imported", needs=_READ)
def _drop_in(node: ExaminedNode) -> Iterable[Finding]:
    here = [one for one in containerds(node) if one.root == reader.PATH]
    for one in here:
        unread = [
            path
            for pattern in _DROP_INS
            for path in matching(node.tree, pattern)
            if path not in one.read.configuration.files and _runtimes_in(node, path)
        ]
        for path in unread:
            has_another = bool(gpu_runtimes(node.tree, one.read.configuration))
            yield Finding(
                WARNING if has_another else FAILED,
                f"{path} has a GPU runtime, and {one.root} imports"
                f" {', '.join(one.read.imports) or 'nothing'}",
                subject=path,
                meaning=NO_RUNTIME,
                command=f"rm {path} # {one.root} registers a GPU runtime itself"
                if has_another
                else _import(node, one, path),
                looked_at=(one.root, path),
            )
        if not unread:
            yield ok("every drop-in with a GPU runtime is imported", one.root, *_DROP_INS)
    if not here:
        yield absent(f"no containerd of this node reads {reader.PATH}", reader.PATH)


def _runtimes_in(node: ExaminedNode, path: str) -> list[Runtime]:
    read = reader.read(node.tree, path)
    runtimes = [*read.configuration.runtimes.values(), *(one.runtime for one in read.ignored)]
    return [one for one in runtimes if gives_gpus(node.tree, one)]


def _import(node: ExaminedNode, one: ContainerdHere, path: str) -> str:
    runtime = _runtimes_in(node, path)[0]
    if one.read.imports or register_commands.is_gpuhooks(node, runtime):
        return register_commands.with_containerd(node, one, runtime)
    edit = f"sed -i '1i imports = [\"{path.rpartition('/')[0]}/*.toml\"]' {one.root}"
    return f"{edit} && {one.distribution.restart}"


@check("containerd.wrong-file", "GPU runtimes are in the file that containerd reads", needs=_READ)
def _wrong_file(node: ExaminedNode) -> Iterable[Finding]:
    others = [one for one in containerds(node) if one.root != reader.PATH]
    without = [one for one in others if not gpu_runtimes(node.tree, one.read.configuration)]
    main = [one for one in containerds(node) if one.root == reader.PATH and one.started is None]
    registered = [run for one in main for run in gpu_runtimes(node.tree, one.read.configuration)]
    if not others or not main:
        yield absent(f"{reader.PATH} is the only configuration of containerd here", reader.PATH)
    elif registered and without:
        for one in without:
            yield Finding(
                FAILED,
                f"{runtime_names(registered)} is registered in {reader.PATH}, and the containerd of"
                f" {one.distribution.name} reads {one.root}, which has no GPU runtime",
                subject=one.distribution.name,
                meaning=NO_RUNTIME,
                command=register_commands.with_containerd(node, one, registered[0]),
                looked_at=(reader.PATH, one.root),
            )
    else:
        yield ok("no GPU runtime is in a file that is not read", reader.PATH)


@check("containerd.template", "Generated configurations match their template", needs=_READ)
def _template(node: ExaminedNode) -> Iterable[Finding]:
    templates = [
        (one, path, content)
        for one in containerds(node)
        for path in one.distribution.templates
        if (content := text(node.tree, path)) is not None
    ]
    for one, path, content in templates:
        if not _has_runtime(content) or gpu_runtimes(node.tree, one.read.configuration):
            yield ok(f"{one.root} has the GPU runtimes of {path}", path, one.root)
            continue
        yield Finding(
            FAILED,
            f"{path} has a GPU runtime, and {one.root}, which {one.distribution.name} generates"
            " from it when it starts, has none",
            subject=one.distribution.name,
            meaning=NO_RUNTIME,
            command=one.distribution.restart,
            looked_at=(path, one.root),
        )
    if not templates:
        yield absent("no configuration of containerd here is generated from a template")


def _has_runtime(template: str) -> bool:
    return any(
        name in line
        for line in template.splitlines()
        if not line.lstrip().startswith("#")
        for name in ("nvidia-container-runtime", "gpuhook-runtime")
    )


@check("containerd.runtime", "containerd can give containers GPUs", needs=_REGISTERED)
@for_each(containerds, not_installed("containerd"))
def _runtime(node: ExaminedNode, one: ContainerdHere) -> Iterable[Finding]:
    name, configuration = one.distribution.name, one.read.configuration
    found = gpu_runtimes(node.tree, configuration)
    if not one.read.has_cri:
        yield absent(f"{one.root} disables the plugin cri", one.root)
    elif found:
        message = f"runtime {runtime_names(found)} gives GPUs"
        yield ok(message, *configuration.files, subject=name)
    elif one.read.has_cdi:
        message = f"{one.root} registers no GPU runtime: containers get GPUs only by CDI"
        yield ok(message, *configuration.files, subject=name)
    elif why := _why_not(node, one):
        yield absent(f"{one.root} registers no GPU runtime: {why}", one.root)
    else:
        yield Finding(
            FAILED,
            f"{one.root} registers no GPU runtime (only {', '.join(configuration.runtimes)}),"
            " and CDI is off",
            subject=name,
            meaning=NO_RUNTIME,
            command=register_commands.with_containerd(node, one),
            looked_at=configuration.files or (one.root,),
        )


def _why_not(node: ExaminedNode, one: ContainerdHere) -> str:
    """Return why this containerd need not give GPUs to containers, "" if it has to."""
    if one.started is None and len(containerds(node)) > 1 and one.root == reader.PATH:
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
