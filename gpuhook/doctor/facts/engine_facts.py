# SPDX-License-Identifier: Apache-2.0
"""The container engines of a node: their configurations, versions and start times."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuhook.doctor.check import fact
from gpuhook.doctor.facts import driver_facts, driver_user_space, gpu_loss
from gpuhook.doctor.facts.containerd_distributions import CONTAINERD, DISTRIBUTIONS, Distribution
from gpuhook.doctor.facts.program_facts import processes, program, version
from gpuhook.engines.read import containerd_config, crio_config, docker_config, podman_config
from gpuhook.engines.read.containerd_files import may_read
from gpuhook.node import kubelet_files
from gpuhook.node.node_tree import text
from gpuhook.vendors.nvidia.driver.driver_locations import GKE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.engines.read.engine_config import Version
    from gpuhook.node.node_tree import Tree

_ENDPOINT = re.compile(r"(?:containerRuntimeEndpoint:|--container-runtime-endpoint[= ])\s*\"?(\S+)")


@dataclass(frozen=True, slots=True)
class ContainerdHere:
    """A containerd of the node. `started` is in seconds since the epoch, None if unknown."""

    distribution: Distribution
    read: containerd_config.Containerd
    daemon: Version | None
    started: float | None

    @property
    def root(self) -> str:
        """The configuration file that it is started with."""
        return self.read.root


@dataclass(frozen=True, slots=True)
class DockerHere:
    """A Docker daemon of the node."""

    kind: str  # "docker" (the system's), "snap", or "rootless" (of a user)
    read: docker_config.Docker
    daemon: Version | None
    started: float | None

    @property
    def restart(self) -> str:
        """The command that restarts it."""
        return {
            "snap": "snap restart docker",
            "rootless": "systemctl --user restart docker",
        }.get(self.kind, "systemctl restart docker")


@fact
def kubelet(node: ExaminedNode) -> str:
    """Return the directory of the node's kubelet, "" if the node is not in a cluster."""
    argvs = [one.get("argv") or () for one in processes(node, "kubelet", "kubelite", "k3s")]
    places = [kubelet_files.directory(node.tree, argv) for argv in argvs or [()]]
    found = next((place for place in places if place), "")
    is_empty = not found and node.tree.status(kubelet_files.ROOTS[0]) is not None
    return kubelet_files.ROOTS[0] if is_empty else found


@fact
def containerds(node: ExaminedNode) -> tuple[ContainerdHere, ...]:
    """Return the containerds of the node."""
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
    own = (
        daemon if distribution.name == "containerd" else None
    )  # a distribution has its own containerd
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


@fact
def dockers(node: ExaminedNode) -> tuple[DockerHere, ...]:
    """Return the Docker daemons of the node."""
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
            continue  # a file of a user must not hide the system's Docker
        if read is not None:
            found.append(DockerHere("rootless", read, daemon, None))
    return tuple(found)


def _docker_of(tree: Tree, home: str) -> docker_config.Docker | None:
    """Return the configuration of a user's Docker, None if there is none.

    Raises OSError, also for a file that the user does not own: a link may lead anywhere.
    """
    owner, path = tree.status(home), f"{home}/{docker_config.OF_A_USER}"
    if owner is None or not tree.status(path):
        return None
    return docker_config.read(_OfUser(tree, owner.uid), path)


@dataclass(frozen=True, slots=True)
class _OfUser:
    """The files of a tree that one user owns."""

    tree: Tree
    uid: int

    def read(self, path: str) -> bytes | None:
        return self.tree.read(path, owner=self.uid)

    def names(self, path: str) -> list[str]:
        return self.tree.names(path)


def homes(tree: Tree) -> list[str]:
    """Return the home directories of users, who may run rootless engines."""
    return [f"/home/{name}" for name in tree.names("/home")]


@fact
def crio_here(node: ExaminedNode) -> crio_config.Crio | None:
    """Return CRI-O's configuration, None on a node without CRI-O."""
    tree = node.tree
    is_here = (
        program(tree, "crio") or tree.status(crio_config.PATH) or tree.names(crio_config.DROP_INS)
    )
    return crio_config.read(tree) if is_here else None


@fact
def podman_here(node: ExaminedNode) -> podman_config.Podman | None:
    """Return the configuration of root's podman, None on a node without podman."""
    return podman_config.read(node.tree) if program(node.tree, "podman") else None


def installed_engines(node: ExaminedNode) -> frozenset[str]:
    """Return the engines of the node that can run containers with GPUs."""
    found = {
        "containerd" if any(_serves_itself(node, one) for one in containerds(node)) else "",
        "docker" if dockers(node) else "",
        "crio" if crio_here(node) else "",
        "podman" if podman_here(node) else "",
    }
    return frozenset(found - {""})


def _serves_itself(node: ExaminedNode, one: ContainerdHere) -> bool:
    """Return whether a containerd has other containers than those of Docker."""
    return one.read.has_cri and bool(kubelet(node) or not dockers(node))


def why_no_gpus(node: ExaminedNode, engine: str) -> str:
    """Return why an engine need not give GPUs to containers, "" if it has to.

    The engine of the kubelet has to, or the only engine of a node.
    """
    space = driver_user_space.driver_user_space(node)
    is_other_kind = driver_facts.is_wsl(node) or driver_facts.is_tegra(node)
    has_gpu = driver_facts.has_gpu(node) or gpu_loss.missing_gpus(node)
    if not (has_gpu or is_other_kind or any(space.versions.values())):
        return "this machine has no NVIDIA GPU"
    if space.root == GKE:
        return "GKE's device plugin adds the device nodes and mounts"
    if kubelet(node) and engine in ("containerd", "crio"):
        endpoint = _endpoint(node)
        is_its = (
            engine in endpoint
            if endpoint
            else not {"containerd", "crio"} <= installed_engines(node)
        )
        return "" if is_its else "the kubelet uses another engine"
    return "" if installed_engines(node) == {engine} else "another engine does"


def _endpoint(node: ExaminedNode) -> str:
    """Return the socket of the engine that the kubelet uses, "" if it is unknown."""
    sources = [" ".join(one.get("argv") or []) for one in processes(node, "kubelet")]
    sources += [
        text(node.tree, f"{kubelet(node)}/{name}") or ""
        for name in ("kubeadm-flags.env", "config.yaml")
    ]
    for words in sources:
        found = _ENDPOINT.search(words)
        if found:
            return found.group(1).strip("\"'")
    return ""
