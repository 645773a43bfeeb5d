# SPDX-License-Identifier: Apache-2.0
"""Checks of a configuration: the plan as the engine will read it, the files by its own program."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuhook.engines.configure import plan_checks
from gpuhook.engines.configure.containerd import containerd_locations
from gpuhook.engines.configure.host_programs import last_words
from gpuhook.engines.read import (
    containerd_config,
    crio_config,
    docker_config,
    oci_hooks,
    podman_config,
)
from gpuhook.engines.read.config_files import ReplacedFiles
from gpuhook.engines.read.containerd_files import CRI_OF_1
from gpuhook.errors import GpuhookError, fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.engines.configure.engine_plan import EngineNode, EnginePlan, ExpectedConfig
    from gpuhook.engines.configure.host_programs import HostPrograms, Ran
    from gpuhook.engines.read.config_files import ConfigFiles
    from gpuhook.engines.read.engine_config import EngineConfiguration, Version

# Errors of a program that has no such option.
_UNKNOWN = ("unknown flag", "flag provided but not defined")


@dataclass(frozen=True, slots=True)
class EngineReading:
    """An engine's configuration; `hooks` are the OCI hook files that it reads."""

    configuration: EngineConfiguration
    has_cdi: bool
    hooks: tuple[oci_hooks.OciHook, ...] = ()
    has_nri: bool = False


@dataclass(frozen=True, slots=True)
class Verified:
    """The command that accepted the written files, or the reason why none could.

    Both are "" if the host has no program for this.
    """

    command: str = ""
    reason: str = ""


def read_engine(engine: str, node: EngineNode) -> EngineReading:
    """Return the configuration that an engine reads on a node. Raises OSError."""
    if engine == "containerd":
        root, version = _containerd_root(node)
        containerd = containerd_config.read(node.files, root, version)
        has_nri = containerd.nri.is_enabled
        return EngineReading(containerd.configuration, containerd.has_cdi, has_nri=has_nri)
    if engine == "docker":
        docker = docker_config.read(node.files, node.config or docker_path(node))
        return EngineReading(docker.configuration, docker.has_cdi(node.version))
    if engine == "crio":
        crio = crio_config.read(node.files)
        hooks = oci_hooks.read(node.files, crio.hook_dirs)
        has_nri = crio.nri(node.version).is_enabled
        return EngineReading(crio.configuration, has_cdi=True, hooks=hooks, has_nri=has_nri)
    podman = podman_config.read(node.files, node.home)
    hooks = oci_hooks.read(node.files, podman.hook_dirs)
    return EngineReading(podman.configuration, podman_config.has_cdi(node.version), hooks)


def _containerd_root(node: EngineNode) -> tuple[str, Version | None]:
    """Return the main file and the version of the node's containerd; distributions have others."""
    try:
        location = containerd_locations.containerd_location(node)
    except GpuhookError:  # several containerds, or none that gpuhook can configure
        return node.config or containerd_config.PATH, node.version
    return location.root, location.daemon


def docker_path(node: EngineNode) -> str:
    """Return the daemon.json of the node's dockerd, or of its user's rootless dockerd."""
    if node.home is not None:
        return f"{node.home}/{docker_config.OF_A_USER}"
    paths = (docker_config.PATH, docker_config.SNAP_PATH)
    return next((path for path in paths if node.files.read(path) is not None), paths[0])


def require_effect(plan: EnginePlan, node: EngineNode) -> None:
    """Raise GH2003 if the engine would not start, GH2004 if it would lack what is expected.

    `node` has the files from which the plan was made. Raises OSError.
    """
    files = ReplacedFiles({one.path: one.after for one in plan.changes}, node.files)
    after = replace(node, files=files, config=plan.config or node.config)
    if not is_read(plan, after):
        return
    reading = read_engine(plan.engine, after)
    plan_checks.require_readable(reading.configuration)
    for lack in lacks(plan.expected, reading, files):
        paths = ", ".join(one.path for one in plan.changes) or "its files"
        raise fault("GH2004", engine=plan.engine, lack=lack, paths=paths)


def is_read(plan: EnginePlan, node: EngineNode) -> bool:
    """Return whether the node's engine reads any file of the plan. Raises OSError.

    It does if the plan names the engine's configuration, or changes nothing.
    """
    if plan.config or not plan.changes:
        return plan.config is not None
    reading = read_engine(plan.engine, node)
    paths = {*reading.configuration.files, *(one.file for one in reading.hooks)}
    return any(change.path in paths for change in plan.changes)


def lacks(expected: ExpectedConfig, reading: EngineReading, files: ConfigFiles) -> Iterator[str]:
    """Yield what the configuration lacks, as verbs with their objects ("have a runtime nvidia").

    A hook must be among those that the engine reads; if it reads none, it must be in `files`.
    """
    yield from runtime_lacks(expected, reading.configuration)
    if expected.has_cdi and not reading.has_cdi:
        yield "give CDI devices to containers"
    if expected.has_nri and not reading.has_nri:
        yield "offer NRI to plugins"
    hooks = {one.file for one in reading.hooks if not one.reason}
    for path in expected.hooks:
        if path not in hooks and (reading.hooks or files.read(path) is None):
            yield f"read the hook {path}"


def runtime_lacks(expected: ExpectedConfig, configuration: EngineConfiguration) -> Iterator[str]:
    """Yield what the configuration lacks of the expected runtimes, as `lacks` does."""
    for name, program in expected.runtimes.items():
        runtime = configuration.runtimes.get(name)
        if runtime is None:
            yield f"have a runtime {name}"
        elif program and runtime.path != program:
            other = runtime.path or "its own program"
            yield f"run {program} as its runtime {name}, but {other} ({runtime.where})"
    if expected.default and configuration.default != expected.default:
        yield f"take {expected.default} as its default runtime, but {configuration.default}"


def verify(programs: HostPrograms, plan: EnginePlan, node: EngineNode) -> Verified:
    """Have the engine's own program check the written files.

    A program that cannot be started proves nothing: it may be of another architecture, or chroot(2)
    is not permitted. Raises GH2005 with the program's error, and OSError.
    """
    if not is_read(plan, node):
        return Verified()
    if plan.engine == "docker" and node.files.read(plan.config or docker_path(node)) is None:
        return Verified()  # dockerd starts without the file, but `--validate` rejects its absence
    ran = programs.run(_command(plan, node))
    if ran is None or (ran.status and any(word in ran.errors for word in _UNKNOWN)):
        return Verified()
    if not ran.is_started:
        return Verified(reason=f"not verified: `{ran.command}` cannot be started: {ran.errors}")
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
        return ("dockerd", "--validate", "--config-file", config or docker_path(node))
    if plan.engine == "crio":
        return ("crio", "config")
    return ("podman", "--version")  # reads containers.conf, changes nothing


def _require_printed(plan: EnginePlan, node: EngineNode, ran: Ran) -> None:
    """Raise GH2005 if the configuration that containerd printed lacks the runtimes."""
    config = plan.config or node.config or containerd_config.PATH
    if containerd_config.read(node.files, config, node.version).key == CRI_OF_1:
        return  # containerd then prints its defaults of version 2, not its configuration
    lines = ran.output.splitlines(keepends=True)
    printed = "".join(line for line in lines if not line.startswith("imports ")).encode()
    files = ReplacedFiles({containerd_config.PATH: printed})
    configuration = containerd_config.read(files, daemon=node.version).configuration
    for lack in runtime_lacks(plan.expected, configuration):
        reason = f"according to its own output, it would not {lack}"
        raise fault("GH2005", command=ran.command, said=reason, engine=plan.engine)
