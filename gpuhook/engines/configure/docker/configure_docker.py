# SPDX-License-Identifier: Apache-2.0
"""Configure Docker: a runtime, a hook or CDI. All other bytes of daemon.json are kept."""

from __future__ import annotations

import json
import posixpath
import re

from gpuhook.engines.configure import plan_checks
from gpuhook.engines.configure.docker import json_text
from gpuhook.engines.configure.engine_plan import ConfigChange, EnginePlan, ExpectedConfig, Service
from gpuhook.engines.read import docker_config, unit_flags
from gpuhook.engines.read.config_files import ReplacedFiles
from gpuhook.errors import fault
from gpuhook.host.hot.state import PROGRAM_DIRS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuhook.engines.configure.engine_plan import EngineNode, EngineOptions
    from gpuhook.engines.read.docker_config import Docker
    from gpuhook.engines.read.engine_config import Runtime

HAS_CDI = (25, 0)  # moby/moby#45134
_SNAP = "/var/snap/docker/current"
_DESKTOP = "/mnt/wsl/docker-desktop"
_UNITS = ("docker.service",)
_SNAP_UNITS = ("snap.docker.dockerd.service",)
_FLAGS = {"runtimes": "add-runtime", "default-runtime": "default-runtime", "features": "feature"}
# dockerd reads `runtimes` and `default-runtime` again on SIGHUP. It reads `features` as well, but
# registers the driver for CDI devices, and finds the hook of --gpus, only when it starts.
_RELOADED = frozenset({"runtimes", "default-runtime"})
_BOM = "\ufeff"
_CDI = ["features", "cdi"]
_HOOK_IS_NEW = "dockerd looks up the hook of --gpus only when it starts: restart it"
# The program that dockerd runs for --gpus, by a search of its PATH (moby/daemon/nvidia_linux.go):
# systemd's PATH for services, which is PROGRAM_DIRS (systemd.exec(5), DEFAULT_PATH).
_HOOK = "nvidia-container-runtime-hook"
_HOOK_MARK = b"gpuhook"
_LIVES_ON = re.compile(rb"\"live-restore\"\s*:\s*true")


def plan(node: EngineNode, options: EngineOptions) -> EnginePlan:
    """Return the changes. Raises GH2000, GH2003, GH2041 to GH2048, and OSError."""
    _check(node, options)
    flags = unit_flags.unit_flags(node.files, node.home)
    path = _path(node, flags)
    is_snap = path == docker_config.SNAP_PATH
    if is_snap and options.route != "cdi":
        raise fault("GH2046", where=path, route=options.route)
    found = docker_config.read(node.files, path)
    mark, text = _text(found)
    edits = [edit for one in options.of_each_name() for edit in _runtime_edits(found, one)]
    edits += _cdi_edits(found, node, options)
    for keys, value in edits:
        _check_key(path, text, keys, flags)
        text = json_text.with_member(text, keys, value)
    changes = [ConfigChange(path, node.files.read(path), (mark + text).encode())] if edits else []
    if options.route == "hook":
        changes += _hook_changes(node, options)
    is_wrapper = options.route == "wrapper"
    is_reloaded = {keys[0] for keys, _ in edits} <= _RELOADED and options.route != "hook"
    return EnginePlan(
        engine="docker",
        changes=tuple(changes),
        expected=ExpectedConfig(
            runtimes=dict.fromkeys(options.names, options.program) if is_wrapper else {},
            default=options.default,
            has_cdi=found.configuration.cdi_enabled is True or _CDI in [keys for keys, _ in edits],
        ),
        service=Service(
            units=_SNAP_UNITS if is_snap else _UNITS,
            processes=("dockerd",),
            reloads=is_reloaded,
            ends_containers=not _LIVES_ON.search(found.content),
        ),
        notes=tuple(_notes(node, options, found)),
        config=path,
        on_restart=(_HOOK_IS_NEW,) if options.route == "hook" else (),
    )


def without(
    path: str, content: bytes, options: EngineOptions, before: bytes | None = None
) -> bytes | None:
    """Do what `Engine.without` says. Raises GH2003 for an invalid daemon.json."""
    if posixpath.basename(path) == _HOOK:
        return None if _HOOK_MARK in content else content
    found = docker_config.read(ReplacedFiles({path: content}), path)
    was = docker_config.read(ReplacedFiles({path: before}), path)
    mark, text = _text(found)
    if options.is_default and found.configuration.default == options.name:
        text = _as_before(text, ["default-runtime"], before)
    for name in options.names:
        ours = found.configuration.runtimes.get(name)
        if ours and is_ours(ours, options):
            text = _as_before(text, ["runtimes", name], before)
    is_by_us = was.configuration.cdi_enabled is None or options.route == "cdi"
    if is_by_us and found.configuration.cdi_enabled:
        text = _as_before(text, _CDI, before)
    return (mark + text).encode() if json_text.members(text) else None


def is_ours(runtime: Runtime, options: EngineOptions) -> bool:
    """Return whether a runtime's program is gpuhook's, by its name or as the options name it."""
    shim = runtime.options.get("options")
    binary = shim.get("BinaryName") if isinstance(shim, dict) else None
    return options.is_own(runtime.path or binary or "")


def _check(node: EngineNode, options: EngineOptions) -> None:
    if node.drop_in:
        raise fault("GH2043", engine="docker")
    if options.is_default and options.route != "wrapper":
        raise fault("GH2042", engine="docker", route=options.route)
    for name in options.names:
        if name == docker_config.BUILT_IN or name.startswith("io.containerd."):
            raise fault("GH2041", engine="docker", name=name)
    if options.route == "cdi":
        plan_checks.require_cdi("docker", node, HAS_CDI)


def _path(node: EngineNode, flags: Sequence[unit_flags.Flag]) -> str:
    if node.config:
        return node.config
    for flag in reversed(flags):
        if flag.name == "config-file" and flag.value:
            return flag.value
    if node.home is not None:
        return f"{node.home}/{docker_config.OF_A_USER}"
    is_snap = node.files.names(_SNAP) and "dockerd" not in node.files.names("/usr/bin")
    return docker_config.SNAP_PATH if is_snap else docker_config.PATH


def _text(found: Docker) -> tuple[str, str]:
    """Return the file's byte order mark and its text; "{}" for none."""
    plan_checks.require_readable(found.configuration)
    if not found.content.strip():
        return "", "{}\n"
    try:
        text = found.content.decode("utf-8")
    except UnicodeDecodeError as error:
        reason = "is not UTF-8"
        raise fault("GH2003", where=found.path, said=reason, engine="docker") from error
    return (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)


def _check_key(path: str, text: str, keys: list[str], flags: Sequence[unit_flags.Flag]) -> None:
    """Raise GH2044 for a key that is a flag of dockerd, too, GH2047 for a key that occurs twice."""
    for flag in flags:
        if flag.name == _FLAGS[keys[0]]:
            raise fault("GH2044", where=str(flag.where), flag=f"--{flag.name}", key=keys[0])
    for depth in range(len(keys)):
        if not json_text.is_object(text, keys[:depth]):
            return
        twice = json_text.repeated(text, keys[:depth], keys[depth])
        if twice is not None:
            where = f"{path}:{json_text.line(text, twice.start)}"
            raise fault("GH2047", where=where, key=".".join(keys[: depth + 1]))


def _runtime_edits(found: Docker, options: EngineOptions) -> list[tuple[list[str], object]]:
    if options.route != "wrapper":
        return []
    edits: list[tuple[list[str], object]] = []
    runtime = found.configuration.runtimes.get(options.name)
    if runtime is None:
        edits.append((["runtimes", options.name], {"path": options.program}))
    elif not is_ours(runtime, options):
        if not options.takes_over:
            raise plan_checks.name_in_use("docker", runtime, runtime.type or "not named")
        edits.append((["runtimes", options.name], {"path": options.program}))
    elif runtime.path != options.program:
        edits.append((["runtimes", options.name, "path"], options.program))
    if options.is_default and found.configuration.default != options.name:
        edits.append((["default-runtime"], options.name))
    return edits


def _cdi_edits(
    found: Docker, node: EngineNode, options: EngineOptions
) -> list[tuple[list[str], object]]:
    enabled = found.configuration.cdi_enabled
    if enabled is True:
        return []
    if options.route == "cdi":
        is_by_default = node.version is not None and found.has_cdi(node.version)
        return [] if is_by_default else [(_CDI, True)]
    is_unset = enabled is None and options.route == "wrapper"
    is_needed = node.version is None or HAS_CDI <= node.version < docker_config.CDI_BY_DEFAULT
    return [(_CDI, True)] if is_unset and is_needed else []


def _hook_changes(node: EngineNode, options: EngineOptions) -> list[ConfigChange]:
    """Return the change that adds a script of the hook's name; none if the name runs gpuhook.

    Another program with that name, such as a package's, is not replaced: the script is before it in
    the PATH. Raises GH2048 without `takes_over`, and OSError.
    """
    found = [where for where in PROGRAM_DIRS if _HOOK in node.files.names(where)]
    content = node.files.read(f"{found[0]}/{_HOOK}") if found else None
    if found and content and _HOOK_MARK in content:
        return []
    if found and not options.takes_over:
        raise fault("GH2048", where=f"{found[0]}/{_HOOK}")
    directory = PROGRAM_DIRS[0] if found[:1] == [PROGRAM_DIRS[0]] else PROGRAM_DIRS[1]
    path = f"{directory}/{_HOOK}"
    text = f'#!/bin/sh\n# gpuhook: for docker run --gpus\nexec "{options.hook}" "$@"\n'
    return [ConfigChange(path, node.files.read(path), text.encode(), 0o755)]


def _as_before(text: str, keys: list[str], before: bytes | None) -> str:
    """Return the text with a member as it was before.

    A new member is removed, and so is an object that this leaves empty, if it is new, too.
    """
    document = json.loads(before.decode("utf-8-sig").strip() or "{}") if before else {}
    above = document if len(keys) == 1 else document.get(keys[0])
    if isinstance(above, dict) and keys[-1] in above:
        return json_text.with_member(text, keys, above[keys[-1]])
    text = json_text.without_member(text, keys)
    if len(keys) == 1 or json_text.members(text, keys[:1]) or isinstance(above, dict):
        return text
    return _as_before(text, keys[:1], before)


def _notes(node: EngineNode, options: EngineOptions, found: Docker) -> Iterator[str]:
    if (
        node.version is not None
        and node.version >= docker_config.GPUS_BY_CDI
        and options.route == "hook"
    ):
        yield "Docker 29 and later use CDI for --gpus if nvidia-cdi-hook is in dockerd's PATH"
    if options.route == "wrapper" and found.configuration.cdi_enabled is False:
        yield "features.cdi is false and is not changed: use --route cdi to change it"
    if options.route == "cdi":
        yield (
            "containers request GPUs with --device nvidia.com/gpu=all; `gpuhook refresh` writes "
            "the CDI specs"
        )
    if found.path == docker_config.SNAP_PATH:
        yield (
            "Docker in a snap cannot run programs on the host: generate its specs with "
            "`gpuhook generate-cdi --hooks none`"
        )
    is_desktop = node.home and node.files.names(f"{node.home}/.docker/desktop")
    if is_desktop or node.files.names(_DESKTOP):
        yield (
            "Docker Desktop is installed. Its engine runs in a virtual machine without gpuhook; "
            "this configures only a dockerd of this host"
        )
    if node.home is not None:
        yield "this is a user's rootless dockerd: restart it with `systemctl --user restart docker`"
