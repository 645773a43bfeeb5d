# SPDX-License-Identifier: Apache-2.0
"""The checks that all engines share, as a table of engines.

Every engine has a configuration, runtimes with programs, and a start time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuhook.doctor.checks.engine.engine_findings import (
    TOOLKIT,
    config_faults,
    unregistered_default,
    without_program,
)
from gpuhook.doctor.commands import register_commands
from gpuhook.doctor.facts.gpu_runtimes import gpu_runtimes
from gpuhook.engines.read import containerd_config, crio_config, docker_config, podman_config
from gpuhook.node_facts import package_commands
from gpuhook.node_facts.check import FAILED, WARNING, Check, Finding, absent, check, for_each, ok
from gpuhook.node_facts.engine_facts import ENGINES
from gpuhook.node_facts.program_facts import program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.node_facts.check import ExaminedNode, Findings
    from gpuhook.node_facts.engine_facts import EngineHere
    from gpuhook.node_facts.sources.node_tree import Tree

UNKNOWN_RUNTIME = "docker: Error response from daemon: unknown or invalid runtime name: nvidia"
NO_DRIVER = 'docker run --gpus fails: could not select device driver "" with capabilities: [[gpu]]'
HOOK = "nvidia-container-runtime-hook"
# Seconds. Some distributions write a file and start their engine in the same second.
_MARGIN = 2.0


@dataclass(frozen=True, slots=True)
class EngineKind:
    """A kind of engine, and the words of its checks: what users see, and its own commands.

    `verify` tries a configuration: {path} and {restart} are replaced. `no_program` is the meaning
    of a runtime whose program cannot be run: {name} and {path} are those of the runtime.
    `no_default` is the meaning of a {default} runtime that is not registered. `start_program` is
    what the daemon looks up at its start only. An engine that `reloads` may have read a changed
    file without a restart.
    """

    name: str
    path: str
    unreadable: str
    verify: str
    no_program: str = ""
    is_reinstalled: bool = True
    unknown_runtime: str = ""
    no_default: str = ""
    start_program: str = ""
    reloads: bool = True


_KINDS = {
    "containerd": EngineKind(
        "containerd",
        containerd_config.PATH,
        "containerd fails to start at its next restart, and no containers start:"
        " containerd: failed to load TOML (or: failed to unmarshal TOML)",
        "containerd --config {path} config dump >/dev/null && {restart}",
        'no container with this runtime starts: OCI runtime create failed: exec: "{path}":'
        " no such file or directory (or permission denied)",
        unknown_runtime='no runtime for "nvidia" is configured',
        reloads=False,
    ),
    "docker": EngineKind(
        "Docker",
        docker_config.PATH,
        "dockerd does not start: unable to configure the Docker daemon with file {path}",
        "dockerd --validate --config-file={path} && {restart}",
        'docker run --runtime {name} fails: exec: "{path}": executable file not found in $PATH',
        is_reinstalled=False,
        unknown_runtime=UNKNOWN_RUNTIME,
        no_default="dockerd does not start: unable to configure the Docker daemon: specified"
        " default runtime '{default}' does not exist",
        start_program=HOOK,
    ),
    "crio": EngineKind(
        "CRI-O",
        crio_config.PATH,
        "CRI-O does not start, and no pods start",
        "{restart}",
        "CRI-O skips the runtime or does not start: invalid runtime_path for runtime '{name}'",
        unknown_runtime="failed to find runtime handler nvidia from runtime list",
        no_default='CRI-O does not start: default_runtime set to "{default}", but no runtime entry'
        " was found for it",
    ),
    "podman": EngineKind(
        "podman",
        podman_config.PATH,
        'no podman command works: reading system config "{path}": decode configuration',
        "podman info",
    ),
}


def not_installed(engine: str, *looked_at: str) -> Finding:
    """Return the finding that a node does not have an engine."""
    return absent(f"{_KINDS[engine].name} is not installed", *looked_at)


def config_check(engine: str) -> Check:
    """Return the check that an engine can read its configuration."""
    kind = _KINDS[engine]

    @check(f"{engine}.config", f"{kind.name} can read its configuration")
    @for_each(ENGINES[engine], not_installed(engine, kind.path))
    def config(_node: ExaminedNode, one: EngineHere) -> Findings:
        files = one.configuration.files
        meaning = kind.unreadable.format(path=one.path)
        command = kind.verify.format(path=one.path, restart=one.restart)
        message = f"{kind.name} reads {', '.join(files) or 'its defaults'}"
        return config_faults(one.configuration, meaning, command) or ok(
            message, *dict.fromkeys((one.path, *files)), subject=one.name
        )

    return config


def default_check(engine: str) -> Check:
    """Return the check that the default runtime of Docker or CRI-O is registered."""
    kind = _KINDS[engine]

    @check(
        f"{engine}.default",
        f"{kind.name}'s default runtime is registered",
        needs=(f"{engine}.config",),
    )
    @for_each(ENGINES[engine], not_installed(engine))
    def default(node: ExaminedNode, one: EngineHere) -> Finding:
        configuration, chosen = one.configuration, one.configuration.default
        is_shim = engine == "docker" and chosen.startswith("io.containerd.")
        if chosen in configuration.runtimes or is_shim:
            files = configuration.files or (one.path,)
            return ok(f'the default runtime is "{chosen}"', *files, subject=one.name)
        found = gpu_runtimes(node.tree, configuration)
        options = register_commands.as_default(chosen)
        return unregistered_default(
            one.path if one.name else kind.name,
            configuration,
            one.name,
            kind.no_default.format(default=chosen),
            register_commands.register(node, one, found[0] if found else None, options),
        )

    return default


def binary_check(engine: str) -> Check:
    """Return the check that the programs of an engine's runtimes can be run."""
    kind = _KINDS[engine]

    @check(
        f"{engine}.binary",
        f"The programs of {kind.name}'s runtimes are executable",
        needs=(f"{engine}.config",),
    )
    @for_each(ENGINES[engine], not_installed(engine))
    def binary(node: ExaminedNode, one: EngineHere) -> Findings:
        if one.name == "snap":
            return absent("the snap contains its own programs", one.path)
        install = package_commands.install(node.tree, TOOLKIT, again=kind.is_reinstalled)
        found = without_program(
            node.tree,
            one.configuration.runtimes.values(),
            kind.no_program,
            f"{install} && {one.restart}",
            engine,
        )
        return found or ok(f"the programs of the runtimes in {one.path} are executable", one.path)

    return binary


def restart_check(engine: str, *needs: str) -> Check:
    """Return the check that an engine was started after the files that it reads were written."""
    kind = _KINDS[engine]

    def running(node: ExaminedNode) -> list[EngineHere]:
        if kind.start_program and program(node.tree, kind.start_program) is None:
            return []
        return [one for one in ENGINES[engine](node) if one.started]

    @check(
        f"{engine}.restarted",
        f"{kind.name} was started after its configuration was written",
        needs=needs,
    )
    @for_each(running, absent(f"the start time of {kind.name} is unknown, or it is not running"))
    def restarted(node: ExaminedNode, one: EngineHere) -> Findings:
        found = [*_unread_files(node.tree, kind, one)]
        path = program(node.tree, kind.start_program) if kind.start_program else None
        if path and _is_newer(node.tree, path, one):
            found.append(replace(_stale(kind, one, [path], NO_DRIVER), subject=one.name))
        message = f"{kind.name} was started after its files were written"
        return found or ok(message, *one.configuration.files)

    return restarted


def _unread_files(tree: Tree, kind: EngineKind, one: EngineHere) -> Iterator[Finding]:
    """Yield the files that are newer than a daemon; a failure if they have its GPU runtimes."""
    newer = [path for path in one.configuration.files if _is_newer(tree, path, one)]
    of_gpus = {runtime.where.path for runtime in gpu_runtimes(tree, one.configuration)}
    required = [path for path in newer if path in of_gpus or path == one.path]
    fails = bool(required and of_gpus and not kind.reloads)
    meaning = (
        "new containers use the old configuration; runtimes that were added"
        f" since are unknown: {kind.unknown_runtime}"
    )
    if fails:
        yield _stale(kind, one, required, meaning, status=FAILED)
    rest = [path for path in newer if path not in required] if fails else newer
    if rest:
        yield _stale(kind, one, rest, meaning)


def _stale(
    kind: EngineKind, one: EngineHere, paths: list[str], meaning: str, status: str = WARNING
) -> Finding:
    were = "were" if len(paths) > 1 else "was"
    message = f"{', '.join(paths)} {were} changed after {kind.name} was started"
    return Finding(status, message, meaning=meaning, command=one.restart, looked_at=tuple(paths))


def _is_newer(tree: Tree, path: str, one: EngineHere) -> bool:
    status = tree.status(path)
    return status is not None and status.mtime > (one.started or 0.0) + _MARGIN
