# SPDX-License-Identifier: Apache-2.0
"""The container engines of a node: their configurations, versions and start times."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.engines.read import (
    containerd_config,
    crio_config,
    docker_config,
    engine_config,
    podman_config,
)
from gpuhook.engines.read.containerd_files import may_read
from gpuhook.node_facts.check import fact
from gpuhook.node_facts.containerd_distributions import (
    CONTAINERD,
    CTK,
    DISTRIBUTIONS,
    Distribution,
)
from gpuhook.node_facts.program_facts import processes, program, version
from gpuhook.node_facts.sources import kubelet_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuhook.engines.read.engine_config import EngineConfiguration, Version
    from gpuhook.node_facts.check import ExaminedNode
    from gpuhook.node_facts.sources.node_tree import Tree

_DOCKER_RESTARTS = {
    "docker": "systemctl restart docker",
    "snap": "snap restart docker",
    "rootless": "systemctl --user restart docker",
}
_TOOLKIT = ("/usr/bin/nvidia-ctk", "/usr/local/nvidia/toolkit/nvidia-ctk")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineHere:
    """An engine of the node, with the configuration file `path`.

    `name` distinguishes several daemons of one engine. `restart` restarts it, `configure` registers
    NVIDIA's runtime. `daemon` is its version, `started` is in seconds since the epoch; both are
    None if unknown.
    """

    name: str = ""
    path: str
    configuration: EngineConfiguration
    restart: str = ""
    configure: str = ""
    daemon: Version | None = None
    started: float | None = None

    @property
    def engine(self) -> str:
        """The name of the program: containerd, docker, crio or podman."""
        return self.configuration.engine


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerdHere(EngineHere):
    """A containerd; `name` is its distribution. `templates` may generate its configuration."""

    read: containerd_config.Containerd
    templates: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerHere(EngineHere):
    """A Docker; `name` is "docker" (the system's), "snap", or "rootless" (of a user)."""

    read: docker_config.Docker


@dataclass(frozen=True, slots=True, kw_only=True)
class CrioHere(EngineHere):
    """The CRI-O of the node."""

    read: crio_config.Crio


@dataclass(frozen=True, slots=True, kw_only=True)
class PodmanHere(EngineHere):
    """The podman of root."""

    read: podman_config.Podman


@fact
def kubelet(node: ExaminedNode) -> str:
    """Return the directory of the node's kubelet, "" if the node is not in a cluster."""
    argvs = [one["argv"] for one in processes(node, "kubelet", "kubelite", "k3s")]
    places = [kubelet_files.directory(node.tree, argv) for argv in argvs or [()]]
    found = next((place for place in places if place), "")
    is_empty = not found and node.tree.status(kubelet_files.ROOTS[0]) is not None
    return kubelet_files.ROOTS[0] if is_empty else found


@fact
def containerds(node: ExaminedNode) -> tuple[ContainerdHere, ...]:
    """Return the containerds of the node."""
    started: dict[str, float] = {}
    for process in processes(node, "containerd"):
        path = containerd_config.configuration_file(process["argv"]) or containerd_config.PATH
        if not path.startswith("/var/run/docker/") and not path.startswith("/run/docker/"):
            started[path] = max(float(process["started"]), started.get(path, 0))
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
    # A distribution has its own containerd.
    own = daemon if distribution.name == "containerd" else None
    read = containerd_config.read(node.tree, path, own)
    if not may_read(own, read.version):
        own = None
        read = containerd_config.read(node.tree, path)
    return ContainerdHere(
        name=distribution.name,
        path=path,
        configuration=read.configuration,
        restart=distribution.restart,
        configure=distribution.configure,
        daemon=own,
        started=started.get(path),
        read=read,
        templates=distribution.templates,
    )


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
    started = float(running[0]["started"]) if len(running) == 1 else None
    argv = running[0]["argv"] if len(running) == 1 else []
    path = _argument(argv, ("--config-file",)) or docker_config.PATH
    found = []
    has_snap = tree.status("/var/snap/docker/current") is not None
    if program(tree, "dockerd") or (tree.status(docker_config.PATH) and not has_snap):
        found.append(docker_here("docker", docker_config.read(tree, path), daemon, started))
    if has_snap:
        read = docker_config.read(tree, docker_config.SNAP_PATH)
        found.append(docker_here("snap", read, started=started))
    for home in homes(tree):
        try:
            of_user = _docker_of(tree, home)
        except OSError:
            continue  # a file of a user must not hide the system's Docker
        if of_user is not None:
            found.append(docker_here("rootless", of_user, daemon))
    return tuple(found)


def docker_here(
    name: str,
    read: docker_config.Docker,
    daemon: Version | None = None,
    started: float | None = None,
) -> DockerHere:
    """Return the Docker of that kind with this configuration."""
    option = "" if name == "docker" else f" --config={read.path}"
    return DockerHere(
        name=name,
        path=read.path,
        configuration=read.configuration,
        restart=_DOCKER_RESTARTS[name],
        configure=f"{CTK}docker{option}",
        daemon=daemon,
        started=started,
        read=read,
    )


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
def crios(node: ExaminedNode) -> tuple[CrioHere, ...]:
    """Return the node's CRI-O, () without one."""
    tree = node.tree
    if not (
        program(tree, "crio") or tree.status(crio_config.PATH) or tree.names(crio_config.DROP_INS)
    ):
        return ()
    started = (float(one["started"]) for one in processes(node, "crio"))
    read = crio_config.read(tree)
    return (
        CrioHere(
            path=crio_config.PATH,
            configuration=read.configuration,
            restart="systemctl restart crio",
            configure=f"{CTK}crio",
            started=max(started, default=None),
            read=read,
        ),
    )


@fact
def podmans(node: ExaminedNode) -> tuple[PodmanHere, ...]:
    """Return the podman of root, () without one."""
    if not program(node.tree, "podman"):
        return ()
    read = podman_config.read(node.tree)
    return (PodmanHere(path=podman_config.PATH, configuration=read.configuration, read=read),)


# By the name of the program: its daemons.
ENGINES: dict[str, Callable[[ExaminedNode], Sequence[EngineHere]]] = {
    "containerd": containerds,
    "docker": dockers,
    "crio": crios,
    "podman": podmans,
}


def installed_engines(node: ExaminedNode) -> frozenset[str]:
    """Return the engines of the node that can run containers with GPUs."""
    found = {engine for engine, here in ENGINES.items() if here(node)}
    if not any(_serves_itself(node, one) for one in containerds(node)):
        found.discard("containerd")
    return frozenset(found)


def _serves_itself(node: ExaminedNode, one: ContainerdHere) -> bool:
    """Return whether a containerd has other containers than those of Docker."""
    return one.read.has_cri and bool(kubelet(node) or not dockers(node))


def has_toolkit(node: ExaminedNode) -> bool:
    """Return whether the node has NVIDIA's nvidia-ctk, not gpuhook's command of that name."""
    here = [path for path in _TOOLKIT if node.tree.status(path) is not None]
    return any(
        not engine_config.is_gpuhook_script(node.tree.read(path, 4096) or b"") for path in here
    )
