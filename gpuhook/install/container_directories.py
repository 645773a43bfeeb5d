# SPDX-License-Identifier: Apache-2.0
"""The directories of a host that describe its containers.

They come from a fixed list, from the configurations and the processes of engines, and from
gpuhook's ledger. After undo, or when an engine ended, its directories are no longer in these
sources. Therefore an installation that is kept for a container saves a list.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

from gpuhook.engines.configure.containerd import containerd_locations
from gpuhook.engines.read import toml_document, unit_flags
from gpuhook.engines.read.config_files import joined
from gpuhook.engines.state import host_processes, state_directories
from gpuhook.engines.state.state_directories import EngineState, StateDirectory
from gpuhook.errors import GpuhookError
from gpuhook.host import documents
from gpuhook.host.hot import files
from gpuhook.install.mounted_host import inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gpuhook.engines.configure.host_files import Host

LIST = "state-directories.json"  # in the directory of the installation
SCHEMA = "gpuhook/state-directories/v1"
_LEDGER = "/run/gpuhook/containers"
_UNITS = {"containerd": "containerd.service", "crio": "crio.service", "docker": unit_flags.DOCKER}
_DAEMONS = {"containerd": "containerd", "crio": "crio", "dockerd": "docker"}
_SHIM, _MONITOR = "containerd-shim", "conmon"
_CONFIGS = ("config", "c", "config-file")
_PATHS = frozenset({*_CONFIGS, "config-dir", "d", "state", "exec-root"})
_OF_DISTRIBUTIONS = (
    state_directories.CONTAINERD,
    "/run/k3s/containerd",
    "/run/k0s/containerd",
    "/var/snap/microk8s/common/run/containerd",
    "/run/docker/containerd/daemon",
)
USUAL = (
    *(StateDirectory(path, state_directories.BUNDLES) for path in _OF_DISTRIBUTIONS),
    *state_directories.STORAGES,
    StateDirectory("/run/runc", state_directories.OF_RUNTIME),
    StateDirectory("/run/crun", state_directories.OF_RUNTIME),
    StateDirectory("/run/containerd/runc", state_directories.OF_NAMESPACES),
)


@dataclass(frozen=True, slots=True)
class ContainerFiles:
    """The directories, and other sources with the names of versions.

    `commands` are the command lines of processes that call an OCI runtime. `unknown` has a sentence
    for each directory of an engine that cannot be found. `configured` has the engines that are or
    were configured for gpuhook, with the configuration files of their records. `made` are
    configuration files that gpuhook created, and that do not exist after undo.
    """

    directories: tuple[StateDirectory, ...]
    commands: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    configured: Mapping[str, str] = field(default_factory=dict)
    made: frozenset[str] = frozenset()


def locate(
    host: Host, configured: Mapping[str, str], at: str, made: frozenset[str] = frozenset()
) -> ContainerFiles:
    """Return the directories of a host.

    `configured` has the engines that are configured for gpuhook, with the configuration file of the
    record, or "". `at` is the installation's directory on the host. `made` are the files of the
    records that did not exist before.
    """
    search = _Search(host)
    configured = {**search.add_list(f"{at}/{LIST}"), **configured}
    search.add_processes()
    for engine in (*_UNITS, "podman"):
        is_strict = engine in configured and (engine, configured[engine]) not in search.running
        search.add(engine, configured.get(engine, ""), is_strict=is_strict)
    search.add_ledger()
    directories = tuple(dict.fromkeys((*USUAL, *search.directories)))
    return ContainerFiles(
        directories, tuple(search.commands), tuple(search.unknown), configured, made | search.undone
    )


def save(host: Host, at: str, found: ContainerFiles) -> None:
    """Write the list of the engines and of the unusual directories. Raises OSError."""
    directories = [
        {"path": one.path, "files": one.files} for one in found.directories if one not in USUAL
    ]
    document = {
        "schema": SCHEMA,
        "engines": dict(found.configured),
        "made": sorted(found.made),
        "directories": directories,
    }
    host.put(f"{at}/{LIST}", json.dumps(document, indent=2).encode())


def forget(host: Host, at: str) -> None:
    """Remove the list. Raises OSError."""
    host.remove(f"{at}/{LIST}")


class _Search:
    """The directories found so far."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.directories: list[StateDirectory] = []
        self.commands: list[str] = []
        self.unknown: list[str] = []
        self.running: set[tuple[str, str]] = set()  # engines, and the files that they name
        self.undone: frozenset[str] = frozenset()  # the `made` of the list

    def add_processes(self) -> None:
        """Add the directories in the command lines of running engines and their helpers.

        The engines of other users are skipped: they can name any file. A pod without the host's
        pid namespace does not see these processes.
        """
        for process in host_processes.running(self._host.root):
            engine = _DAEMONS.get(process.program, "")
            if engine and process.is_trusted:
                options = _absolute(
                    unit_flags.command_options(process.arguments), process.directory
                )
                named = [options[name] for name in _CONFIGS if options.get(name)]
                self.running.add((engine, named[0] if named else ""))
                self._report(engine, self._take(engine, options, lambda one: one.is_required))
            elif process.program == _MONITOR:
                self.commands.append(" ".join(process.arguments))
            elif process.program.startswith(_SHIM):
                for one in state_directories.shim_directories(process.directory):
                    self._report(_SHIM, self._unreadable(one))
                    self.directories.append(one)

    def add(self, engine: str, config: str, *, is_strict: bool) -> None:
        """Add the directories in the configuration of an engine."""
        try:
            options = (
                unit_flags.unit_options(self._host, _UNITS[engine]) if engine in _UNITS else {}
            )
        except (OSError, GpuhookError) as error:
            reasons = [_reason(error)]
        else:
            if config:
                options["config-file" if engine == "docker" else "config"] = config
            reasons = self._take(engine, options, lambda one: is_strict and bool(one.source))
        if is_strict:
            self._report(engine, reasons)

    def add_ledger(self) -> None:
        """Add the state roots of the containers that were assigned GPUs."""
        try:
            names = self._host.names(_LEDGER)
        except OSError as error:
            self.unknown.append(f"{_LEDGER} cannot be read: {_reason(error)}")
            return
        for name in names:
            try:
                entry = documents.parse_json(self._host.read(f"{_LEDGER}/{name}") or b"{}")
            except (OSError, GpuhookError, ValueError):
                continue
            root = toml_document.text(entry.get("root")) if isinstance(entry, dict) else ""
            if root.startswith("/") and files.is_path(root):
                self.directories.append(StateDirectory(root, state_directories.OF_RUNTIME))

    def add_list(self, path: str) -> dict[str, str]:
        """Add the saved list; returns its engines."""
        try:
            content = self._host.read(path)
            if content is None:
                return {}
            engines, self.undone, directories = _listed(documents.parse_json(content))
        except (OSError, GpuhookError, ValueError) as error:
            self.unknown.append(f"{path} cannot be read: {_reason(error)}")
            return {}
        self.directories += directories
        return engines

    def _take(
        self,
        engine: str,
        options: Mapping[str, str],
        must_exist: Callable[[StateDirectory], bool],
    ) -> list[str]:
        """Add the directories of an engine; return why some of them are not known."""
        try:
            found = _state(self._host, engine, self._without_undone(options))
        except (OSError, GpuhookError) as error:
            return [_reason(error)]
        reasons = [*found.unread]
        for one in found.directories:
            if files.is_path(one.path):
                reasons += self._unreadable(one) if must_exist(one) else []
                self.directories.append(one)
            else:
                reasons.append(f"{one.path!r} is not a path")
        return reasons

    def _without_undone(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the flags without a file that undo removed; its directories are in the list."""
        return {
            name: value
            for name, value in options.items()
            if not (name in _CONFIGS and value in self.undone and self._host.status(value) is None)
        }

    def _unreadable(self, directory: StateDirectory) -> list[str]:
        """Return why a directory cannot be read, [] if it can."""
        try:
            os.listdir(inside(self._host.root, directory.path))
        except OSError as error:
            source = f" ({directory.source})" if directory.source else ""
            return [f"{directory.path}{source}: {error.strerror}"]
        return []

    def _report(self, engine: str, reasons: Iterable[str]) -> None:
        self.unknown += [f"the state directory of {engine} is not known: {one}" for one in reasons]


def _state(host: Host, engine: str, options: Mapping[str, str]) -> EngineState:
    if engine == "containerd":
        return state_directories.containerd(host, options, containerd_locations.started_with(host))
    if engine == "podman":
        return state_directories.podman(host)
    read = state_directories.docker if engine == "docker" else state_directories.crio
    return read(host, options)


def _absolute(options: Mapping[str, str], directory: str) -> dict[str, str]:
    """Return the flags with absolute paths; `directory` is the process's working directory."""
    return {
        name: joined(f"{directory or '/'}/.", value) if name in _PATHS and value else value
        for name, value in options.items()
    }


def _listed(document: Any) -> tuple[dict[str, str], frozenset[str], list[StateDirectory]]:
    """Return the engines, the created files and the directories of a list. Raises ValueError."""
    try:
        if document["schema"] != SCHEMA:
            raise ValueError(document["schema"])
        engines = {str(name): str(config) for name, config in document["engines"].items()}
        made = frozenset(str(path) for path in document.get("made") or ())
        directories = [
            StateDirectory(str(one["path"]), tuple(str(each) for each in one["files"]))
            for one in document["directories"]
        ]
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError("it is not a list of directories") from error
    if not all(one.path.startswith("/") and files.is_path(one.path) for one in directories):
        raise ValueError("a path is not absolute")
    return engines, made, directories


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return error.message if isinstance(error, GpuhookError) else str(error)
