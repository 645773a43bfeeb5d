# SPDX-License-Identifier: Apache-2.0
"""The kubelet's files: sockets of device plugins, registered devices, pods of plugins.

Sources: kubernetes.io/docs/reference/node/kubelet-files, pkg/kubelet/cm/devicemanager/checkpoint.
The checkpoint is a private format of the kubelet: it is read as far as it is known.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from gpuhook.host import documents
from gpuhook.node_facts.sources import node_tree as trees

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from gpuhook.node_facts.sources.node_tree import Tree

# kubeadm, k3s, rke2 and the clouds; microk8s; k0s; k3s before 0.10.
ROOTS = (
    "/var/lib/kubelet",
    "/var/snap/microk8s/common/var/lib/kubelet",
    "/var/lib/k0s/kubelet",
    "/var/lib/rancher/k3s/agent/kubelet",
)
_OTHERS = ("amd.com", "amd-", "intel.com", "habana", "metax", "cambricon", "ascend", "mthreads")
POD_LOGS = "/var/log/pods"
_CHECKPOINT = "kubelet_internal_checkpoint"
_MAX_CHECKPOINT = 64 << 20
_MAX_LOG = 1 << 20  # bytes that are read of a log
_DRA_DRIVER = "plugins/gpu.nvidia.com"
_MOST_PODS = 2000


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The kubelet's record of devices; `registered` has the healthy ones by resource.

    `trouble` is why it cannot be read, or "".
    """

    path: str
    registered: dict[str, tuple[str, ...]]
    trouble: str = ""

    @property
    def gpus(self) -> dict[str, tuple[str, ...]]:
        """The resources that are GPUs, with the ids of their healthy devices."""
        return {name: ids for name, ids in self.registered.items() if is_of_gpus(name, ids)}


@dataclass(frozen=True, slots=True)
class PluginPod:
    """A pod with a device plugin for GPUs: its configurations and its log.

    `configurations` are the files of its ConfigMaps by key; `chosen` is the key that NVIDIA's
    config-manager has linked, "" without a link. `namespace` and `name` are "" without a log.
    """

    uid: str
    container: str
    namespace: str = ""
    name: str = ""
    configurations: tuple[tuple[str, str], ...] = ()
    chosen: str = ""
    logs: str = ""  # the directory of the container's logs

    @property
    def daemon_set(self) -> str:
        """The name of the pod's DaemonSet: the pod's name without its random end."""
        return self.name.rpartition("-")[0]


def directory(tree: Tree, arguments: Iterable[str] = ()) -> str:
    """Return the kubelet's directory, "" without one; `arguments` are those of its process."""
    for found in _root_dirs(arguments):
        if _is_directory(tree, found):
            return found
    for root in ROOTS:
        if _is_directory(tree, f"{root}/device-plugins") or _is_directory(tree, f"{root}/pods"):
            return root
    return ""


def sockets(tree: Tree, directory: str) -> list[str]:
    """Return the names of the sockets in the kubelet's directory for device plugins."""
    place = f"{directory}/device-plugins"
    return [name for name in tree.names(place) if has_socket(tree, f"{place}/{name}")]


def is_gpu_socket(name: str) -> bool:
    """Return whether NVIDIA's GPU device plugins use such a name for their socket."""
    name = name.lower()
    is_ours = "nvidia" in name or ("gpu" in name and not any(one in name for one in _OTHERS))
    return name.endswith(".sock") and is_ours


def has_dra_driver(tree: Tree, directory: str) -> bool:
    """Return whether a driver of NVIDIA's GPUs for dynamic resource allocation is there."""
    return _is_directory(tree, f"{directory}/{_DRA_DRIVER}")


def checkpoint(tree: Tree, directory: str) -> Checkpoint | None:
    """Return the kubelet's record of devices, None if it has not written one."""
    path = f"{directory}/device-plugins/{_CHECKPOINT}"
    content = tree.read(path, _MAX_CHECKPOINT)
    if content is None:
        return None
    try:
        data = documents.parse_json(content)["Data"]["RegisteredDevices"] or {}
        registered = {str(name): tuple(str(one) for one in ids or ()) for name, ids in data.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Checkpoint(path, {}, f"{type(error).__name__}: {error}")
    return Checkpoint(path, registered)


def is_of_gpus(resource: str, ids: Iterable[str]) -> bool:
    """Return whether a resource is one of GPUs, by its name or by its devices."""
    domain, _, name = resource.partition("/")
    if domain == "nvidia.com" and name.startswith(("gpu", "mig-")):
        return True
    return any(one.startswith(("GPU-", "MIG-")) for one in ids)


def uuid(device: str) -> str:
    """Return the GPU or MIG instance of a device id: `GPU-...::3` is a replica of `GPU-...`."""
    return device.partition("::")[0]


def plugin_pods(tree: Tree, directory: str) -> tuple[PluginPod, ...]:
    """Return the pods on this node that have a device plugin's container."""
    logs = _log_directories(tree)
    found = []
    for uid in tree.names(f"{directory}/pods")[:_MOST_PODS]:
        place = f"{directory}/pods/{uid}"
        for container in tree.names(f"{place}/containers"):
            if "device-plugin" in container:
                found.append(_plugin_pod(tree, place, uid, container, logs.get(uid, "")))
                break
    return tuple(found)


def last_lines(tree: Tree, directory: str, most: int) -> list[str]:
    """Return the last lines of the newest log of a container, without the engine's prefix.

    Source: the format of CRI logs: time, stream, F or P, then the output.
    """
    files = [name for name in tree.names(directory) if name.endswith(".log")]
    if not files:
        return []
    newest = max(files, key=lambda name: (len(name), name))  # 0.log, 1.log, ... 10.log
    content = tree.read(f"{directory}/{newest}", _MAX_LOG) or b""
    lines = content.decode("utf-8", "replace").splitlines()[-most:]
    return [line.split(" ", 3)[3] if line.count(" ") >= 3 else line for line in lines]


def _plugin_pod(tree: Tree, place: str, uid: str, container: str, log: str) -> PluginPod:
    namespace, name = (log.split("_", 2) if log.count("_") >= 2 else ["", "", ""])[:2]
    return PluginPod(
        uid=uid,
        container=container,
        namespace=namespace,
        name=name,
        configurations=tuple(_configurations(tree, place)),
        chosen=_chosen(tree, place),
        logs=f"{POD_LOGS}/{log}/{container}" if log else "",
    )


def _configurations(tree: Tree, place: str) -> Iterator[tuple[str, str]]:
    volumes = f"{place}/volumes/kubernetes.io~configmap"
    for volume in tree.names(volumes):
        for key in tree.names(f"{volumes}/{volume}"):
            if not key.startswith(".."):
                yield key, f"{volumes}/{volume}/{key}"


def _chosen(tree: Tree, place: str) -> str:
    """Return the target of the link that config-manager makes in an empty directory of the pod."""
    volumes = f"{place}/volumes/kubernetes.io~empty-dir"
    for volume in tree.names(volumes):
        found = tree.status(f"{volumes}/{volume}/config.yaml", follow=False)
        if found is not None and found.is_link:
            return os.path.basename(found.target)
    return ""


def _log_directories(tree: Tree) -> dict[str, str]:
    """Return the directories of pods' logs, namespace_name_uid, by uid."""
    return {name.rpartition("_")[2]: name for name in tree.names(POD_LOGS) if name.count("_") >= 2}


def _root_dirs(arguments: Iterable[str]) -> Iterator[str]:
    given: list[Any] = list(arguments)
    for index, argument in enumerate(given):
        for option in ("--root-dir", "root-dir"):  # k3s: --kubelet-arg root-dir=...
            if argument.startswith(option + "="):
                yield argument.partition("=")[2]
            elif argument == option and index + 1 < len(given):
                yield given[index + 1]
        if argument.startswith("--kubelet-arg=root-dir="):
            yield argument.rpartition("=")[2]


def _is_directory(tree: Tree, path: str) -> bool:
    found = tree.status(path)
    return found is not None and found.is_directory


def has_socket(tree: Tree, path: str) -> bool:
    """Return whether there is a socket at `path`."""
    found = tree.status(path)
    return found is not None and stat.S_ISSOCK(found.mode)


def manifests(tree: Tree) -> list[str]:
    """Return the manifests that k3s and rke2 apply automatically, on nodes with a server."""
    return [
        path
        for distribution in ("k3s", "rke2")
        for path in trees.matching(tree, f"/var/lib/rancher/{distribution}/server/manifests/*.yaml")
    ]
