# SPDX-License-Identifier: Apache-2.0
"""The container engines of a node: their configurations, versions, and since when they run."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from gpuhook.doctor.facts import driver_facts, driver_user_space, gpu_loss
from gpuhook.doctor.facts.containerd_distributions import CONTAINERD, DISTRIBUTIONS, Distribution
from gpuhook.engines.read import (
    containerd_config,
    crio_config,
    docker_config,
    engine_config,
    podman_config,
)
from gpuhook.engines.read.containerd_files import may_read
from gpuhook.node import kubelet_files, node_readings
from gpuhook.node.node_tree import matching, text
from gpuhook.vendors.nvidia.driver.driver_locations import GKE, NIXOS_PROGRAMS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.engines.read.engine_config import Runtime, Version
    from gpuhook.node.node_tree import Tree

# Where engines and NVIDIA's runtime look for bare names, besides their PATH, which has the same.
BIN_DIRS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
# Where NixOS has them all, and where the containerds of k3s and others have their own runc: these
# are in the PATH of what such a containerd starts.
MORE_BIN_DIRS = (
    *NIXOS_PROGRAMS,
    "/var/lib/rancher/k3s/data/current/bin",
    "/var/lib/rancher/rke2/bin",
    "/var/lib/rancher/rke2/data/*/bin",
    "/snap/microk8s/current/bin",
    "/var/lib/k0s/bin",
    "/opt/bin",
)
_HOOKS = (b"nvidia-container-runtime-hook", b"nvidia-container-toolkit", b"gpuhook-")
_ENDPOINT = re.compile(r"(?:containerRuntimeEndpoint:|--container-runtime-endpoint[= ])\s*\"?(\S+)")


@dataclass(frozen=True, slots=True)
class ContainerdHere:
    """A containerd of the node. `started` is in seconds of the epoch, None if it is not known."""

    distribution: Distribution
    read: containerd_config.Containerd
    daemon: Version | None
    started: float | None

    @property
    def root(self) -> str:
        """The file that it is started with."""
        return self.read.root


@dataclass(frozen=True, slots=True)
class DockerHere:
    """A Docker daemon of the node: the system's, the snap's, or that of a user."""

    kind: str  # "docker", "snap", "rootless"
    read: docker_config.Docker
    daemon: Version | None
    started: float | None

    @property
    def restart(self) -> str:
        """The command that has it read its configuration."""
        return {
            "snap": "snap restart docker",
            "rootless": "systemctl --user restart docker",
        }.get(self.kind, "systemctl restart docker")


def program(tree: Tree, name: str, more: Iterable[str] = MORE_BIN_DIRS) -> str | None:
    """Return the path at which a program is found, None if nothing that may be run is there.

    A bare name is looked up where every system has programs, then in `more`, which are patterns.
    """
    if "/" in name:
        paths = [name]
    else:
        paths = [f"{place}/{name}" for place in BIN_DIRS]
        for place in more:
            at = f"{place}/{name}"
            paths += matching(tree, at) if "*" in at else [at]
    for path in paths:
        status = tree.status(path)
        if status and status.is_executable:
            return path
    return None


def kubelet(node: ExaminedNode) -> str:
    """Return the directory of the node's kubelet, "" where it is no node of a cluster."""
    found: str = node.once(_kubelet)
    return found


def _kubelet(node: ExaminedNode) -> str:
    argvs = [one.get("argv") or () for one in processes(node, "kubelet", "kubelite", "k3s")]
    places = [kubelet_files.directory(node.tree, argv) for argv in argvs or [()]]
    found = next((place for place in places if place), "")
    is_empty = not found and node.tree.status(kubelet_files.ROOTS[0]) is not None
    return kubelet_files.ROOTS[0] if is_empty else found


def version(node: ExaminedNode, name: str) -> Version | None:
    """Return the version that a program says it is of."""
    programs = node.readings.document(node_readings.PROGRAMS) or {}
    return engine_config.parse_version(str((programs.get(name) or {}).get("version") or ""))


def processes(node: ExaminedNode, *names: str) -> list[dict[str, Any]]:
    """Return the node's processes of these names."""
    found = node.readings.document(node_readings.PROCESSES) or []
    return [one for one in found if one.get("name") in names]


def containerds(node: ExaminedNode) -> tuple[ContainerdHere, ...]:
    """Return the containerds of the node."""
    found: tuple[ContainerdHere, ...] = node.once(_containerds)
    return found


def dockers(node: ExaminedNode) -> tuple[DockerHere, ...]:
    """Return the Docker daemons of the node."""
    found: tuple[DockerHere, ...] = node.once(_dockers)
    return found


def crio_here(node: ExaminedNode) -> crio_config.Crio | None:
    """Return CRI-O's configuration, None on a node without CRI-O."""
    found: crio_config.Crio | None = node.once(_crio)
    return found


def podman_here(node: ExaminedNode) -> podman_config.Podman | None:
    """Return the configuration of root's podman, None on a node without podman."""
    found: podman_config.Podman | None = node.once(_podman)
    return found


def _containerds(node: ExaminedNode) -> tuple[ContainerdHere, ...]:
    started: dict[str, float] = {}
    for process in processes(node, "containerd"):
        path = (
            containerd_config.configuration_file(process.get("argv") or [])
            or containerd_config.PATH
        )
        if not path.startswith("/var/run/docker/") and not path.startswith("/run/docker/"):
            started[path] = max(float(process.get("started") or 0), started.get(path, 0))
    by_path = {one.path: one for one in DISTRIBUTIONS}
    paths = dict.fromkeys([*by_path, *started])
    here = [path for path in paths if path in started or node.tree.status(path)]
    if not here and program(node.tree, "containerd"):
        here = [containerd_config.PATH]
    daemon = version(node, "containerd")
    return tuple(_containerd(node, by_path.get(path), path, daemon, started) for path in here)


def _containerd(
    node: ExaminedNode,
    known: Distribution | None,
    path: str,
    daemon: Version | None,
    started: dict[str, float],
) -> ContainerdHere:
    distribution = known or Distribution(
        "containerd", path, CONTAINERD.restart, f"{CONTAINERD.configure} --config={path}"
    )
    own = daemon if distribution.name == "containerd" else None  # others bring their own
    read = containerd_config.read(node.tree, path, own)
    if not may_read(own, read.version):
        own = None
        read = containerd_config.read(node.tree, path)
    return ContainerdHere(distribution, read, own, started.get(path))


def _argument(argv: Sequence[str], names: tuple[str, ...]) -> str:
    for position, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else "".join(argv[position + 1 : position + 2])
    return ""


def _dockers(node: ExaminedNode) -> tuple[DockerHere, ...]:
    tree = node.tree
    daemon = version(node, "dockerd") or version(node, "docker")
    running = processes(node, "dockerd")
    started = float(running[0].get("started") or 0) if len(running) == 1 else None
    argv = running[0].get("argv") or [] if len(running) == 1 else []
    path = _argument(argv, ("--config-file",)) or docker_config.PATH
    found = []
    has_snap = tree.status("/var/snap/docker/current") is not None
    if program(tree, "dockerd") or (tree.status(docker_config.PATH) and not has_snap):
        found.append(DockerHere("docker", docker_config.read(tree, path), daemon, started))
    if has_snap:
        found.append(
            DockerHere("snap", docker_config.read(tree, docker_config.SNAP_PATH), None, started)
        )
    for home in homes(tree):
        try:
            read = _docker_of(tree, home)
        except OSError:
            continue  # what users lay there must not keep the system's own from being looked at
        if read is not None:
            found.append(DockerHere("rootless", read, daemon, None))
    return tuple(found)


def _docker_of(tree: Tree, home: str) -> docker_config.Docker | None:
    """Return a user's own configuration, None if there is none.

    Raises OSError, also where it is not the user's: a link leads where its maker likes.
    """
    owner, path = tree.status(home), f"{home}/{docker_config.OF_A_USER}"
    if owner is None or not tree.status(path):
        return None
    return docker_config.read(_OfUser(tree, owner.uid), path)


@dataclass(frozen=True, slots=True)
class _OfUser:
    """The files of a tree as far as they belong to one user."""

    tree: Tree
    uid: int

    def read(self, path: str) -> bytes | None:
        return self.tree.read(path, owner=self.uid)

    def names(self, path: str) -> list[str]:
        return self.tree.names(path)


def homes(tree: Tree) -> list[str]:
    """Return the homes of users who may run engines of their own."""
    return [f"/home/{name}" for name in tree.names("/home")]


def _crio(node: ExaminedNode) -> crio_config.Crio | None:
    tree = node.tree
    is_here = (
        program(tree, "crio") or tree.status(crio_config.PATH) or tree.names(crio_config.DROP_INS)
    )
    return crio_config.read(tree) if is_here else None


def _podman(node: ExaminedNode) -> podman_config.Podman | None:
    return podman_config.read(node.tree) if program(node.tree, "podman") else None


def installed(node: ExaminedNode) -> frozenset[str]:
    """Return the names of the engines of the node which could run containers with GPUs."""
    found = {
        "containerd" if any(_serves_itself(node, one) for one in containerds(node)) else "",
        "docker" if dockers(node) else "",
        "crio" if crio_here(node) else "",
        "podman" if podman_here(node) else "",
    }
    return frozenset(found - {""})


def _serves_itself(node: ExaminedNode, one: ContainerdHere) -> bool:
    """Return whether a containerd has containers of its own, and not those of Docker alone."""
    return one.read.has_cri and bool(kubelet(node) or not dockers(node))


def why_no_gpus(node: ExaminedNode, engine: str) -> str:
    """Return why GPUs are not this engine's task, "" where they are.

    They are that of a kubelet's engine, or of the only one there is.
    """
    space = driver_user_space.driver_user_space(node)
    is_other_kind = driver_facts.is_wsl(node) or driver_facts.is_tegra(node)
    has_gpu = driver_facts.has_gpu(node) or gpu_loss.missing(node)
    if not (has_gpu or is_other_kind or any(space.versions.values())):
        return "this machine has no NVIDIA GPU"
    if space.root == GKE:
        return "GKE's device plugin gives nodes and mounts by itself"
    if kubelet(node) and engine in ("containerd", "crio"):
        endpoint = _endpoint(node)
        is_its = engine in endpoint if endpoint else not {"containerd", "crio"} <= installed(node)
        return "" if is_its else "another engine is the kubelet's"
    return "" if installed(node) == {engine} else "another engine has"


def _endpoint(node: ExaminedNode) -> str:
    """Return the socket of the engine that the kubelet calls, "" if nothing says."""
    said = [" ".join(one.get("argv") or []) for one in processes(node, "kubelet")]
    said += [
        text(node.tree, f"{kubelet(node)}/{name}") or ""
        for name in ("kubeadm-flags.env", "config.yaml")
    ]
    for words in said:
        found = _ENDPOINT.search(words)
        if found:
            return found.group(1).strip("\"'")
    return ""


def gives_gpus(tree: Tree, runtime: Runtime) -> bool:
    """Return whether containers of a runtime get GPUs: by its program, or by hooks of its spec."""
    if runtime.gives_gpus:
        return True
    spec = runtime.options.get("base_runtime_spec")
    if not isinstance(spec, str) or not posixpath.isabs(spec):
        return False
    content = tree.read(spec) or b""
    return any(hook in content for hook in _HOOKS)
