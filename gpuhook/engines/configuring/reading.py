# SPDX-License-Identifier: Apache-2.0
"""Engines' configurations, each read by its own reader, in one form."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.engines import containerd, crio, docker, oci_hooks, podman
from gpuhook.engines.configuring import containerd_places
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configuration import Configuration
    from gpuhook.engines.configuring.wanted import Node
    from gpuhook.engines.versions import Version


@dataclass(frozen=True, slots=True)
class Said:
    """What an engine's configuration says; `hooks` are the files of OCI hooks that it reads."""

    configuration: Configuration
    has_cdi: bool
    hooks: tuple[oci_hooks.OciHook, ...] = ()


def read(engine: str, node: Node) -> Said:
    """Return what an engine reads at a node; raises OSError."""
    if engine == "containerd":
        root, version = _containerd_place(node)
        found = containerd.read(node.files, root, version)
        return Said(found.configuration, found.has_cdi(version))
    if engine == "docker":
        daemon = docker.read(node.files, node.config or docker_path(node))
        return Said(daemon.configuration, daemon.has_cdi(node.version))
    if engine == "crio":
        read_crio = crio.read(node.files)
        hooks = oci_hooks.read(node.files, read_crio.hook_dirs)
        return Said(read_crio.configuration, has_cdi=True, hooks=hooks)
    read_podman = podman.read(node.files, node.home)
    hooks = oci_hooks.read(node.files, read_podman.hook_dirs)
    return Said(read_podman.configuration, podman.has_cdi(node.version), hooks)


def _containerd_place(node: Node) -> tuple[str, Version | None]:
    """Return the file of the node's containerd and its version: k3s and the like have their own."""
    try:
        place = containerd_places.found(node)
    except GpuhookError:  # there are several, or none that can be configured
        return node.config or containerd.PATH, node.version
    return place.root, place.daemon


def docker_path(node: Node) -> str:
    """Return the daemon.json of the node's Docker daemon, or of that of its user."""
    if node.home is not None:
        return f"{node.home}/{docker.OF_A_USER}"
    if node.files.read(docker.PATH) is None and node.files.read(docker.SNAP_PATH) is not None:
        return docker.SNAP_PATH
    return docker.PATH
