# SPDX-License-Identifier: Apache-2.0
"""The device plugin: that one runs, that it is reached, and that the kubelet knows its GPUs."""

from __future__ import annotations

from gpuhook.doctor.check import FAILED, KUBERNETES, WARNING, Check, Finding, absent, ok
from gpuhook.doctor.checks.kubernetes import kubelet, runtime_class
from gpuhook.doctor.checks.kubernetes import kubelet_facts as facts
from gpuhook.errors import printable
from gpuhook.node import kubelet_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.node.kubelet_files import Checkpoint

RUNNING, SOCKET, REGISTRATION = "plugin.running", "plugin.socket", "plugin.registration"
DEVICES = "plugin.devices"
_PENDING = '"0/1 nodes are available: 1 Insufficient nvidia.com/gpu"'
_LOG_LINES = 40
_TROUBLE = ("error", "fail", "unable", "could not", "cannot", "incompatible", "level=fatal")


def checkpoint(node: ExaminedNode) -> Checkpoint | None:
    """Return what the kubelet wrote of devices."""
    return kubelet_files.checkpoint(node.tree, node.once(facts.kubelet).directory)


def gpu_sockets(node: ExaminedNode) -> list[str]:
    """Return the sockets of device plugins for GPUs."""
    place = node.once(facts.kubelet).directory
    return [n for n in kubelet_files.sockets(node.tree, place) if kubelet_files.is_gpu_socket(n)]


def _runs(node: ExaminedNode) -> Iterator[Finding]:
    kubelet = node.once(facts.kubelet)
    listening = node.once(gpu_sockets)
    if reason := facts.no_gpus(node):
        yield absent(reason)
    elif kubelet.plugins:
        whose = ", ".join(f"{one.whose} device plugin (pid {one.pid})" for one in kubelet.plugins)
        yield ok(f"{whose} runs")
    elif listening:
        yield ok(f"a device plugin has the socket {', '.join(listening)}")
    elif kubelet_files.has_dra_driver(node.tree, kubelet.directory):
        yield absent("NVIDIA's driver for dynamic resource allocation offers the GPUs")
    elif not kubelet.processes:
        yield absent("whether a device plugin runs cannot be told from files alone")
    else:
        yield _none_runs(node)


def _none_runs(node: ExaminedNode) -> Finding:
    pods = node.once(facts.pods)
    place = node.once(facts.kubelet).plugin_directory
    said = f"the node has GPUs, and no device plugin runs that offers them: none is at {place}"
    for pod in pods:
        if words := _last_words(node, pod.logs):
            said += f'; the last words of {pod.name or pod.container} were "{words}"'
    if pods:
        space = f"-n {pods[0].namespace} {pods[0].name}" if pods[0].name else "-A"
        command = f"kubectl describe pod {space} && {facts.restart(pods)}"
        if not pods[0].name:
            command = "kubectl get pods -A -o wide | grep device-plugin"
    else:
        command = (
            "helm repo add nvdp https://nvidia.github.io/k8s-device-plugin && helm upgrade -i "
            "nvdp nvdp/nvidia-device-plugin -n nvidia-device-plugin --create-namespace"
        )
    return Finding(
        FAILED,
        said,
        meaning=f"pods that ask for a GPU stay Pending: {_PENDING}. The DaemonSet of a plugin "
        "starts where its node affinity finds labels such as nvidia.com/gpu.present=true; a GPU "
        "operator's chart from a git clone brings none",
        command=command,
        looked_at=(place, kubelet_files.POD_LOGS),
    )


def _last_words(node: ExaminedNode, directory: str) -> str:
    lines = kubelet_files.last_lines(node.tree, directory, _LOG_LINES) if directory else []
    told = [line for line in lines if any(word in line.lower() for word in _TROUBLE)]
    return printable(told[-1].strip(), 300) if told else ""


def _socket(node: ExaminedNode) -> Iterator[Finding]:
    kubelet = node.once(facts.kubelet)
    listening = node.once(gpu_sockets)
    if listening:
        yield ok(f"{', '.join(listening)} in {kubelet.plugin_directory}", kubelet.plugin_directory)
    elif not kubelet.plugins:
        yield absent("no device plugin for GPUs runs")
    else:
        yield Finding(
            FAILED,
            f"{kubelet.plugins[0].whose} device plugin runs (pid {kubelet.plugins[0].pid}), and "
            f"{kubelet.plugin_directory} has no socket of it",
            subject=kubelet.plugin_directory,
            meaning="a kubelet that starts removes all sockets; a plugin that does not notice "
            f"(or waits for a GPU, or was given another directory) offers nothing: {_PENDING}",
            command=facts.restart(node.once(facts.pods)),
            looked_at=(kubelet.plugin_directory,),
        )


def _registered(node: ExaminedNode) -> Iterator[Finding]:
    known = node.once(checkpoint)
    listening = node.once(gpu_sockets)
    if not listening:
        yield absent("no device plugin for GPUs has a socket here")
    elif known is not None and known.trouble:
        yield Finding(
            WARNING,
            f"{known.path} cannot be read: {known.trouble}",
            subject=known.path,
            meaning="a kubelet that cannot read it either forgets which pod has which device",
            command=f"sudo rm {known.path} && {node.once(facts.kubelet).restart}",
            looked_at=(known.path,),
        )
    elif known is not None and known.gpus:
        said = ", ".join(f"{name} ({len(ids)})" for name, ids in sorted(known.gpus.items()))
        yield ok(f"the kubelet knows {said}", known.path)
    else:
        place = node.once(facts.kubelet).plugin_directory
        yield Finding(
            FAILED,
            f"{listening[0]} is in {place}, and the kubelet has no resource of GPUs registered",
            subject=listening[0],
            meaning="kubectl describe node shows no nvidia.com/gpu, and pods that ask for one stay "
            f"Pending: {_PENDING}",
            command=facts.restart(node.once(facts.pods)),
            looked_at=(place,),
        )


def _devices(node: ExaminedNode) -> Iterator[Finding]:
    known = node.once(checkpoint)
    if known is None or not known.gpus:
        yield absent("the kubelet has no resource of GPUs registered")
        return
    if reason := facts.no_gpus(node):
        yield absent(reason)
        return
    here = _uuids(node)
    for resource, ids in sorted(known.gpus.items()):
        named = {kubelet_files.uuid(one) for one in ids}
        # Others are of a plugin that counts GPUs (an option of NVIDIA's), or of GKE's: nvidia0.
        uuids = {one for one in named if one.startswith(("GPU-", "MIG-"))}
        strangers = sorted(uuids - here) if here else []
        if strangers:
            yield _strangers(node, resource, strangers, known.path)
        elif ids:
            yield ok(f"{resource}: {len(ids)} healthy", known.path, subject=resource)
    if not any(known.gpus.values()):
        names = ", ".join(sorted(known.gpus))
        yield Finding(
            FAILED,
            f"{names} is registered, and none of its devices is healthy: allocatable is 0",
            subject=names,
            meaning=f"pods that ask for a GPU stay Pending: {_PENDING}. The plugin has ended or "
            "taken its list back, or called every GPU unhealthy, which NVIDIA's does for ever "
            "after one XID",
            command=facts.restart(node.once(facts.pods)),
            looked_at=(known.path,),
        )


def _uuids(node: ExaminedNode) -> set[str]:
    inventory = node.once(facts.inventory)
    gpus = inventory.gpus if inventory else ()
    if any(gpu.lost and not gpu.uuid for gpu in gpus):
        return set()  # a lost GPU may not tell its name: the plugin's list is as good
    return {one.uuid for gpu in gpus for one in (gpu, *gpu.instances) if one.uuid}


def _strangers(node: ExaminedNode, resource: str, strangers: list[str], path: str) -> Finding:
    return Finding(
        WARNING,
        f"the kubelet has {', '.join(strangers[:4])} registered as {resource}, which this node "
        "does not have",
        subject=resource,
        meaning="after an exchange of a GPU or a change of MIG instances, NVIDIA's plugin goes on "
        'offering what is gone: "unknown device", or a container without its GPU',
        command=facts.restart(node.once(facts.pods)),
        looked_at=(path,),
    )


def _rivals(node: ExaminedNode) -> Iterator[Finding]:
    kubelet = node.once(facts.kubelet)
    whose = sorted({one.whose for one in kubelet.plugins})
    twice = [one for one in kubelet.plugins if one.whose == facts.NVIDIA]
    if not kubelet.processes:
        yield absent("who runs cannot be told from files alone")
    elif len(whose) < 2 and len(twice) < 2:
        yield ok("no two device plugins offer the same GPUs")
    else:
        pids = ", ".join(f"{one.whose} (pid {one.pid})" for one in kubelet.plugins)
        yield Finding(
            FAILED,
            f"{len(kubelet.plugins)} device plugins for GPUs run: {pids}",
            meaning="the kubelet keeps the last one that registers a resource, and the other's "
            "devices vanish; with two names for the same GPUs, each hands them out as if they "
            "were free: two pods on one GPU that nobody shares",
            command="kubectl get daemonsets -A | grep device-plugin && kubectl -n NAMESPACE delete "
            "daemonset THE-ONE-TOO-MANY",
        )


CHECKS = (
    Check(
        RUNNING,
        KUBERNETES,
        "A device plugin offers the GPUs",
        facts.with_kubelet(_runs),
        needs=(kubelet.DIRECTORY, runtime_class.EXISTS),
    ),
    Check(
        SOCKET,
        KUBERNETES,
        "The device plugin has a socket that the kubelet can reach",
        facts.with_kubelet(_socket),
        needs=(RUNNING,),
    ),
    Check(
        "plugin.rivals",
        KUBERNETES,
        "One device plugin alone offers the GPUs",
        facts.with_kubelet(_rivals),
        needs=(RUNNING,),
    ),
    Check(
        REGISTRATION,
        KUBERNETES,
        "The kubelet has registered the GPUs",
        facts.with_kubelet(_registered),
        needs=(SOCKET,),
    ),
    Check(
        DEVICES,
        KUBERNETES,
        "The registered devices are healthy, and this node's",
        facts.with_kubelet(_devices),
        needs=(REGISTRATION,),
    ),
)
