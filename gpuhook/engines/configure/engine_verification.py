# SPDX-License-Identifier: Apache-2.0
"""What was written is verified by the engine's own program, where the host has it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuhook.engines.configure.containerd import containerd_locations
from gpuhook.engines.configure.host_programs import last_words
from gpuhook.engines.read import (
    containerd_config,
    crio_config,
    docker_config,
    oci_hooks,
    podman_config,
)
from gpuhook.engines.read.config_files import Replaced
from gpuhook.engines.read.containerd_files import CRI_OF_1
from gpuhook.errors import GpuhookError, fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.engines.configure.engine_plan import EngineNode, EnginePlan, ExpectedConfig
    from gpuhook.engines.configure.host_programs import HostPrograms, Ran
    from gpuhook.engines.read.config_files import ConfigFiles
    from gpuhook.engines.read.engine_config import EngineConfiguration, Version


_UNKNOWN = ("unknown flag", "flag provided but not defined")


class _Printed:
    """A configuration that an engine's program has printed, as its one file."""

    def __init__(self, text: str) -> None:
        self._text = text.encode()

    def read(self, path: str) -> bytes | None:
        """Return it at whatever path it is looked for."""
        return self._text if path == containerd_config.PATH else None

    def names(self, path: str) -> list[str]:  # noqa: ARG002 # there are no drop-ins
        """Return nothing: what is imported is in the one file."""
        return []


@dataclass(frozen=True, slots=True)
class Verified:
    """The command that has found the written configuration right, or why there is none.

    Both are "" where the host has no program that could.
    """

    command: str = ""
    reason: str = ""


def verify(programs: HostPrograms, plan: EnginePlan, node: EngineNode) -> Verified:
    """Return what has verified the written configuration.

    A program that is there and cannot be started says nothing about the configuration: it may be
    of another architecture, or we may not call chroot(2). Raises GH2005 with what the engine's
    program says, and OSError.
    """
    if not is_read(plan, node):
        return Verified()
    words = _command(plan, node)
    ran = programs.run(words)
    if ran is None or (ran.status and any(word in ran.said for word in _UNKNOWN)):
        return Verified()
    if not ran.is_started:
        return Verified(reason=f"not verified: `{ran.command}` cannot be started: {ran.said}")
    if ran.status:
        raise fault("GH2005", command=ran.command, said=last_words(ran), engine=plan.engine)
    if plan.engine == "containerd":
        _require_printed(plan, node, ran)
    return Verified(ran.command)


def _command(plan: EnginePlan, node: EngineNode) -> tuple[str, ...]:
    config = plan.config or node.config
    if plan.engine == "containerd":
        return ("containerd", "--config", config or containerd_config.PATH, "config", "dump")
    if plan.engine == "docker":
        return (
            "dockerd",
            "--validate",
            "--config-file",
            config or docker_path(node),
        )
    if plan.engine == "crio":
        return ("crio", "config")
    return ("podman", "--version")  # it reads containers.conf for that, and changes nothing


def _require_printed(plan: EnginePlan, node: EngineNode, ran: Ran) -> None:
    """Raise GH2005 if the runtimes are not in what containerd has read, imports and all."""
    config = plan.config or node.config or containerd_config.PATH
    if containerd_config.read(node.files, config, node.version).key == CRI_OF_1:
        return  # it prints its defaults of version 2 then, not what it goes by
    found = containerd_config.read(_Printed(_without_imports(ran.printed)), daemon=node.version)
    for lack in unregistered(plan.expected, found.configuration):
        said = f"by what it prints, it would not {lack}"
        raise fault("GH2005", command=ran.command, said=said, engine=plan.engine)


def _without_imports(printed: str) -> str:
    lines = printed.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("imports "))


def require_effect(plan: EnginePlan, node: EngineNode) -> None:
    """Raise GH2003 where the engine would not start, GH2004 where it would not do what is wanted.

    `node` has the files that the plan was made from. Raises OSError.
    """
    files = Replaced(node.files, {one.path: one.after for one in plan.changes})
    after = replace(node, files=files, config=plan.config or node.config)
    if not is_read(plan, after):
        return
    said = read_engine(plan.engine, after)
    for trouble in said.configuration.fatal:
        raise fault("GH2003", where=trouble.where, said=trouble.said, engine=plan.engine)
    for lack in lacks(plan.expected, said, files):
        paths = ", ".join(one.path for one in plan.changes) or "its files"
        raise fault("GH2004", engine=plan.engine, lack=lack, paths=paths)


def is_read(plan: EnginePlan, node: EngineNode) -> bool:
    """Return whether a node's engine reads any file of a plan; raises OSError.

    It does if the plan names its configuration, or changes nothing.
    """
    if plan.config or not plan.changes:
        return plan.config is not None
    said = read_engine(plan.engine, node)
    read = {*said.configuration.files, *(one.file for one in said.hooks)}
    return any(change.path in read for change in plan.changes)


def lacks(expected: ExpectedConfig, said: Said, files: ConfigFiles | None = None) -> Iterator[str]:
    """Yield, in words, what is expected of a configuration and is not in it.

    Hooks are looked for among those that the engine reads, or in `files`; not at all without them.
    """
    yield from unregistered(expected, said.configuration)
    if expected.has_cdi and not said.has_cdi:
        yield "give CDI devices to containers"
    hooks = {one.file for one in said.hooks if not one.reason}
    for path in expected.hooks if files is not None else ():
        if path not in hooks and (said.hooks or files is None or files.read(path) is None):
            yield f"read the hook {path}"


def unregistered(expected: ExpectedConfig, found: EngineConfiguration) -> Iterator[str]:
    """Yield, in words, what is wrong about the runtimes of a configuration."""
    for name, program in expected.runtimes.items():
        runtime = found.runtimes.get(name)
        if runtime is None:
            yield f"have a runtime {name}"
        elif program and runtime.path != program:
            there = runtime.path or "its own program"
            yield f"run {program} as its runtime {name}, but {there} ({runtime.where})"
    if expected.default and found.default != expected.default:
        yield f"take {expected.default} as its default runtime, but {found.default}"


@dataclass(frozen=True, slots=True)
class Said:
    """What an engine's configuration says; `hooks` are the files of OCI hooks that it reads."""

    configuration: EngineConfiguration
    has_cdi: bool
    hooks: tuple[oci_hooks.OciHook, ...] = ()


def read_engine(engine: str, node: EngineNode) -> Said:
    """Return what an engine reads at a node; raises OSError."""
    if engine == "containerd":
        root, version = _containerd_place(node)
        found = containerd_config.read(node.files, root, version)
        return Said(found.configuration, found.has_cdi(version))
    if engine == "docker":
        daemon = docker_config.read(node.files, node.config or docker_path(node))
        return Said(daemon.configuration, daemon.has_cdi(node.version))
    if engine == "crio":
        read_crio = crio_config.read(node.files)
        hooks = oci_hooks.read(node.files, read_crio.hook_dirs)
        return Said(read_crio.configuration, has_cdi=True, hooks=hooks)
    read_podman = podman_config.read(node.files, node.home)
    hooks = oci_hooks.read(node.files, read_podman.hook_dirs)
    return Said(read_podman.configuration, podman_config.has_cdi(node.version), hooks)


def _containerd_place(node: EngineNode) -> tuple[str, Version | None]:
    """Return the file of the node's containerd and its version: k3s and the like have their own."""
    try:
        place = containerd_locations.containerd_location(node)
    except GpuhookError:  # there are several, or none that can be configured
        return node.config or containerd_config.PATH, node.version
    return place.root, place.daemon


def docker_path(node: EngineNode) -> str:
    """Return the daemon.json of the node's Docker daemon, or of that of its user."""
    if node.home is not None:
        return f"{node.home}/{docker_config.OF_A_USER}"
    if (
        node.files.read(docker_config.PATH) is None
        and node.files.read(docker_config.SNAP_PATH) is not None
    ):
        return docker_config.SNAP_PATH
    return docker_config.PATH
