# SPDX-License-Identifier: Apache-2.0
"""The stored containers that name gpuhook's runtime or hook: without it, they cannot start.

Sources: moby/daemon/container (hostconfig.json, config.v2.json), containers/podman/libpod (its
database), containerd/runtime/v2 (bundles), cri-o/internal/storage (config.json, annotations).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuhook.containers.stores import docker_store, libpod, store_files
from gpuhook.engines.read import (
    crio_config,
    docker_config,
    engine_config,
    podman_config,
    toml_document,
)
from gpuhook.engines.read.oci_hooks import OciHook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuhook.engines.read.config_files import ConfigFiles
    from gpuhook.engines.read.engine_config import EngineConfiguration

_TASKS = "/run/containerd/io.containerd.runtime.v2.task"
_OF_DOCKER = "moby"  # containerd's namespace of Docker's containers
_RUN = "/run/containers/storage"
_CRIO = "io.kubernetes.cri-o."
_NVIDIA_HOOK = "nvidia-container-runtime-hook"


@dataclass(frozen=True, slots=True)
class Stored:
    """A container that needs gpuhook.

    `path` is the file with the reason, `why` the reason in words; `program` is the program of
    gpuhook that it needs, "" without a path. A running container continues without gpuhook, but
    perhaps cannot be stopped or started again.
    """

    engine: str
    id: str
    name: str
    path: str
    why: str
    is_running: bool
    program: str = ""


@dataclass(frozen=True, slots=True)
class _Need:
    """The reason why a container needs gpuhook, and the program that it needs."""

    why: str
    program: str
    is_hook: bool = False


def dependent_containers(files: ConfigFiles, home: str | None = None) -> tuple[Stored, ...]:
    """Return the containers of all engines, or of a user's rootless engines. Raises OSError.

    Names of runtimes are resolved by the current configurations: call this before they change.
    """
    every = [*_docker(files, home), *_podman(files, home)]
    if home is None:
        every += [*_containerd(files), *_crio(files)]
    return tuple(sorted(every, key=lambda one: (one.engine, one.name, one.id)))


def _own_runtimes(files: ConfigFiles, configuration: EngineConfiguration) -> dict[str, str]:
    """Return the names of gpuhook's runtimes in a configuration, with their programs."""
    return {
        one.name: one.path
        for one in configuration.gpu_runtimes
        if engine_config.is_gpuhook_runtime(files, one.path)
    }


def _is_hook(files: ConfigFiles, path: str) -> bool:
    return OciHook("", path).is_gpuhooks or engine_config.is_front(files, path)


def _docker(files: ConfigFiles, home: str | None) -> Iterator[Stored]:
    if home is None:
        places = [
            (docker_config.PATH, docker_store.ROOT),
            (docker_config.SNAP_PATH, docker_store.SNAP_ROOT),
        ]
    else:
        places = [(f"{home}/{docker_config.OF_A_USER}", f"{home}/{docker_store.OF_A_USER}")]
    for path, usual in places:
        config = docker_config.read(files, path)
        root = toml_document.text(store_files.document(config.content).get("data-root")) or usual
        names = _own_runtimes(files, config.configuration)
        for one in files.names(f"{root}/containers"):
            path = f"{root}/containers/{one}/hostconfig.json"
            need = _need_of_docker(files, store_files.document(files.read(path)), names)
            if need:
                about = docker_store.container(files, root, one)
                name, running = (about.name, about.is_running) if about else ("", False)
                yield Stored("docker", one, name, path, need.why, running, need.program)


def _need_of_docker(
    files: ConfigFiles, host: Mapping[str, Any], names: Mapping[str, str]
) -> _Need | None:
    runtime = toml_document.text(host.get("Runtime"))
    if runtime in names:
        return _Need(f"its runtime is {runtime}", names[runtime])
    requests = host.get("DeviceRequests")
    for one in requests if isinstance(requests, list) else []:
        is_of_gpus = isinstance(one, dict) and "gpu" in str(one.get("Capabilities"))
        if is_of_gpus and _is_hook(files, _NVIDIA_HOOK):
            return _Need(
                "it was created with --gpus, for which Docker runs gpuhook's hook", _NVIDIA_HOOK
            )
    return None


def _podman(files: ConfigFiles, home: str | None) -> Iterator[Stored]:
    storage = f"{home}/{libpod.OF_A_USER}" if home else libpod.STORAGE
    names = _own_runtimes(files, podman_config.read(files, home).configuration)
    for one in libpod.containers(files, storage):
        place = f"{storage}/{one.driver}-containers/{one.id}/userdata"
        config = f"{place}/config.json"
        need = _need(files, one.runtime, names, store_files.document(files.read(config)))
        if need:
            running = "pidfile" in files.names(f"{_RUN}/{one.driver}-containers/{one.id}/userdata")
            path = config if need.is_hook else one.database
            yield Stored("podman", one.id, one.name, path, need.why, running, need.program)


def _containerd(files: ConfigFiles) -> Iterator[Stored]:
    for namespace in files.names(_TASKS):
        for one in files.names(f"{_TASKS}/{namespace}"):
            place = f"{_TASKS}/{namespace}/{one}"
            config = store_files.document(files.read(f"{place}/config.json"))
            program = (files.read(f"{place}/runtime") or b"").decode("utf-8", "replace").strip()
            need = _need(files, program, {}, config)
            if need and namespace != _OF_DOCKER:
                annotations = toml_document.table(config, "annotations")
                name = toml_document.text(annotations.get("io.kubernetes.cri.container-name"))
                path = f"{place}/config.json"
                yield Stored("containerd", one, name, path, need.why, True, need.program)


def _crio(files: ConfigFiles) -> Iterator[Stored]:
    configuration = crio_config.read(files).configuration
    names = _own_runtimes(files, configuration)
    for driver in libpod.drivers(files, libpod.STORAGE):
        ids = files.names(f"{libpod.STORAGE}/{driver}-containers")
        kept = {one: store_files.document(files.read(_kept_config(driver, one))) for one in ids}
        for one, config in kept.items():
            annotations = toml_document.table(config, "annotations")
            if any(key.startswith(_CRIO) for key in annotations):
                handler = _crio_handler(kept, annotations) or configuration.default
                need = _need(files, handler, names, config)
                if need:
                    name = toml_document.text(annotations.get(f"{_CRIO}Name"))
                    running = "pidfile" in files.names(f"{_RUN}/{driver}-containers/{one}/userdata")
                    path = _kept_config(driver, one)
                    yield Stored("crio", one, name, path, need.why, running, need.program)


def _kept_config(driver: str, container: str) -> str:
    return f"{libpod.STORAGE}/{driver}-containers/{container}/userdata/config.json"


def _crio_handler(kept: Mapping[str, Mapping[str, Any]], annotations: Mapping[str, Any]) -> str:
    """Return the handler of a container's pod, "" for the default.

    Of the containers of a pod, only the sandbox has an annotation with the handler.
    """
    sandbox = kept.get(toml_document.text(annotations.get(f"{_CRIO}SandboxID")), {})
    handlers = toml_document.table(sandbox, "annotations")
    return toml_document.text(handlers.get(f"{_CRIO}RuntimeHandler"))


def _need(
    files: ConfigFiles, runtime: str, names: Mapping[str, str], config: Mapping[str, Any]
) -> _Need | None:
    if runtime in names or engine_config.is_gpuhook_runtime(files, runtime):
        return _Need(f"its runtime is {runtime}", names.get(runtime, runtime))
    for stage in toml_document.table(config, "hooks").values():
        for one in stage if isinstance(stage, list) else []:
            path = toml_document.text(one.get("path")) if isinstance(one, dict) else ""
            if _is_hook(files, path):
                return _Need(f"its hook is {path}", path, is_hook=True)
    return None
