# SPDX-License-Identifier: Apache-2.0
"""The containers that engines keep and that name our runtime or hook: without it they are lost.

Sources: moby/daemon/container (hostconfig.json, config.v2.json), containers/podman/libpod (its
database), containerd/runtime/v2 (bundles), cri-o/internal/storage (config.json, annotations).
"""

from __future__ import annotations

import json
import posixpath
from dataclasses import dataclass
from typing import Any

from gpuhook.engines import crio, docker, libpod, podman, toml
from gpuhook.engines.configuration import GPUHOOK_RUNTIME, Configuration
from gpuhook.engines.oci_hooks import OciHook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from gpuhook.engines.files import Files

_TASKS = "/run/containerd/io.containerd.runtime.v2.task"
_OF_DOCKER = "moby"  # the namespace of containerd in which Docker's containers are
_DOCKER_ROOT = "/var/lib/docker"
_SNAP_ROOT = "/var/snap/docker/common/var-lib-docker"
_STORAGE = "/var/lib/containers/storage"
_RUN = "/run/containers/storage"
_OF_A_USER = ".local/share/containers/storage"  # below a home
_CRIO = "io.kubernetes.cri-o."
_NAMES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_NVIDIA_HOOK = "nvidia-container-runtime-hook"


@dataclass(frozen=True, slots=True)
class Stored:
    """A container that needs gpuhook.

    `path` is the file that says so, and `why` what it says, in words. One that runs goes on
    without, but may not be stopped, or not be started again.
    """

    engine: str
    id: str
    name: str
    path: str
    why: str
    is_running: bool


def found(files: Files, home: str | None = None) -> tuple[Stored, ...]:
    """Return the containers of all engines, or of a user's own; raises OSError.

    The names of runtimes mean what the engines' configurations say now: ask before they change.
    """
    ours = [*_docker(files, home), *_podman(files, home)]
    if home is None:
        ours += [*_containerd(files), *_crio(files)]
    return tuple(sorted(ours, key=lambda one: (one.engine, one.name, one.id)))


def _docker(files: Files, home: str | None) -> Iterator[Stored]:
    if home is None:
        places = [(docker.PATH, _DOCKER_ROOT), (docker.SNAP_PATH, _SNAP_ROOT)]
    else:
        places = [(f"{home}/{docker.OF_A_USER}", f"{home}/.local/share/docker")]
    has_hook = any(b"gpuhook" in (files.read(f"{place}/{_NVIDIA_HOOK}") or b"") for place in _NAMES)
    for path, usual in places:
        said = docker.read(files, path)
        root = toml.text(_document(said.content).get("data-root")) or usual
        names = _runtimes(said.configuration)
        for one in files.names(f"{root}/containers"):
            place = f"{root}/containers/{one}"
            host = _document(files.read(f"{place}/hostconfig.json"))
            why = _why_docker(host, names, has_hook=has_hook)
            if why:
                about = _document(files.read(f"{place}/config.v2.json"))
                name = toml.text(about.get("Name")).lstrip("/")
                running = toml.table(about, "State").get("Running") is True
                yield Stored("docker", one, name, f"{place}/hostconfig.json", why, running)


def _why_docker(host: Mapping[str, Any], names: Collection[str], *, has_hook: bool) -> str:
    runtime = toml.text(host.get("Runtime"))
    if runtime in names:
        return f"its runtime is {runtime}"
    requests = host.get("DeviceRequests")
    for one in requests if isinstance(requests, list) else []:
        if has_hook and isinstance(one, dict) and "gpu" in str(one.get("Capabilities")):
            return "it was made with --gpus, for which Docker calls our hook"
    return ""


def _podman(files: Files, home: str | None) -> Iterator[Stored]:
    storage = f"{home}/{_OF_A_USER}" if home else _STORAGE
    names = _runtimes(podman.read(files, home).configuration)
    for one in libpod.containers(files, storage):
        place = f"{storage}/{one.driver}-containers/{one.id}/userdata"
        config = f"{place}/config.json"
        why = _why(one.runtime, names, _document(files.read(config)))
        if why:
            running = "pidfile" in files.names(f"{_RUN}/{one.driver}-containers/{one.id}/userdata")
            path = config if why.startswith("its hook") else one.database
            yield Stored("podman", one.id, one.name, path, why, running)


def _containerd(files: Files) -> Iterator[Stored]:
    for namespace in files.names(_TASKS):
        for one in files.names(f"{_TASKS}/{namespace}"):
            place = f"{_TASKS}/{namespace}/{one}"
            config = _document(files.read(f"{place}/config.json"))
            program = (files.read(f"{place}/runtime") or b"").decode("utf-8", "replace").strip()
            why = _why(program, (), config)
            if why and namespace != _OF_DOCKER:
                annotations = toml.table(config, "annotations")
                name = toml.text(annotations.get("io.kubernetes.cri.container-name"))
                yield Stored("containerd", one, name, f"{place}/config.json", why, is_running=True)


def _crio(files: Files) -> Iterator[Stored]:
    names = _runtimes(crio.read(files).configuration)
    for driver in libpod.drivers(files, _STORAGE):
        for one in files.names(f"{_STORAGE}/{driver}-containers"):
            inner = f"{driver}-containers/{one}/userdata"
            path = f"{_STORAGE}/{inner}/config.json"
            config = _document(files.read(path))
            annotations = toml.table(config, "annotations")
            if any(key.startswith(_CRIO) for key in annotations):
                handler = toml.text(annotations.get(f"{_CRIO}RuntimeHandler"))
                why = _why(handler, names, config)
                if why:
                    name = toml.text(annotations.get(f"{_CRIO}Name"))
                    running = "pidfile" in files.names(f"{_RUN}/{inner}")
                    yield Stored("crio", one, name, path, why, running)


def _runtimes(configuration: Configuration) -> frozenset[str]:
    """Return the names that the configuration has for our runtime."""
    return frozenset(
        one.name
        for one in configuration.gpu_runtimes
        if posixpath.basename(one.path) == GPUHOOK_RUNTIME
    )


def _why(runtime: str, names: Collection[str], config: Mapping[str, Any]) -> str:
    if runtime in names or posixpath.basename(runtime) == GPUHOOK_RUNTIME:
        return f"its runtime is {runtime}"
    for stage in toml.table(config, "hooks").values():
        for one in stage if isinstance(stage, list) else []:
            path = toml.text(one.get("path")) if isinstance(one, dict) else ""
            if OciHook("", path).is_gpuhooks:
                return f"its hook is {path}"
    return ""


def _document(content: bytes | None) -> dict[str, Any]:
    try:
        said = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
