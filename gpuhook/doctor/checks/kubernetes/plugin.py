# SPDX-License-Identifier: Apache-2.0
"""The device plugin: it runs, the kubelet reaches it, and the kubelet has its GPUs."""

from __future__ import annotations

from gpuhook.doctor.checks.kubernetes import kubelet, runtime_class
from gpuhook.errors import printable
from gpuhook.node_facts import kubelet_facts as facts
from gpuhook.node_facts.check import FAILED, WARNING, Finding, absent, check, fact, ok, unless
from gpuhook.node_facts.sources import kubelet_files, node_readings
from gpuhook.vendors.nvidia.doctor.facts import driver_facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.node_facts.check import ExaminedNode
    from gpuhook.node_facts.sources.kubelet_files import Checkpoint

RUNNING, SOCKET, REGISTRATION = "plugin.running", "plugin.socket", "plugin.registration"
DEVICES = "plugin.devices"
_PENDING = (
    'pods that request a GPU stay Pending: "0/1 nodes are available: 1 Insufficient nvidia.com/gpu"'
)
_LOG_LINES = 40
_TROUBLE = ("error", "fail", "unable", "could not", "cannot", "incompatible", "level=fatal")


@fact
def checkpoint(node: ExaminedNode) -> Checkpoint | None:
    """Return the kubelet's checkpoint of devices."""
    return kubelet_files.checkpoint(node.tree, facts.kubelet(node).directory)


@fact
def gpu_sockets(node: ExaminedNode) -> list[str]:
    """Return the sockets of device plugins for GPUs."""
    place = facts.kubelet(node).directory
    return [n for n in kubelet_files.sockets(node.tree, place) if kubelet_files.is_gpu_socket(n)]


def no_gpus(node: ExaminedNode) -> Finding | None:
    """Return why a device plugin has nothing to offer, None if it has."""
    inventory = driver_facts.inventory_of(node)
    if inventory is None:
        code = node.readings.of(node_readings.INVENTORY).code
        # Without a code the driver was not called: the files show whether there are GPUs.
        return absent(f"the driver does not answer ({code})") if code else None
    if all(gpu.lost for gpu in inventory.gpus):
        return absent("the driver has no GPU that a device plugin could offer")
    return None


@check(RUNNING, "A device plugin offers the GPUs", needs=(kubelet.DIRECTORY, runtime_class.EXISTS))
@unless(facts.no_kubelet)
@unless(no_gpus)
def _running(node: ExaminedNode) -> Finding:
    kubelet = facts.kubelet(node)
    if kubelet.plugins:
        plugins = [f"{one.vendor} device plugin (pid {one.pid})" for one in kubelet.plugins]
        return ok(f"{', '.join(plugins)} runs")
    if sockets := gpu_sockets(node):
        return ok(f"a device plugin has the socket {', '.join(sockets)}")
    if kubelet_files.has_dra_driver(node.tree, kubelet.directory):
        return absent("a driver for dynamic resource allocation offers the GPUs")
    if not kubelet.processes:
        return absent("the files of a node do not show whether a device plugin is running")
    return _none_runs(node)


def _none_runs(node: ExaminedNode) -> Finding:
    pods = facts.pods(node)
    place = facts.kubelet(node).plugin_directory
    message = (
        f"the node has GPUs, but no device plugin offers them: {place} has no device plugin socket"
    )
    for pod in pods:
        if line := _last_error(node, pod.logs):
            message += f'; the last error of {pod.name or pod.container} is "{line}"'
    command = (
        "helm repo add nvdp https://nvidia.github.io/k8s-device-plugin && helm upgrade -i "
        "nvdp nvdp/nvidia-device-plugin -n nvidia-device-plugin --create-namespace"
    )
    if pods and pods[0].name:
        named = f"-n {pods[0].namespace} {pods[0].name}"
        command = f"kubectl describe pod {named} && {facts.restart(pods)}"
    elif pods:
        command = "kubectl get pods -A -o wide | grep device-plugin"
    return Finding(
        FAILED,
        message,
        meaning=f"{_PENDING}. The DaemonSet of a plugin starts on nodes that match its affinity, "
        "such as the label nvidia.com/gpu.present=true; a GPU operator's chart from a git clone "
        "contains no plugin",
        command=command,
        looked_at=(place, kubelet_files.POD_LOGS),
    )


def _last_error(node: ExaminedNode, directory: str) -> str:
    lines = kubelet_files.last_lines(node.tree, directory, _LOG_LINES) if directory else []
    errors = [line for line in lines if any(word in line.lower() for word in _TROUBLE)]
    return printable(errors[-1].strip(), 300) if errors else ""


@check(SOCKET, "The device plugin has a socket that the kubelet can reach", needs=(RUNNING,))
@unless(facts.no_kubelet)
def _socket(node: ExaminedNode) -> Finding:
    kubelet = facts.kubelet(node)
    sockets, place = gpu_sockets(node), kubelet.plugin_directory
    if sockets:
        return ok(f"{', '.join(sockets)} in {place}", place)
    if not kubelet.plugins:
        return absent("no device plugin for GPUs is running")
    first = kubelet.plugins[0]
    return Finding(
        FAILED,
        (
            f"{first.vendor} device plugin is running (pid {first.pid}), but {place} does not "
            "contain its socket"
        ),
        subject=place,
        meaning="the kubelet removes all sockets at startup; a plugin that does not "
        f"notice (or waits for a GPU, or uses another directory) offers nothing: {_PENDING}",
        command=facts.restart(facts.pods(node)),
        looked_at=(place,),
    )


@check("plugin.rivals", "Only one device plugin offers the GPUs", needs=(RUNNING,))
@unless(facts.no_kubelet)
def _rivals(node: ExaminedNode) -> Finding:
    kubelet = facts.kubelet(node)
    vendors = [one.vendor for one in kubelet.plugins]
    if not kubelet.processes:
        return absent("the files of a node do not show which processes run")
    if len(set(vendors)) < 2 and vendors.count(facts.NVIDIA) < 2:
        return ok("no two device plugins offer the same GPUs")
    pids = ", ".join(f"{one.vendor} (pid {one.pid})" for one in kubelet.plugins)
    return Finding(
        FAILED,
        f"{len(kubelet.plugins)} device plugins for GPUs run: {pids}",
        meaning="the kubelet keeps the last plugin that registers a resource, and the devices "
        "of the other disappear; if they use two names for the same GPUs, each assigns GPUs that "
        "the other has assigned",
        command="kubectl get daemonsets -A | grep device-plugin && kubectl -n NAMESPACE delete "
        "daemonset THE-ONE-TOO-MANY",
    )


@check(REGISTRATION, "The kubelet has registered the GPUs", needs=(SOCKET,))
@unless(facts.no_kubelet)
def _registration(node: ExaminedNode) -> Finding:
    found, sockets = checkpoint(node), gpu_sockets(node)
    if not sockets:
        return absent("no device plugin for GPUs has a socket here")
    if found is not None and found.trouble:
        return Finding(
            WARNING,
            f"{found.path} cannot be read: {found.trouble}",
            subject=found.path,
            meaning="if the kubelet cannot read it either, it forgets which pod has which device",
            command=f"sudo rm {found.path} && {facts.kubelet(node).restart}",
            looked_at=(found.path,),
        )
    if found is not None and found.gpus:
        counts = ", ".join(f"{name} ({len(ids)})" for name, ids in sorted(found.gpus.items()))
        return ok(f"the kubelet has registered {counts}", found.path)
    place = facts.kubelet(node).plugin_directory
    return Finding(
        FAILED,
        f"{sockets[0]} is in {place}, but the kubelet has registered no GPU resource",
        subject=sockets[0],
        meaning=f"kubectl describe node shows no nvidia.com/gpu, and {_PENDING}",
        command=facts.restart(facts.pods(node)),
        looked_at=(place,),
    )


@check(DEVICES, "The registered devices are healthy and exist on this node", needs=(REGISTRATION,))
@unless(facts.no_kubelet)
def _devices(node: ExaminedNode) -> Iterator[Finding]:
    found = checkpoint(node)
    if found is None or not found.gpus:
        yield absent("the kubelet has registered no GPU resource")
        return
    if reason := no_gpus(node):
        yield reason
        return
    here = _uuids(node)
    for resource, ids in sorted(found.gpus.items()):
        named = {kubelet_files.uuid(one) for one in ids}
        # Other names are indices (an option of NVIDIA's plugin), or those of GKE: nvidia0.
        uuids = {one for one in named if one.startswith(("GPU-", "MIG-"))}
        strangers = sorted(uuids - here) if here else []
        if strangers:
            yield _strangers(node, resource, strangers, found.path)
        elif ids:
            yield ok(f"{resource}: {len(ids)} healthy", found.path, subject=resource)
    if not any(found.gpus.values()):
        names = ", ".join(sorted(found.gpus))
        yield Finding(
            FAILED,
            f"{names} is registered, but none of its devices is healthy: allocatable is 0",
            subject=names,
            meaning=f"{_PENDING}. The plugin has exited, has withdrawn its list, or has marked "
            "every GPU unhealthy, which NVIDIA's does forever after one XID",
            command=facts.restart(facts.pods(node)),
            looked_at=(found.path,),
        )


def _uuids(node: ExaminedNode) -> set[str]:
    inventory = driver_facts.inventory_of(node)
    gpus = inventory.gpus if inventory else ()
    if any(gpu.lost and not gpu.uuid for gpu in gpus):
        return set()  # the UUID of a lost GPU may be unknown: no device can be called foreign
    uuids = {gpu.uuid for gpu in gpus} | {one.uuid for gpu in gpus for one in gpu.instances}
    return {uuid for uuid in uuids if uuid}


def _strangers(node: ExaminedNode, resource: str, strangers: list[str], path: str) -> Finding:
    return Finding(
        WARNING,
        f"the kubelet has {', '.join(strangers[:4])} registered as {resource}, which this node "
        "does not have",
        subject=resource,
        meaning=(
            "after a GPU was replaced or the MIG layout was changed, NVIDIA's plugin still offers "
            "the "
            'old devices: "unknown device", or a container without its GPU'
        ),
        command=facts.restart(facts.pods(node)),
        looked_at=(path,),
    )


CHECKS = (_running, _socket, _rivals, _registration, _devices)
