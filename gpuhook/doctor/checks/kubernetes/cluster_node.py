# SPDX-License-Identifier: Apache-2.0
"""The node as the cluster has it: ready, with GPUs to allocate, with labels that are true."""

from __future__ import annotations

from gpuhook.doctor.check import FAILED, KUBERNETES, WARNING, Check, Finding, absent, ok
from gpuhook.doctor.checks.kubernetes import kubelet, plugin
from gpuhook.doctor.checks.kubernetes import kubelet_facts as facts
from gpuhook.node.kubelet_files import is_of_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from gpuhook.doctor.check import ExaminedNode

READY = "node.ready"
_COUNT, _DRIVER = "nvidia.com/gpu.count", "nvidia.com/cuda.driver-version.full"


def _ready(node: ExaminedNode) -> Iterator[Finding]:
    told = node.once(facts.api_node)
    if told is None:
        yield facts.untold(node)
        return
    name = str(told.get("name"))
    conditions = told.get("conditions")
    ready: dict[str, Any] = next(
        (
            one
            for one in (conditions if isinstance(conditions, list) else ())
            if isinstance(one, dict) and one.get("type") == "Ready"
        ),
        {},
    )
    if ready.get("status") in ("False", "Unknown"):
        yield Finding(
            FAILED,
            f"the cluster calls {name} NotReady: {ready.get('reason')}: {ready.get('message')}",
            subject=name,
            meaning="no pod is scheduled here, those that run are moved away, and the device "
            "plugin's pod with them",
            command=f"kubectl describe node {name} && {node.once(facts.kubelet).restart}",
        )
    elif told.get("unschedulable") is True:
        yield Finding(
            WARNING,
            f"{name} is cordoned",
            subject=name,
            meaning='pods stay Pending: "1 node(s) were unschedulable"',
            command=f"kubectl uncordon {name}",
        )
    else:
        yield ok(f"the cluster calls {name} ready", subject=name)


def _allocatable(node: ExaminedNode) -> Iterator[Finding]:
    told = node.once(facts.api_node)
    if told is None:
        yield facts.untold(node)
        return
    if reason := facts.no_gpus(node):
        yield absent(reason)
        return
    name = str(told.get("name"))
    capacity, allocatable = _gpus(told.get("capacity")), _gpus(told.get("allocatable"))
    if not any(allocatable.values()):
        yield _nothing(node, name, capacity)
        return
    for resource, count in sorted(capacity.items()):
        less = count - allocatable.get(resource, 0)
        if less > 0:
            yield Finding(
                WARNING,
                f"{less} of {count} {resource} of {name} are unhealthy",
                subject=resource,
                meaning="the device plugin has called them unhealthy, NVIDIA's for ever: less fits "
                "on this node than it has",
                command=f"sudo dmesg | grep -i xid && {facts.restart(node.once(facts.pods))}",
            )
        else:
            yield ok(f"{resource}: {count} allocatable", subject=resource)


def _nothing(node: ExaminedNode, name: str, capacity: dict[str, int]) -> Finding:
    had = ", ".join(f"{resource} {count}" for resource, count in sorted(capacity.items()))
    return Finding(
        FAILED,
        f"{name} has GPUs, and the cluster has none of them to allocate"
        + (f" (capacity: {had})" if had else ""),
        subject=name,
        meaning="pods that ask for a GPU stay Pending: "
        '"0/1 nodes are available: 1 Insufficient nvidia.com/gpu"',
        command=f"{facts.restart(node.once(facts.pods))} && "
        f"kubectl get node {name} -o jsonpath='{{.status.allocatable}}'",
    )


def _gpus(listed: object) -> dict[str, int]:
    """Return how many there are of each resource of GPUs; quantities are whole numbers."""
    found = {}
    for resource, count in (listed if isinstance(listed, dict) else {}).items():
        if is_of_gpus(str(resource), ()):
            found[str(resource)] = int(count) if str(count).isdecimal() else 0
    return found


def _labels(node: ExaminedNode) -> Iterator[Finding]:
    told, known = node.once(facts.api_node), node.once(facts.inventory)
    if told is None:
        yield facts.untold(node)
        return
    if known is None:
        yield absent("the node's GPUs are not known")
        return
    labels = told.get("labels")
    own = {
        str(name): str(value)
        for name, value in (labels if isinstance(labels, dict) else {}).items()
        if str(name).startswith("nvidia.com/")
    }
    if _COUNT not in own and _DRIVER not in own:
        yield absent("nobody labels this node with what its GPUs are")
        return
    if _DRIVER in own and known.driver.version and own[_DRIVER] != known.driver.version:
        yield _untrue(told, _DRIVER, own[_DRIVER], known.driver.version)
        return
    most = len(known.gpus) + sum(len(gpu.instances) for gpu in known.gpus)
    if own.get(_COUNT, "").isdecimal() and int(own[_COUNT]) > most:
        yield _untrue(told, _COUNT, own[_COUNT], str(most))
        return
    yield ok(f"{len(own)} labels of nvidia.com/ agree with the GPUs")


def _untrue(told: dict[str, Any], label: str, value: str, true: str) -> Finding:
    return Finding(
        WARNING,
        f"the node's label {label} says {value}, and it is {true}",
        subject=label,
        meaning="pods with a nodeSelector or affinity for that label land where they should not, "
        "or nowhere; the pod of GPU feature discovery no longer runs, or waits",
        command="kubectl get daemonsets -A | grep -e feature-discovery -e device-plugin && "
        f"kubectl label node {told.get('name')} {label}-",
    )


CHECKS = (
    Check(
        READY,
        KUBERNETES,
        "The cluster calls the node ready",
        facts.with_kubelet(_ready),
        needs=(kubelet.RUNNING,),
    ),
    Check(
        "node.allocatable",
        KUBERNETES,
        "The cluster has the node's GPUs to allocate",
        facts.with_kubelet(_allocatable),
        needs=("driver.bus", READY, plugin.DEVICES, plugin.RUNNING),
    ),
    Check(
        "node.labels",
        KUBERNETES,
        "The node's labels say what its GPUs are",
        facts.with_kubelet(_labels),
        needs=("driver.bus", READY),
    ),
)
