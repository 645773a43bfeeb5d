# SPDX-License-Identifier: Apache-2.0
"""containerd's configuration: read, with CRI, and with a runtime that gives GPUs."""

from __future__ import annotations

from gpuhook.doctor import register_commands
from gpuhook.doctor.check import ENGINES, FAILED, WARNING, Check, Finding, absent, ok
from gpuhook.doctor.engine_findings import gpu_runtimes, named, refused
from gpuhook.doctor.facts.engine_facts import (
    containerds,
    gives_gpus,
    installed,
    kubelet,
    why_no_gpus,
)
from gpuhook.engines.read import containerd_config as reader
from gpuhook.node.node_tree import matching, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.doctor.facts.engine_facts import ContainerdHere
    from gpuhook.engines.read.engine_config import Runtime

NOT_HERE = "containerd is not installed"
NO_RUNTIME = (
    "pods with runtimeClassName: nvidia stay in ContainerCreating: failed to get sandbox runtime:"
    ' no runtime for "nvidia" is configured'
)
_DROP_INS = ("/etc/containerd/conf.d/*.toml", "/etc/containerd/config.d/*.toml")


def config(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether every file that containerd reads can be read."""
    for one in containerds(node):
        meaning = (
            "containerd does not start after its next restart, and with it no container:"
            " containerd: failed to load TOML (or: failed to unmarshal TOML)"
        )
        command = (
            f"containerd --config {one.root} config dump >/dev/null && {one.distribution.restart}"
        )
        found = refused(one.read.configuration, meaning, command)
        files = one.read.configuration.files
        said = f"{', '.join(files)} can be read, version {one.read.version}"
        if not files:
            said = f"{one.root} is not there: containerd goes by its defaults"
        yield from found or [ok(said, one.root, *files, subject=one.distribution.name)]
    if not containerds(node):
        yield absent(NOT_HERE, reader.PATH)


def cri(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether a kubelet can talk to containerd."""
    for one in containerds(node):
        if one.read.has_cri:
            yield ok("the plugin cri is not disabled", one.root, subject=one.distribution.name)
        elif not kubelet(node) or "crio" in installed(node):
            said = f"{one.root} disables the plugin cri: this containerd serves Docker alone"
            yield absent(said, one.root)
        else:
            yield Finding(
                FAILED,
                f"{one.root} disables the plugin cri: {', '.join(one.read.disabled)}",
                subject=one.distribution.name,
                meaning="the kubelet does not start: container runtime is not running: unknown"
                " service runtime.v1.RuntimeService",
                command=_cure_of_cri(node, one),
                looked_at=(one.root,),
            )
    if not containerds(node):
        yield absent(NOT_HERE)


def _cure_of_cri(node: ExaminedNode, one: ContainerdHere) -> str:
    found = gpu_runtimes(node.tree, one.read.configuration)
    if register_commands.has_gpuhook(node) and all(
        register_commands.is_gpuhooks(node, run) for run in found
    ):
        return register_commands.with_containerd(node, one, options=" --enable-cri")
    edit = f"sed -i 's/^disabled_plugins/#disabled_plugins/' {one.root}"
    return f"{edit} && {one.distribution.restart}"


def plugin_key(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether GPU runtimes are written where this containerd looks for runtimes."""
    for one in containerds(node):
        wrong = [
            ignored
            for ignored in one.read.ignored
            if not ignored.by and gives_gpus(node.tree, ignored.runtime)
        ]
        for ignored in wrong:
            yield Finding(
                FAILED,
                f'{ignored.runtime.where} has runtime "{ignored.runtime.name}" below plugin'
                f' "{ignored.key}", and this containerd reads "{one.read.key}"',
                subject=ignored.runtime.name,
                meaning=NO_RUNTIME,
                command=register_commands.with_containerd(node, one, ignored.runtime),
                looked_at=one.read.configuration.files,
            )
        if not wrong:
            said = f'no GPU runtime is below another plugin than "{one.read.key}"'
            yield ok(said, one.root, subject=one.distribution.name)
    if not containerds(node):
        yield absent(NOT_HERE)


def replaced(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether a later file takes a GPU runtime's place, as files do up to containerd 2.0."""
    for one in containerds(node):
        lost = [
            ignored
            for ignored in one.read.ignored
            if ignored.by and gives_gpus(node.tree, ignored.runtime)
        ]
        for ignored in lost:
            yield Finding(
                FAILED,
                f'{ignored.runtime.where} has runtime "{ignored.runtime.name}", and'
                f" {ignored.by}, which is read later, replaces all of that plugin's table",
                subject=ignored.runtime.name,
                meaning=NO_RUNTIME,
                command=_cure_of_replaced(node, one, ignored),
                looked_at=one.read.configuration.files,
            )
        if not lost:
            said = "no file takes the place of a GPU runtime"
            yield ok(said, *one.read.configuration.files, subject=one.distribution.name)
    if not containerds(node):
        yield absent(NOT_HERE)


def _cure_of_replaced(node: ExaminedNode, one: ContainerdHere, ignored: reader.Ignored) -> str:
    if register_commands.is_gpuhooks(node, ignored.runtime):
        return register_commands.with_containerd(node, one, ignored.runtime)
    return (
        f"{one.distribution.configure} --config-source=command"
        f" --drop-in-config={ignored.by.rpartition('/')[0]}/zz-nvidia.toml"
        f" && {one.distribution.restart}"
    )


def drop_in(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether drop-ins with GPU runtimes are imported."""
    here = [one for one in containerds(node) if one.root == reader.PATH]
    for one in here:
        unread = [
            path
            for pattern in _DROP_INS
            for path in matching(node.tree, pattern)
            if path not in one.read.configuration.files and _has_gpu_runtime(node, path)
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
                else _cure_of_drop_in(node, one, path),
                looked_at=(one.root, path),
            )
        if not unread:
            yield ok("no drop-in with a GPU runtime is left out", one.root, *_DROP_INS)
    if not here:
        yield absent(f"no containerd of this node reads {reader.PATH}", reader.PATH)


def _has_gpu_runtime(node: ExaminedNode, path: str) -> bool:
    return bool(_gpu_runtimes_of(node, path))


def _gpu_runtimes_of(node: ExaminedNode, path: str) -> list[Runtime]:
    read = reader.read(node.tree, path)
    runtimes = [*read.configuration.runtimes.values(), *(one.runtime for one in read.ignored)]
    return [one for one in runtimes if gives_gpus(node.tree, one)]


def _cure_of_drop_in(node: ExaminedNode, one: ContainerdHere, path: str) -> str:
    runtime = _gpu_runtimes_of(node, path)[0]
    if one.read.imports or register_commands.is_gpuhooks(node, runtime):
        return register_commands.with_containerd(node, one, runtime)
    edit = f"sed -i '1i imports = [\"{path.rpartition('/')[0]}/*.toml\"]' {one.root}"
    return f"{edit} && {one.distribution.restart}"


def wrong_file(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether a GPU runtime is written in a file that no running containerd reads."""
    others = [one for one in containerds(node) if one.root != reader.PATH]
    without = [one for one in others if not gpu_runtimes(node.tree, one.read.configuration)]
    main = [one for one in containerds(node) if one.root == reader.PATH and one.started is None]
    written = [run for one in main for run in gpu_runtimes(node.tree, one.read.configuration)]
    if not others or not main:
        yield absent(f"{reader.PATH} is the only configuration of containerd here", reader.PATH)
    elif written and without:
        for one in without:
            yield Finding(
                FAILED,
                f"{named(written)} is registered in {reader.PATH}, and the containerd of"
                f" {one.distribution.name} reads {one.root}, which has no GPU runtime",
                subject=one.distribution.name,
                meaning=NO_RUNTIME,
                command=register_commands.with_containerd(node, one, written[0]),
                looked_at=(reader.PATH, one.root),
            )
    else:
        yield ok("no GPU runtime is in a file that is not read", reader.PATH)


def template(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether a generated configuration has the GPU runtimes of its template."""
    seen = False
    for one in containerds(node):
        for path in one.distribution.templates:
            content = text(node.tree, path)
            if content is None:
                continue
            seen = True
            if _lacks_template(node, one, content):
                yield Finding(
                    FAILED,
                    f"{path} has a GPU runtime, and {one.root}, which {one.distribution.name} makes"
                    " of it at its start, has none",
                    subject=one.distribution.name,
                    meaning=NO_RUNTIME,
                    command=one.distribution.restart,
                    looked_at=(path, one.root),
                )
            else:
                yield ok(f"{one.root} has what {path} says of GPUs", path, one.root)
    if not seen:
        yield absent("no configuration of containerd here is made of a template")


def _lacks_template(node: ExaminedNode, one: ContainerdHere, content: str) -> bool:
    has_runtime = any(
        name in line
        for line in content.splitlines()
        if not line.lstrip().startswith("#")
        for name in ("nvidia-container-runtime", "gpuhook-runtime")
    )
    return has_runtime and not gpu_runtimes(node.tree, one.read.configuration)


def runtime(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether containers can get GPUs by containerd."""
    for one in containerds(node):
        name = one.distribution.name
        found = gpu_runtimes(node.tree, one.read.configuration)
        files = one.read.configuration.files
        if not one.read.has_cri:
            yield absent(f"{one.root} disables the plugin cri", one.root)
        elif found:
            yield ok(f"runtime {named(found)} gives GPUs", *files, subject=name)
        elif one.read.has_cdi(one.daemon):
            said = f"{one.root} registers no GPU runtime: containers get GPUs as CDI devices alone"
            yield ok(said, *files, subject=name)
        elif not (why := _why_not(node, one)):
            yield Finding(
                FAILED,
                f"{one.root} registers no GPU runtime ({', '.join(one.read.configuration.runtimes)}"
                " alone), and CDI is off",
                subject=name,
                meaning=NO_RUNTIME,
                command=register_commands.with_containerd(node, one),
                looked_at=files or (one.root,),
            )
        else:
            yield absent(f"{one.root} registers no GPU runtime: {why}", one.root)
    if not containerds(node):
        yield absent(NOT_HERE)


def _why_not(node: ExaminedNode, one: ContainerdHere) -> str:
    """Return why containers with GPUs are not this containerd's task, "" where they are."""
    if one.started is None and len(containerds(node)) > 1 and one.root == reader.PATH:
        return "another containerd has"
    return why_no_gpus(node, "containerd")


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
CHECKS = (
    Check("containerd.config", ENGINES, "containerd can read its configuration", config),
    Check("containerd.cri", ENGINES, "containerd has its interface for the kubelet", cri, _READ),
    Check(
        "containerd.plugin-key",
        ENGINES,
        "GPU runtimes stand where this version of containerd looks",
        plugin_key,
        _READ,
    ),
    Check(
        "containerd.replaced",
        ENGINES,
        "No later file takes a GPU runtime's place",
        replaced,
        _READ,
    ),
    Check("containerd.drop-in", ENGINES, "Drop-ins with GPU runtimes are imported", drop_in, _READ),
    Check(
        "containerd.wrong-file",
        ENGINES,
        "GPU runtimes are in the file that containerd reads",
        wrong_file,
        _READ,
    ),
    Check(
        "containerd.template",
        ENGINES,
        "Generated configurations are made of the template of now",
        template,
        _READ,
    ),
    Check(
        "containerd.runtime", ENGINES, "containerd can give containers GPUs", runtime, _REGISTERED
    ),
)
