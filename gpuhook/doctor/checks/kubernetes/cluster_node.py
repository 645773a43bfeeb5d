# SPDX-License-Identifier: Apache-2.0
"""The node object of the cluster: ready, with allocatable GPUs and correct labels."""

from __future__ import annotations

from gpuhook.doctor.checks.kubernetes import dra_driver, kubelet, plugin
from gpuhook.node_facts import kubelet_facts as facts
from gpuhook.node_facts.check import FAILED, WARNING, Finding, absent, check, ok, unless
from gpuhook.node_facts.sources.kubelet_files import is_of_gpus
from gpuhook.vendors.nvidia.doctor.facts import driver_facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from gpuhook.node_facts.check import ExaminedNode

READY = "node.ready"
_COUNT, _DRIVER = "nvidia.com/gpu.count", "nvidia.com/cuda.driver-version.full"


@check(READY, "The node is Ready in the cluster", needs=(kubelet.RUNNING,))
@unless(facts.no_kubelet)
@unless(facts.no_api)
def _ready(node: ExaminedNode) -> Finding:
    answer = facts.api_node(node) or {}
    name, conditions = str(answer.get("name")), answer.get("conditions")
    listed = conditions if isinstance(conditions, list) else []
    ready = next(
        (one for one in listed if isinstance(one, dict) and one.get("type") == "Ready"), {}
    )
    if ready.get("status") in ("False", "Unknown"):
        return Finding(
            FAILED,
            f"{name} is NotReady: {ready.get('reason')}: {ready.get('message')}",
            subject=name,
            meaning="no pod is scheduled here, and running pods are evicted, including "
            "the device plugin's",
            command=f"kubectl describe node {name} && {facts.kubelet(node).restart}",
        )
    if answer.get("unschedulable") is not True:
        return ok(f"{name} is Ready", subject=name)
    return Finding(
        WARNING,
        f"{name} is cordoned",
        subject=name,
        meaning='pods stay Pending: "1 node(s) were unschedulable"',
        command=f"kubectl uncordon {name}",
    )


def _by_claims(node: ExaminedNode) -> Finding | None:
    """Return that GPUs are no resource of the node, since only DRA drivers offer them."""
    has_plugin = facts.kubelet(node).plugins or plugin.gpu_sockets(node)
    if has_plugin or not dra_driver.live(node):
        return None
    return absent(f"{', '.join(dra_driver.live(node))} offers the GPUs for claims")


@check(
    "node.allocatable",
    "The cluster can allocate the node's GPUs",
    needs=(
        "driver.bus",
        READY,
        plugin.DEVICES,
        plugin.RUNNING,
        dra_driver.REGISTRATION,
        dra_driver.PREPARED,
    ),
)
@unless(facts.no_kubelet)
@unless(facts.no_api)
@unless(plugin.no_gpus)
@unless(_by_claims)
def _allocatable(node: ExaminedNode) -> Iterator[Finding]:
    answer = facts.api_node(node) or {}
    name = str(answer.get("name"))
    capacity, allocatable = _gpus(answer.get("capacity")), _gpus(answer.get("allocatable"))
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
                meaning="the device plugin has marked them unhealthy (NVIDIA's does so forever): "
                "fewer pods fit on this node",
                command=f"sudo dmesg | grep -i xid && {facts.restart(facts.pods(node))}",
            )
        else:
            yield ok(f"{resource}: {count} allocatable", subject=resource)


def _nothing(node: ExaminedNode, name: str, capacity: dict[str, int]) -> Finding:
    had = ", ".join(f"{resource} {count}" for resource, count in sorted(capacity.items()))
    return Finding(
        FAILED,
        f"{name} has GPUs, but none of them is allocatable in the cluster"
        + (f" (capacity: {had})" if had else ""),
        subject=name,
        meaning="pods that request a GPU stay Pending: "
        '"0/1 nodes are available: 1 Insufficient nvidia.com/gpu"',
        command=f"{facts.restart(facts.pods(node))} && "
        f"kubectl get node {name} -o jsonpath='{{.status.allocatable}}'",
    )


def _gpus(listed: object) -> dict[str, int]:
    """Return the GPU resources of a list, with their quantities."""
    found = {}
    for resource, count in (listed if isinstance(listed, dict) else {}).items():
        if is_of_gpus(str(resource), ()):
            found[str(resource)] = int(count) if str(count).isdecimal() else 0
    return found


@check("node.labels", "The labels of the node match its GPUs", needs=("driver.bus", READY))
@unless(facts.no_kubelet)
@unless(facts.no_api)
def _labels(node: ExaminedNode) -> Finding:
    answer, inventory = facts.api_node(node) or {}, driver_facts.inventory_of(node)
    if inventory is None:
        return absent("the node's GPUs are not known")
    labels = answer.get("labels")
    own = {
        str(name): str(value)
        for name, value in (labels if isinstance(labels, dict) else {}).items()
        if str(name).startswith("nvidia.com/")
    }
    if _COUNT not in own and _DRIVER not in own:
        return absent("the node has no labels that describe its GPUs")
    version = inventory.driver.version
    if _DRIVER in own and version and own[_DRIVER] != version:
        return _untrue(answer, _DRIVER, own[_DRIVER], version)
    most = len(inventory.gpus) + sum(len(gpu.instances) for gpu in inventory.gpus)
    if own.get(_COUNT, "").isdecimal() and int(own[_COUNT]) > most:
        return _untrue(answer, _COUNT, own[_COUNT], str(most))
    return ok(f"{len(own)} labels of nvidia.com/ match the GPUs")


def _untrue(answer: dict[str, Any], label: str, value: str, true: str) -> Finding:
    return Finding(
        WARNING,
        f"the node's label {label} is {value}, but the correct value is {true}",
        subject=label,
        meaning="pods with a nodeSelector or affinity for that label run on the wrong node or on "
        "none; the GPU feature discovery pod is not running or is waiting",
        command="kubectl get daemonsets -A | grep -e feature-discovery -e device-plugin && "
        f"kubectl label node {answer.get('name')} {label}-",
    )


CHECKS = (_ready, _allocatable, _labels)
