# SPDX-License-Identifier: Apache-2.0
"""Docker gets a runtime, a hook or CDI: daemon.json is edited, and every other byte of it stays."""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import dataclass

from gpuhook.engines.configure.docker import docker_hook, dockerd_flags, json_text
from gpuhook.engines.configure.engine_plan import ConfigChange, EnginePlan, ExpectedConfig, Service
from gpuhook.engines.read import docker_config
from gpuhook.engines.read.engine_config import GPUHOOK_RUNTIME, Runtime
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuhook.engines.configure.engine_options import EngineNode, EngineOptions
    from gpuhook.engines.read.docker_config import Docker

HAS_CDI = (25,)  # moby/moby#45134
_SNAP = "/var/snap/docker/current"
_DESKTOP = "/mnt/wsl/docker-desktop"
_UNITS = ("docker.service",)
_SNAP_UNITS = ("snap.docker.dockerd.service",)
_FLAGS = {"runtimes": "add-runtime", "default-runtime": "default-runtime", "features": "feature"}
# `runtimes` and `default-runtime` are read again on SIGHUP. `features` is too, but the driver for
# CDI devices is registered only when dockerd starts, and there --gpus looks for its hook.
_RELOADED = frozenset({"runtimes", "default-runtime"})
_BOM = "\ufeff"
_CDI = ["features", "cdi"]
_HOOK_IS_NEW = "dockerd looks for the hook of --gpus when it starts: restart it once"
_LIVES_ON = re.compile(rb"\"live-restore\"\s*:\s*true")


def plan(node: EngineNode, wanted: EngineOptions) -> EnginePlan:
    """Return what is to change; raises a fault where it cannot be, and OSError."""
    _check(node, wanted)
    flags = dockerd_flags.flags(node.files, node.home)
    path = _path(node, flags)
    is_snap = path == docker_config.SNAP_PATH
    if is_snap and wanted.route != "cdi":
        raise fault("GH2046", where=path, route=wanted.route)
    found = docker_config.read(node.files, path)
    mark, text = _text(found)
    edits = [*_runtime_edits(found, wanted), *_cdi_edits(found, node, wanted)]
    for keys, value in edits:
        _check_key(path, text, keys, flags)
        text = json_text.with_member(text, keys, value)
    changes = [ConfigChange(path, node.files.read(path), (mark + text).encode())] if edits else []
    if wanted.route == "hook":
        changes += docker_hook.changes(node, wanted)
    is_reloaded = {keys[0] for keys, _ in edits} <= _RELOADED and wanted.route != "hook"
    return EnginePlan(
        engine="docker",
        changes=tuple(changes),
        expected=ExpectedConfig(
            runtimes={wanted.name: wanted.program} if wanted.route == "wrapper" else {},
            default=wanted.name if wanted.is_default else "",
            has_cdi=found.configuration.cdi_enabled is True or _CDI in [keys for keys, _ in edits],
        ),
        service=Service(
            units=_SNAP_UNITS if is_snap else _UNITS,
            processes=("dockerd",),
            reloads=is_reloaded,
            ends_containers=not _LIVES_ON.search(found.content),
        ),
        notes=tuple(_notes(node, wanted, found)),
        config=path,
        on_restart=(_HOOK_IS_NEW,) if wanted.route == "hook" else (),
    )


def without(
    path: str, content: bytes, wanted: EngineOptions, before: bytes | None = None
) -> bytes | None:
    """Return a file that was edited since, less what `wanted` had brought into it; None: nothing.

    Members that ours took the place of come back as they were `before`. Raises a fault of a
    daemon.json that cannot be read.
    """
    if posixpath.basename(path) == docker_hook.NAME:
        return None if docker_hook.is_ours(content) else content
    found = docker_config.read(_One(path, content), path)
    was = docker_config.read(_One(path, before or b""), path)
    mark, text = _text(found)
    ours = found.configuration.runtimes.get(wanted.name)
    if wanted.is_default and found.configuration.default == wanted.name:
        text = _as_before(text, ["default-runtime"], before)
    if ours and is_ours(ours, wanted):
        text = _as_before(text, ["runtimes", wanted.name], before)
    is_by_us = was.configuration.cdi_enabled is None or wanted.route == "cdi"
    if is_by_us and found.configuration.cdi_enabled:
        text = _as_before(text, _CDI, before)
    return (mark + text).encode() if json_text.members(text) else None


def is_ours(runtime: Runtime, wanted: EngineOptions) -> bool:
    """Return whether a runtime's program is gpuhook's, by its name or as it is wanted."""
    options = runtime.options.get("options")
    binary = options.get("BinaryName") if isinstance(options, dict) else None
    program = runtime.path or binary or ""
    return program == wanted.program or posixpath.basename(program) == GPUHOOK_RUNTIME


def _check(node: EngineNode, wanted: EngineOptions) -> None:
    if node.drop_in:
        raise fault("GH2043", engine="docker")
    if wanted.is_default and wanted.route != "wrapper":
        raise fault("GH2042", engine="docker", route=wanted.route)
    if wanted.name == docker_config.BUILT_IN or wanted.name.startswith("io.containerd."):
        raise fault("GH2041", engine="docker", name=wanted.name)
    if wanted.route == "cdi" and node.version is not None and node.version < HAS_CDI:
        version = ".".join(map(str, node.version))
        raise fault("GH2045", engine="docker", version=version, needed="25.0")


def _path(node: EngineNode, flags: Sequence[dockerd_flags.Flag]) -> str:
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
    for trouble in found.configuration.fatal:
        raise fault("GH2003", where=str(trouble.where), said=trouble.said, engine="docker")
    if not found.content.strip():
        return "", "{}\n"
    try:
        text = found.content.decode("utf-8")
    except UnicodeDecodeError as error:
        said = "is not UTF-8"
        raise fault("GH2003", where=found.path, said=said, engine="docker") from error
    return (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)


def _check_key(path: str, text: str, keys: list[str], flags: Sequence[dockerd_flags.Flag]) -> None:
    """Raise a fault where dockerd or JSON's readers would not agree on what is written."""
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


def _runtime_edits(found: Docker, wanted: EngineOptions) -> list[tuple[list[str], object]]:
    if wanted.route != "wrapper":
        return []
    edits: list[tuple[list[str], object]] = []
    there = found.configuration.runtimes.get(wanted.name)
    if there is None:
        edits.append((["runtimes", wanted.name], {"path": wanted.program}))
    elif not is_ours(there, wanted):
        program = there.path or there.type or "not named"
        if not wanted.takes_over:
            raise fault(
                "GH2000",
                where=str(there.where),
                name=wanted.name,
                engine="docker",
                program=program,
            )
        edits.append((["runtimes", wanted.name], {"path": wanted.program}))
    elif there.path != wanted.program:
        edits.append((["runtimes", wanted.name, "path"], wanted.program))
    if wanted.is_default and found.configuration.default != wanted.name:
        edits.append((["default-runtime"], wanted.name))
    return edits


def _cdi_edits(
    found: Docker, node: EngineNode, wanted: EngineOptions
) -> list[tuple[list[str], object]]:
    said = found.configuration.cdi_enabled
    if said is True:
        return []
    if wanted.route == "cdi":
        is_by_default = node.version is not None and found.has_cdi(node.version)
        return [] if is_by_default else [(_CDI, True)]
    is_asked = said is None and wanted.route == "wrapper"
    is_needed = node.version is None or HAS_CDI <= node.version < docker_config.CDI_BY_DEFAULT
    return [(_CDI, True)] if is_asked and is_needed else []


def _as_before(text: str, keys: list[str], before: bytes | None) -> str:
    """Return the text with a member as it was before.

    One that was not there goes, and with it an object that it leaves empty and that was not there.
    """
    document = json.loads(before.decode("utf-8-sig").strip() or "{}") if before else {}
    above = document if len(keys) == 1 else document.get(keys[0])
    if isinstance(above, dict) and keys[-1] in above:
        return json_text.with_member(text, keys, above[keys[-1]])
    text = json_text.without_member(text, keys)
    if len(keys) == 1 or json_text.members(text, keys[:1]) or isinstance(above, dict):
        return text
    return _as_before(text, keys[:1], before)


def _notes(node: EngineNode, wanted: EngineOptions, found: Docker) -> Iterator[str]:
    if (
        node.version is not None
        and node.version >= docker_config.GPUS_BY_CDI
        and wanted.route == "hook"
    ):
        yield "Docker 29 and later go by CDI for --gpus where nvidia-cdi-hook is in dockerd's PATH"
    if wanted.route == "wrapper" and found.configuration.cdi_enabled is False:
        yield "features.cdi is false and stays so: --route cdi is what changes it"
    if wanted.route == "cdi":
        yield (
            "containers ask by --device nvidia.com/gpu=all; the specs of CDI are "
            "made by `gpuhook refresh`"
        )
    if found.path == docker_config.SNAP_PATH:
        yield (
            "Docker of a snap runs no program of this machine: its specs have to be made by "
            "`gpuhook generate-cdi --hooks none`"
        )
    is_desktop = node.home and node.files.names(f"{node.home}/.docker/desktop")
    if is_desktop or node.files.names(_DESKTOP):
        yield (
            "Docker Desktop is here, and its engine runs in a machine of its own, which has no "
            "gpuhook: this configures only a dockerd that was started here"
        )
    if node.home is not None:
        yield "this is a user's own dockerd: `systemctl --user restart docker` takes it up"


@dataclass(frozen=True, slots=True)
class _One:
    """The one file that is looked at."""

    path: str
    content: bytes

    def read(self, path: str) -> bytes | None:
        return self.content if path == self.path else None

    def names(self, path: str) -> list[str]:  # noqa: ARG002 # Files' signature
        return []
