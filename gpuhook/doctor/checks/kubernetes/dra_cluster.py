# SPDX-License-Identifier: Apache-2.0
"""Dynamic Resource Allocation in the cluster: API, slices, extended resources, permissions."""

from __future__ import annotations

from typing import Any

from gpuhook.doctor.checks.kubernetes import dra_driver, plugin
from gpuhook.node_facts import kubelet_facts as facts
from gpuhook.node_facts.check import (
    FAILED,
    WARNING,
    Finding,
    absent,
    check,
    fact,
    for_each,
    ok,
    unless,
)
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.node_facts.check import ExaminedNode

API = "dra.api"
_FIRST, _ALL_GATES = 34, 36  # minor versions: with the API, and with all gates on by default
# Feature gates that are on by default from 1.36, and what is different without them.
_GATES = {
    "DRAConsumableCapacity": "a shared GPU is offered as several devices without memory shares",
    "DRAPartitionableDevices": "MIG instances that overlap are not offered",
    "DRADeviceTaints": "unhealthy GPUs are not offered",
    "DRAExtendedResource": "pods that request an extended resource get no device by a claim",
}
_OPTIONAL = ("update resourceclaims/status", "associated-node:update resourceclaims/driver")


@fact
def dra(node: ExaminedNode) -> dict[str, Any] | None:
    """Return the API server's data on DRA, None without."""
    found = (facts.api(node) or {}).get("dra")
    return found if isinstance(found, dict) else None


def _no_data(node: ExaminedNode) -> Finding | None:
    if dra(node) is not None:
        return None
    reason = ((facts.api(node) or {}).get("refused") or {}).get("dra")
    return absent(f"the API server: {reason}") if reason else facts.without_api(node)


def _part(node: ExaminedNode, name: str) -> list[dict[str, Any]]:
    found = (dra(node) or {}).get(name)
    return found if isinstance(found, list) else []


def _lacks(name: str) -> Any:
    """Return a check's excuse that a part of the data is unknown."""

    def excuse(node: ExaminedNode) -> Finding | None:
        reason = ((dra(node) or {}).get("refused") or {}).get(name)
        return absent(f"the API server refuses {name}: {reason}") if reason else None

    return excuse


@check(API, "The API server has the API and the feature gates of DRA")
@unless(facts.no_kubelet)
@unless(dra_driver.no_driver)
@unless(_no_data)
def _api(node: ExaminedNode) -> Finding:
    found = dra(node) or {}
    minor, versions = found.get("minor"), found.get("versions") or []
    server = f"Kubernetes 1.{minor}" if minor is not None else "the API server"
    if not versions:
        return Finding(
            FAILED,
            f"{server} does not serve resource.k8s.io",
            meaning="the driver can publish no device, and claims cannot be created",
            command="update Kubernetes to 1.34 or later; 1.32 and 1.33 need the feature gate "
            "DynamicResourceAllocation in all components, and the API server "
            "--runtime-config=resource.k8s.io/v1beta1=true",
        )
    dropped = [one["driver"] for one in _part(node, "slices") if one.get("replicas")]
    if minor is None or minor >= _ALL_GATES:
        gates = dict([*_GATES.items()][:1]) if dropped else {}
    else:
        gates = _GATES
    if not gates:
        return ok(f"{server} serves resource.k8s.io {', '.join(versions)}")
    missing = "; ".join(f"{gate}: {effect}" for gate, effect in gates.items())
    how = f"drops fields of the slices of {dropped[0]}" if dropped else "has them off by default"
    return Finding(
        WARNING,
        f"{server} lacks feature gates of DRA, and {how}: {', '.join(gates)}",
        meaning=missing,
        command="use Kubernetes 1.36 or later, or set --feature-gates="
        f"{','.join(f'{gate}=true' for gate in gates)} for API server, scheduler, "
        "controller-manager and kubelet",
    )


@check("dra.slices", "The cluster has the devices of the DRA drivers", needs=(API,))
@unless(facts.no_kubelet)
@unless(_no_data)
@unless(_lacks("slices"))
@for_each(dra_driver.live, absent("no driver of Dynamic Resource Allocation for GPUs runs here"))
def _slices(node: ExaminedNode, driver: str) -> Finding:
    own = [one for one in _part(node, "slices") if one.get("driver") == driver]
    last = max((int(one.get("generation") or 0) for one in own), default=0)
    newest = [one for one in own if int(one.get("generation") or 0) == last]
    devices = sum(len(one.get("devices") or ()) for one in newest)
    wanted = newest[0].get("count") if newest else None
    logs = "kubectl get pods -A -o wide | grep -e dra # and the log of the pod of this node"
    if not own:
        message = f"{driver} runs here, but the cluster has no ResourceSlice of it for this node"
        meaning = "no claim gets a device of this node; the log of the driver has the reason"
        return Finding(FAILED, message, driver, meaning, logs)
    if wanted != len(newest):
        message = f"the pool of {driver} has {len(newest)} of {wanted} slices of generation {last}"
        meaning = "the scheduler allocates nothing of an incomplete pool"
        return Finding(FAILED, message, driver, meaning, f"{logs} && {dra_driver.RESTART}")
    if not devices:
        message = f"{driver} publishes no device of this node"
        meaning = "it found no GPU, or its configuration excludes all of them"
        return Finding(WARNING, message, driver, meaning, "sudo gpuhook doctor")
    return ok(f"{driver} publishes {devices} devices", subject=driver)


@check("dra.extended-resources", "Pods that request an extended resource get a DRA device")
@unless(facts.no_kubelet)
@unless(dra_driver.no_driver)
@unless(_no_data)
@unless(_lacks("classes"))
def _extended(node: ExaminedNode) -> Iterator[Finding]:
    names: dict[str, list[str]] = {}
    for one in _part(node, "classes"):
        if one.get("extendedResourceName"):
            names.setdefault(str(one["extendedResourceName"]), []).append(str(one.get("name")))
    domains = {vendor.domain for vendor in vendors() if vendor.dra_driver in dra_driver.live(node)}
    for name, classes in sorted(names.items()):
        if len(classes) > 1:
            yield _same_name(name, classes)
        if name.partition("/")[0] in domains:
            yield _count(node, name)
    if not any(name.partition("/")[0] in domains for name in names):
        yield absent("no DeviceClass has an extendedResourceName for GPUs of this node")


def _same_name(name: str, classes: list[str]) -> Finding:
    return Finding(
        WARNING,
        f"{', '.join(classes)} have the same extendedResourceName {name}",
        subject=name,
        meaning="the younger class applies, and of one age the first by name",
        command=f"kubectl edit deviceclass {classes[-1]}",
    )


def _count(node: ExaminedNode, name: str) -> Finding:
    answer = facts.api_node(node) or {}
    allocatable = answer.get("allocatable")
    text = str(allocatable.get(name, "0")) if isinstance(allocatable, dict) else "0"
    if not text.isdecimal() or int(text) == 0:
        return ok(f"{name}: pods get a device by a claim", subject=name)
    if facts.kubelet(node).plugins or plugin.gpu_sockets(node):
        return absent(f"a device plugin offers {text} of {name}: pods get those, not DRA devices")
    return Finding(
        FAILED,
        f"the node has {text} of {name} of a device plugin that does not run any more",
        subject=name,
        meaning="the scheduler takes the count for a device plugin's, and makes no claim: the pods "
        "fail on this node. The kubelet keeps the count for 5 minutes, or until it is restarted",
        command=f"{facts.kubelet(node).restart} && kubectl get node {answer.get('name')} -o "
        "jsonpath='{.status.allocatable}'",
    )


@check("dra.permissions", "The DRA drivers have their permissions")
@unless(facts.no_kubelet)
@unless(_no_data)
@unless(_lacks("drivers"))
@for_each(lambda node: _part(node, "drivers"), absent("no DaemonSet of a DRA driver for GPUs"))
def _permissions(_node: ExaminedNode, one: dict[str, Any]) -> Finding:
    missing = [str(text) for text in one.get("missing") or ()]
    name = f"{one.get('namespace')}/{one.get('name')}"
    account = f"service account {one.get('namespace')}/{one.get('serviceAccount')}"
    if not missing:
        return ok(f"{account} of {name} has the permissions of a driver", subject=name)
    is_optional = all(text in _OPTIONAL for text in missing)
    return Finding(
        WARNING if is_optional else FAILED,
        f"the {account} of {name} lacks {', '.join(missing)}",
        subject=name,
        meaning="claims have no state of their devices"
        if is_optional
        else "the driver cannot publish devices or read claims: GH1863 in its log",
        command="helm upgrade --reuse-values RELEASE CHART # its ClusterRole has all rules",
    )


CHECKS = (_api, _slices, _extended, _permissions)
