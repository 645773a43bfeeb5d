# SPDX-License-Identifier: Apache-2.0
"""The directories in which engines store the files of running containers.

Sources: containerd's cmd/containerd/server/config (state, imports), its runtime/v2 (bundles) and
runtime/v2/runc/options (Root); moby's daemon/config (exec-root) and libcontainerd/supervisor;
crio(8), crio.conf(5) and containers-storage.conf(5).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from gpuhook.engines.read import crio_config as crio_reader
from gpuhook.engines.read import docker_config as docker_reader
from gpuhook.engines.read import toml_document, unit_flags
from gpuhook.engines.read.containerd_files import CRI_KEYS, read_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuhook.engines.read.config_files import ConfigFiles
    from gpuhook.engines.read.engine_config import Trouble

CONTAINERD = "/run/containerd"
DOCKER = "/run/docker"
_STORAGE_CONF = ("/etc/containers/storage.conf", "/usr/share/containers/storage.conf")
TASKS = "io.containerd.runtime.v2.task"
# `runtime` and `options.json` name the program that the shim runs for exec, kill and delete.
BUNDLES = tuple(f"{TASKS}/*/*/{name}" for name in ("config.json", "runtime", "options.json"))
_OF_STORAGE = ("*-containers/*/userdata/config.json",)
# runc stores the hooks in state.json, crun a copy of config.json.
OF_RUNTIME = ("*/state.json", "*/config.json")
OF_NAMESPACES = tuple(f"*/{pattern}" for pattern in OF_RUNTIME)


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """A directory on the host. `files` are patterns below it, for the module glob.

    `source` is the file or the option that names it, "" for a default. `is_required` is set if the
    directory exists whenever the engine runs.
    """

    path: str
    files: tuple[str, ...]
    source: str = field(default="", compare=False)
    is_required: bool = field(default=False, compare=False)

    def moved(self, path: str | None, source: str = "") -> StateDirectory:
        """Return the directory at the path that `source` names, unchanged if it names none."""
        return replace(self, path=path, source=source) if path else self


STORAGES = (
    StateDirectory("/run/containers/storage", _OF_STORAGE),
    StateDirectory("/var/lib/containers/storage", _OF_STORAGE),
)


@dataclass(frozen=True, slots=True)
class EngineState:
    """The state directories of an engine; `unread` are sentences on unreadable configurations."""

    directories: tuple[StateDirectory, ...] = ()
    unread: tuple[str, ...] = ()


def containerd(files: ConfigFiles, options: Mapping[str, str], usual: str) -> EngineState:
    """Return the directories of a containerd with these options; `usual` is its default file."""
    config = unit_flags.main_file(options)
    found, trouble = read_all(files, config or usual, None)
    unread = _unread(trouble)
    if config and not found and not trouble:
        unread = (f"{config} does not exist",)
    state = StateDirectory(CONTAINERD, BUNDLES, is_required=True)
    directories = []
    for file in found:
        state = state.moved(toml_document.text(file.document.get("state")), file.path)
        for key in CRI_KEYS:
            runtimes = toml_document.table(file.document, "plugins", key, "containerd", "runtimes")
            for name in runtimes:
                settings = toml_document.table(runtimes, name, "options")
                roots = [value for key, value in settings.items() if key.lower() == "root"]
                directories += [
                    StateDirectory(root, OF_NAMESPACES)
                    for root in toml_document.texts(roots[:1])
                    if root
                ]
    state = state.moved(options.get("state"), "--state")
    return EngineState((state, *directories), unread)


def docker(files: ConfigFiles, options: Mapping[str, str]) -> EngineState:
    """Return the directories of a dockerd with these options."""
    path = options.get("config-file") or docker_reader.PATH
    read = docker_reader.read(files, path)
    unread = _unread(read.configuration.trouble)
    document = json.loads(read.content) if read.content.strip() and not unread else {}
    patterns = tuple(f"containerd/daemon/{one}" for one in BUNDLES)
    patterns += tuple(f"runtime-*/{one}" for one in OF_NAMESPACES)
    directory = StateDirectory(DOCKER, patterns, is_required=True)
    directory = directory.moved(toml_document.text(document.get("exec-root")), path)
    directory = directory.moved(options.get("exec-root"), "--exec-root")
    return EngineState((directory,), unread)


def crio(files: ConfigFiles, options: Mapping[str, str]) -> EngineState:
    """Return the directories of a CRI-O with these options."""
    config = unit_flags.main_file(options) or crio_reader.PATH
    drop_ins = options.get("config-dir") or options.get("d") or crio_reader.DROP_INS
    read = crio_reader.read(files, config, drop_ins)
    storage = podman(files)
    run, root = storage.directories
    run = run.moved(read.run_root, config).moved(options.get("runroot"), "--runroot")
    root = root.moved(options.get("root") or read.storage_root)
    roots = [one.options.get("runtime_root") for one in read.configuration.runtimes.values()]
    runtimes = [StateDirectory(path, OF_RUNTIME) for path in toml_document.texts(roots) if path]
    unread = (*_unread(read.configuration.trouble), *storage.unread)
    return EngineState((replace(run, is_required=True), root, *runtimes), unread)


def podman(files: ConfigFiles) -> EngineState:
    """Return the run root and the root of containers/storage."""
    unread: tuple[str, ...] = ()
    document: Mapping[str, object] = {}
    for path in _STORAGE_CONF:
        content = files.read(path)
        if content is not None:
            try:
                document = toml_document.table(toml_document.parsed(content), "storage")
            except toml_document.UnreadableTomlError as error:
                unread = _unread((error.trouble(path),))
            break
    run, root = STORAGES
    run = run.moved(toml_document.text(document.get("runroot")))
    root = root.moved(toml_document.text(document.get("graphroot")))
    return EngineState((run, root), unread)


def _unread(trouble: Sequence[Trouble]) -> tuple[str, ...]:
    return tuple(f"{one.where} {one.said}" for one in trouble)


def shim_directories(directory: str) -> Iterator[StateDirectory]:
    """Yield the state directory of a containerd shim, whose working directory is a bundle."""
    state, is_bundle, _ = directory.partition(f"/{TASKS}/")
    if is_bundle:
        yield StateDirectory(state, BUNDLES, "its working directory")
