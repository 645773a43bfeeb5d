# SPDX-License-Identifier: Apache-2.0
"""Engines' configurations, each read by its own reader, in one form."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.engines.configure.containerd import containerd_locations
from gpuhook.engines.read import (
    containerd_config,
    crio_config,
    docker_config,
    oci_hooks,
    podman_config,
)
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.engine_options import EngineNode
    from gpuhook.engines.read.engine_config import EngineConfiguration
    from gpuhook.engines.read.engine_versions import Version


@dataclass(frozen=True, slots=True)
class Said:
    """What an engine's configuration says; `hooks` are the files of OCI hooks that it reads."""

    configuration: EngineConfiguration
    has_cdi: bool
    hooks: tuple[oci_hooks.OciHook, ...] = ()


def read(engine: str, node: EngineNode) -> Said:
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
