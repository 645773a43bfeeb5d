# SPDX-License-Identifier: Apache-2.0
"""What a detach takes away: which device nodes the names mean, and what goes with them."""

from __future__ import annotations

import os
import stat

from gpuhook.container import live, oci
from gpuhook.errors import GpuhookError, fault
from gpuhook.grant import replicas
from gpuhook.vendors.nvidia import words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.cdi.edits import DeviceNode
    from gpuhook.programs.granting import Granting
    from gpuhook.programs.target import Target

EVERY = words.parse_capabilities("all")


class Taken:
    """The device nodes to take away, with their numbers, and the names that go with them.

    A node that nobody noted counts as well, if it is there or could be opened: afterwards the
    container cannot open what was named, whoever gave it. `is_last` says that no GPU stays, so
    that what came with the first one goes too.
    """

    def __init__(self, target: Target, grants: Granting, names: Sequence[str]) -> None:
        """Raises GH1759 for a name that neither a spec nor the container has."""
        self.devices: list[str] = []
        self.replicas = [name for name in names if replicas.device_of(name)]
        self._target = target
        self._grants = grants
        self._devices = self._described()
        held = {node["path"]: node for node in target.granted.get("deviceNodes") or ()}
        shared = self._shared(held)
        asked = self._asked(names, held)
        asked = {path: node for path, node in asked.items() if path not in shared}
        needed = self._needed_besides(frozenset(asked), frozenset(held))
        asked = {path: node for path, node in asked.items() if path not in needed}
        self.nodes = [n for path, n in asked.items() if path in held or self._is_usable(n)]
        left = [path for path in held if path not in asked and path not in shared]
        self.is_last = not left and bool(self.nodes or (asked and target.given))
        by_config = {node["path"] for node in target.by_config.get("deviceNodes") or ()}
        self._gone = frozenset(asked)
        if self.is_last:
            # A detach that was killed has taken the control nodes' names out, not yet the nodes.
            given = {node["path"]: node for node in target.given.get("deviceNodes") or ()}
            rest = (n for path, n in {**given, **held}.items() if path in shared - by_config)
            self.nodes += [node for node in map(self._numbered, rest) if node is not None]
        self.of_config = [node["path"] for node in self.nodes if node["path"] in by_config]

    def is_gone(self, name: str) -> bool:
        """Return whether a device, by its qualified name, or a replica is taken away.

        A device has several names: it is gone when its nodes are.
        """
        if self.is_last or name in self.devices or name in self.replicas:
            return True
        device = "=" + _device(name) if replicas.device_of(name) else name
        return any(
            nodes and nodes <= self._gone
            for other, nodes in self._devices.items()
            if other.endswith(device)
        )

    def _described(self) -> dict[str, frozenset[str]]:
        """Return the nodes of each device of this node, {} without a spec."""
        try:
            return self._grants.nodes_by_device()
        except GpuhookError:
            return {}

    def _shared(self, held: dict[str, DeviceNode]) -> set[str]:
        """Return the nodes that no device has for itself: the control nodes."""
        try:
            common = self._grants.named(["none"], EVERY).edits.get("deviceNodes") or []
        except GpuhookError:  # no spec of this node: by their names
            return {path for path in held if not words.is_gpu_node(path)}
        return {node["path"] for node in common}

    def _asked(self, names: Sequence[str], held: dict[str, DeviceNode]) -> dict[str, DeviceNode]:
        """Return the nodes that the names mean.

        A name may be a node's path: a GPU that fell off the bus is in no spec any more.
        """
        paths = [name for name in names if name.startswith("/dev/")]
        for path in paths:
            if path not in held and not words.is_node(path):
                raise fault("GH1759", name=path, nodes=_listed(held))
        found = [held.get(path) or self._numbered({"path": path}) for path in paths]
        staying = set(self._other_replicas(names))
        named = [name for name in names if name not in paths and _device(name) not in staying]
        if named:
            found += [held.get(node["path"]) or self._numbered(node) for node in self._of(named)]
        return {node["path"]: node for node in map(self._numbered, filter(None, found)) if node}

    def _of(self, names: list[str]) -> list[DeviceNode]:
        try:
            grant = self._grants.named(names, EVERY)
        except GpuhookError as error:
            if error.code != "GH1102":
                raise
            held = {n["path"]: n for n in self._target.granted.get("deviceNodes") or ()}
            raise fault("GH1759", name=error.message, nodes=_listed(held)) from error
        self.devices = grant.devices
        return grant.edits.get("deviceNodes") or []

    def _other_replicas(self, names: Sequence[str]) -> list[str]:
        """Return the devices of which the container holds a replica that is not named."""
        kept = [name for name in self._target.entry.get("replicas", ()) if name not in names]
        asked = {_device(name) for name in names if replicas.device_of(name)}
        return [device for device in map(_device, kept) if device in asked]

    def _needed_besides(self, asked: frozenset[str], held: frozenset[str]) -> frozenset[str]:
        """Return the nodes of devices that the container holds besides those asked for.

        The instances of one GPU have its node in common. A device that has all that is asked for
        is the same one under another name, or all devices together. What a container's
        capabilities leave out of a device, it does not hold.
        """
        needed: set[str] = set()
        for every in self._devices.values():
            nodes = frozenset(path for path in every if words.is_node(path))
            if nodes <= held and not asked <= every and not nodes <= asked:
                needed |= nodes
        return frozenset(needed)

    def _numbered(self, node: DeviceNode) -> DeviceNode | None:
        """Return the node with its numbers: the host's, else those that it has in the container."""
        try:
            device = oci.stated(node)
        except GpuhookError:
            found = self._target.held.root.found(node["path"], follow=False)
            if found is None or not stat.S_ISCHR(found.st_mode):
                return None
            numbers = os.major(found.st_rdev), os.minor(found.st_rdev)
            return {**node, "type": "c", "major": numbers[0], "minor": numbers[1]}
        if device["type"] not in "bc":
            return None
        return {
            **node,
            "type": device["type"],
            "major": device["major"],
            "minor": device["minor"],
        }

    def _is_usable(self, node: DeviceNode) -> bool:
        held, rule = self._target.held, live.rule_of(node)
        if rule is None:
            return False
        found = held.root.found(node["path"], follow=False)
        is_there = found is not None and found.st_rdev == os.makedev(*rule.device[1:])
        allowed = held.rules.version != "none" and held.rules.verdict(*rule.device, "r")[0]
        return is_there or allowed


def _device(name: str) -> str:
    """Return the device that a name or a replica id means."""
    return replicas.device_of(name) or name


def _listed(held: dict[str, DeviceNode]) -> str:
    return ", ".join(held) or "none"
