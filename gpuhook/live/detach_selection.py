# SPDX-License-Identifier: Apache-2.0
"""The device nodes that the names of a detach mean, and the replicas and files that go with them.

A replica is only an entry in the ledger: its device is the whole one, and remains while the
container has another replica of it, or the device itself.
"""

from __future__ import annotations

import os
import stat

from gpuhook.apply.live import hotplug_plan
from gpuhook.apply.spec import oci_spec
from gpuhook.errors import GpuhookError, fault
from gpuhook.live.common_edits import common_edits
from gpuhook.request import replicas
from gpuhook.request.resolve import NOTHING_BUT_FILES, resolve_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpuhook.cdi.hot.container_edits import ContainerEdits, DeviceNode
    from gpuhook.target.running_container import Target
    from gpuhook.vendors.interface import VendorNode


class Taken:
    """The device nodes of a vendor to remove, with their numbers, and the names that go with them.

    A node without a record is included if it exists or could be opened: afterwards the container
    cannot open a named device, whichever tool injected it. `replicas` are those of the ledger's
    entry that go. `is_last` means that no GPU of the vendor remains, so that the control nodes go,
    too.
    """

    def __init__(self, target: Target, node: VendorNode, names: Sequence[str]) -> None:
        """Raise GH1759 for a name that neither a spec nor the container has.

        GH1771 for a name without a spec, GH1770 for `none` while a GPU needs it.
        """
        self.devices: list[str] = []
        self._target = target
        self._node = node
        self._every = frozenset(node.capability_words)
        self._devices = node.nodes_by_device()
        shares = Shares(target, node, self._devices, names)
        self.replicas = shares.named
        names = [name for name in names if name not in shares.staying]
        held = self._own(target.granted)
        shared = self._shared(held)
        asked = self._named_nodes(names, held)
        asked = {path: node for path, node in asked.items() if path not in shared}
        self._needed = self._needed_besides(frozenset(asked), frozenset(held))
        self._named = frozenset(asked)
        asked = {path: node for path, node in asked.items() if path not in self._needed}
        self.nodes = [n for path, n in asked.items() if path in held or self._is_usable(n)]
        left = [path for path in held if path not in asked and path not in shared]
        is_rest = any(name.rpartition("=")[2] == NOTHING_BUT_FILES for name in names)
        if is_rest and left:
            raise fault("GH1770", id=target.found.id, nodes=", ".join(left))
        is_asked = is_rest or bool(asked)
        self.is_last = not left and bool(self.nodes or (is_asked and target.given))
        by_config = {node["path"] for node in target.by_config.get("deviceNodes") or ()}
        if self.is_last:
            # A detach that was killed has removed the control nodes' names, not yet the nodes.
            given = self._own(target.given)
            rest = (n for path, n in {**given, **held}.items() if path in shared - by_config)
            self.nodes += [node for node in map(self._numbered, rest) if node is not None]
        self.of_config = [node["path"] for node in self.nodes if node["path"] in by_config]

    def is_gone(self, name: str) -> bool:
        """Return whether a device, by its qualified name, or a replica is removed.

        A device has several names: it is gone if its nodes are, except for nodes that it shares
        with remaining devices, as the instances of one GPU do.
        """
        if name in self.devices or name in self.replicas:
            return True
        if self.is_last and "=" in name and self._node.serves(name):
            return True
        ending = "=" + device(name) if replicas.device_of(name) else name
        return any(
            nodes <= self._named and not nodes <= self._needed
            for other, nodes in self._devices.items()
            if other.endswith(ending)
        )

    def has_taken(self, uuid: str) -> bool:
        """Return whether the GPU or instance of this UUID is removed."""
        known = self._node.noted_nodes()
        return self.is_gone(uuid) or any(known.get(node["path"]) == uuid for node in self.nodes)

    def _own(self, edits: ContainerEdits) -> dict[str, DeviceNode]:
        """Return the vendor's device nodes of edits by their paths."""
        nodes = {node["path"]: node for node in edits.get("deviceNodes") or ()}
        own = self._node.own_nodes(nodes)
        return {path: node for path, node in nodes.items() if path in own}

    def _shared(self, held: dict[str, DeviceNode]) -> set[str]:
        """Return the nodes that belong to no single device: the control nodes."""
        try:
            common = common_edits(self._node).get("deviceNodes") or []
        except GpuhookError:  # no spec on this node: by their names
            return {path for path in held if not self._node.is_gpu_node(path)}
        return {*self._node.control_nodes, *(node["path"] for node in common)}

    def _named_nodes(
        self, names: Sequence[str], held: dict[str, DeviceNode]
    ) -> dict[str, DeviceNode]:
        """Return the nodes that the names mean.

        A name may be a node's path: a GPU that fell off the bus is no longer in any spec.
        """
        paths = [name for name in names if name.startswith("/dev/")]
        for path in paths:
            if path not in held and not self._node.is_node(path):
                raise self._unknown(f"{path} is not a device node of the driver", held)
        found = [held.get(path) or self._numbered({"path": path}) for path in paths]
        named = [name for name in names if name not in paths]
        if named:
            found += [
                held.get(node["path"]) or self._numbered(node)
                for node in self._nodes_by_name(named)
            ]
        return {node["path"]: node for node in map(self._numbered, filter(None, found)) if node}

    def _nodes_by_name(self, names: list[str]) -> list[DeviceNode]:
        try:
            grant = resolve_names(names, self._every, self._node)
        except GpuhookError as error:
            held = self._own(self._target.granted)
            if error.code == "GH1102":
                raise self._unknown(error.message, held) from error
            if error.code == "GH1104":
                node = self._node_of(held)
                raise fault("GH1771", reason=error.message, hint=error.hint, node=node) from error
            raise
        self.devices = grant.devices
        return grant.edits.get("deviceNodes") or []

    def _needed_besides(self, asked: frozenset[str], held: frozenset[str]) -> frozenset[str]:
        """Return the nodes of devices that the container has in addition to the named ones.

        The instances of one GPU share its node. A device that has all named nodes is the same one
        under another name, or all devices together. A container does not have those nodes of a
        device that its capabilities exclude.
        """
        needed: set[str] = set()
        for every in self._devices.values():
            nodes = frozenset(path for path in every if self._node.is_node(path))
            if nodes <= held and not asked <= every and not nodes <= asked:
                needed |= nodes
        return frozenset(needed)

    def _numbered(self, node: DeviceNode) -> DeviceNode | None:
        """Return the node with its numbers: the host's, else those in the container."""
        try:
            stated = oci_spec.oci_device(node)
        except GpuhookError:
            found = self._target.held.root.status(node["path"], follow=False)
            if found is None or not stat.S_ISCHR(found.st_mode):
                return None
            numbers = os.major(found.st_rdev), os.minor(found.st_rdev)
            return {**node, "type": "c", "major": numbers[0], "minor": numbers[1]}
        if stated["type"] not in "bc":
            return None
        return {
            **node,
            "type": stated["type"],
            "major": stated["major"],
            "minor": stated["minor"],
        }

    def _is_usable(self, node: DeviceNode) -> bool:
        held, rule = self._target.held, hotplug_plan.rule_of(node)
        if rule is None:
            return False
        found = held.root.status(node["path"], follow=False)
        is_there = found is not None and found.st_rdev == os.makedev(*rule.device[1:])
        allowed = held.rules.version != "none" and held.rules.verdict(*rule.device, "r")[0]
        return is_there or allowed

    def _unknown(self, what: str, held: dict[str, DeviceNode]) -> GpuhookError:
        has = f"the nodes {', '.join(held)}" if held else "no node of the driver"
        return fault("GH1759", name=what, nodes=has, node=self._node_of(held))

    def _node_of(self, held: dict[str, DeviceNode]) -> str:
        """Return a node that may be named, for an example."""
        return next(filter(self._node.is_gpu_node, held), self._node.vocabulary.example_node)


class Shares:
    """The replicas that the names of a detach mean, and whether their devices go with them.

    `named` are those of the ledger's entry that go; `staying` the names whose devices remain.
    `nodes` has the device nodes of each device, by its qualified name.
    """

    def __init__(
        self,
        target: Target,
        node: VendorNode,
        nodes: Mapping[str, frozenset[str]],
        names: Sequence[str],
    ) -> None:
        self._entry = target.entry
        self._node = node
        self._every = frozenset(node.capability_words)
        self._nodes = nodes
        self._known: dict[str, frozenset[str]] = {}
        noted = target.entry.get("replicas") or ()
        held: list[str] = [name for name in noted if replicas.device_of(name)]
        asked = [name for name in names if replicas.device_of(name)]
        self.named = [one for one in held if any(self._is_same(one, name) for name in asked)]
        kept = [one for one in held if one not in self.named]
        whole = self._whole(held, target)
        self.staying = [name for name in asked if self._is_kept(name, kept, whole)]

    def _is_same(self, one: str, other: str) -> bool:
        """Return whether two replica ids mean one replica, by any name of the device."""
        numbers = {int(name.rpartition(replicas.SEPARATOR)[2]) for name in (one, other)}
        return len(numbers) == 1 and self._is_one_device(one, other)

    def _is_one_device(self, one: str, other: str) -> bool:
        nodes = self._nodes_of(one)
        return device(one) == device(other) or (bool(nodes) and nodes == self._nodes_of(other))

    def _is_kept(self, name: str, kept: Iterable[str], whole: Sequence[frozenset[str]]) -> bool:
        """Return whether the device of a named replica remains.

        A replica that the container does not have removes its device only if the ledger does not
        know that device.
        """
        if any(self._is_one_device(one, name) for one in kept):
            return True
        nodes = self._nodes_of(name)
        if nodes and any(nodes <= every for every in whole):
            return True
        if any(self._is_same(one, name) for one in self.named):
            return False
        return not self._qualified(name).isdisjoint(self._entry.get("devices") or ())

    def _whole(self, held: Iterable[str], target: Target) -> list[frozenset[str]]:
        """Return the nodes of each device that the container has directly, not by a replica."""
        noted = self._entry.get("devices") or ()
        requested = self._entry.get("requested") or []
        by_replica = {name for one in held for name in self._qualified(one)}
        for name in requested:
            if not replicas.device_of(name):
                by_replica -= self._qualified(name)
        by_replica.difference_update(self._entry.get("whole") or ())
        whole = [self._nodes.get(name, frozenset()) for name in noted if name not in by_replica]
        if not requested:
            # Of config.json, without a recorded name: replicas are always recorded.
            nodes = target.by_config.get("deviceNodes") or ()
            whole.append(frozenset(node["path"] for node in nodes) - {*target.withdrawn})
        return whole

    def _nodes_of(self, name: str) -> frozenset[str]:
        """Return the nodes of the device that a replica id means, none without a spec."""
        nodes: frozenset[str] = frozenset()
        for qualified in self._qualified(name):
            nodes |= self._nodes.get(qualified, frozenset())
        return frozenset(path for path in nodes if self._node.is_node(path))

    def _qualified(self, name: str) -> frozenset[str]:
        """Return the qualified name of the device that a name means, as an attach records it."""
        plain = device(name)
        if plain not in self._known:
            try:
                self._known[plain] = frozenset(
                    resolve_names([plain], self._every, self._node).devices
                )
            except GpuhookError:
                self._known[plain] = frozenset()
        return self._known[plain]


def device(name: str) -> str:
    """Return the device that a name or a replica id means."""
    return replicas.device_of(name) or name
