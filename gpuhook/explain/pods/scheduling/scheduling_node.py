# SPDX-License-Identifier: Apache-2.0
"""What is known of a node for scheduling: its labels, its name and its taints.

A Node in the manifest (kubectl get node NAME -o yaml) has all of them. Without one, the labels are
those that gpuhook writes, and those that the kubelet and Node Feature Discovery take from facts
that gpuhook has too. Other labels and the taints are then unknown.
"""

from __future__ import annotations

import os
import re
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any

from gpuhook.device_plugin.labels import label_parts
from gpuhook.device_plugin.offer import resources
from gpuhook.errors import FileError, GpuhookError, printable
from gpuhook.node import daemons
from gpuhook.node_facts.sources.node_tree import DirectoryTree
from gpuhook.vendors.catalogue import vendor_of
from gpuhook.vendors.nvidia.gpu import features
from gpuhook.vendors.nvidia.inventory.inventory import Driver, Node
from gpuhook.vendors.nvidia.labels.nvidia_labels import PREFIX
from gpuhook.vendors.vendor_worker import call_vendor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.labels.label_parts import LabelPart
    from gpuhook.explain.pods.manifest_value import Value
    from gpuhook.vendors.plugin.vendor_part import VendorPart

_HOSTNAME = "kubernetes.io/hostname"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # others: as uname(2) has them
_KERNEL = "feature.node.kubernetes.io/kernel-version.full"
# Values by facts that an inventory and node.json do not have.
_UNKNOWN_HERE = ("gpu.clique", "gfd.timestamp")
_UNKNOWN_ELSEWHERE = (
    "gpu.machine", "gpu.mode", "vgpu.present", "vgpu.host-driver-version",
    "vgpu.host-driver-branch",
)  # fmt: skip
_MOST_TAINTS = 100  # of a Node of a manifest, which all pods are compared with
_TITLED = frozenset(("k3s", "k3s-agent", "k3s-server"))  # their command lines have no options
_KUBELETS = _TITLED | {"kubelet", "rke2"}
_NAME_OPTIONS = ("--hostname-override", "--node-name")
_BY_DRIVER = ".memory-limit-by"  # whether the driver enforces limits is not asked


@dataclass(frozen=True, slots=True)
class NodeTaint:
    """A taint of a node."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """Return it as `kubectl describe node` does."""
        return printable(f"{self.key}{'=' if self.value else ''}{self.value}:{self.effect}")


@dataclass(frozen=True, slots=True)
class SchedulingNode:
    """A node for the scheduler. `taints` is None if they are unknown.

    `is_complete`: the labels are all labels of the node. `owned` are patterns of names: all labels
    with such a name are among them, except the `unknown` ones and those with a pattern of `unread`.
    """

    source: str
    labels: Mapping[str, str]
    name: str | None = None
    taints: tuple[NodeTaint, ...] | None = None
    is_complete: bool = False
    owned: tuple[str, ...] = ()
    unknown: frozenset[str] = frozenset()
    unread: tuple[str, ...] = ()

    def has_label(self, key: str) -> bool | None:
        """Return whether the node has a label, None if that is unknown."""
        if key in self.labels or self.is_complete:
            return key in self.labels
        is_known = any(re.fullmatch(pattern, key) for pattern in self.owned)
        return False if is_known and not self._is_unknown(key) else None

    def _is_unknown(self, key: str) -> bool:
        is_unread = any(re.fullmatch(pattern, key) for pattern in self.unread)
        return is_unread or key in self.unknown or key.endswith(_BY_DRIVER)


def read_node(node: Value) -> SchedulingNode:
    """Return a Node of a manifest."""
    name = node.at("metadata", "name").text()
    return SchedulingNode(
        source=f"Node {printable(name)}",
        labels=node.at("metadata", "labels").texts(),
        name=name or None,
        taints=tuple(
            NodeTaint(one["key"].text(), one["value"].text(), one["effect"].text())
            for one in node.at("spec", "taints").items()[:_MOST_TAINTS]
        ),
        is_complete=True,
    )


def chosen_node(nodes: Sequence[SchedulingNode], host_root: str | None) -> SchedulingNode | None:
    """Return the Node that describes the node: the only one, or the one of its name; else None."""
    if len(nodes) == 1:
        return nodes[0]
    name = _host_name(host_root) if nodes else None
    return next((one for one in nodes if name and one.name == name), None)


def _host_name(host_root: str | None) -> str | None:
    """Return the name by which the kubelet registers this machine, None if it is unknown.

    A pod has another host name; there, only the variable NODE_NAME is known.
    """
    if not _is_here(host_root):
        return None
    given = os.environ.get("NODE_NAME")
    if given or "KUBERNETES_SERVICE_HOST" in os.environ:
        return given or None
    kubelets: list[dict[str, Any]] = []
    with suppress(OSError, GpuhookError), closing(DirectoryTree("/")) as tree:
        kubelets += [one for one in daemons.processes(tree) if one["name"] in _KUBELETS]
    found = next(filter(None, (_name_option(one["argv"]) for one in kubelets)), "")
    if not found and any(one["name"] in _TITLED for one in kubelets):
        return None
    return (found or os.uname().nodename).lower()  # as the kubelet does


def _name_option(argv: Sequence[str]) -> str:
    """Return the node's name in the command line of a kubelet, "" without one."""
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        if option in _NAME_OPTIONS:
            return value if equals else following
    return ""


def _is_here(host_root: str | None) -> bool:
    return host_root is not None and os.path.abspath(host_root) == "/"


def scheduling_node(
    every: Sequence[VendorPart], configuration: Configuration, host_root: str | None
) -> SchedulingNode:
    """Return what is known of a node; `host_root` is None for a node that is not this machine.

    `every` has the known GPUs of the vendors.
    """
    node = next((one.inventory for one in every if isinstance(one.inventory, Node)), None)
    parts = [one for one in every if one.inventory is not node]
    labels = {"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux"}
    name = _host_name(host_root)
    if _is_here(host_root):
        machine = os.uname()
        architecture = _ARCHITECTURES.get(machine.machine, machine.machine)
        labels |= dict.fromkeys(("kubernetes.io/arch", "beta.kubernetes.io/arch"), architecture)
        labels[_KERNEL] = machine.release
        if name:
            labels[_HOSTNAME] = name
    unknown = {PREFIX + key for key in _UNKNOWN_HERE}
    if host_root is None:
        unknown |= {PREFIX + key for key in _UNKNOWN_ELSEWHERE}
    if node is not None and any(gpu.pci_bus_id for gpu in node.gpus):
        labels[features.PCI_LABEL] = "true"
    found = _label_parts(node, configuration, host_root, parts)
    labels |= {
        key: value
        for key, value in label_parts.merged(found.values()).items()
        if key not in unknown and not key.endswith(_BY_DRIVER)
    }
    owned = (part.names for part in found.values())
    return SchedulingNode(
        source="the labels that gpuhook writes",
        labels=labels,
        name=name,
        owned=tuple(filter(None, owned)),
        unknown=frozenset(unknown),
        unread=tuple(filter(None, (part.unread for part in found.values()))),
    )


def _label_parts(
    node: Node | None,
    configuration: Configuration,
    host_root: str | None,
    parts: Sequence[VendorPart],
) -> dict[str, LabelPart]:
    """Return the labels by vendor; those of the first vendor only if `node` is known."""
    known = node or Node(Driver())
    # Without NVML: its facts are in the node, and a driver may hang.
    known = replace(known, driver=replace(known.driver, nvml=None))
    if node is None and not parts:
        return {}
    others = [part.inventory for part in parts]
    try:
        offered = resources.offered(known, configuration, *others).resources
    except FileError:  # the strategy single cannot offer these GPUs together
        offered = ()
    own = [] if node is None else [vendor_of(known).inventory_part(known)]
    every = [*own, *parts]
    return label_parts.label_parts(
        every, offered, configuration, host_root=host_root, call=call_vendor
    )
