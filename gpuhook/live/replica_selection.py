# SPDX-License-Identifier: Apache-2.0
"""Replicas of a container's devices: which ones the ledger knows, and what else holds a device.

A replica is an entry in the ledger and no more: its device is the whole one, and stays while
another replica of it is held, or the device itself.
"""

from __future__ import annotations

from gpuhook.errors import GpuhookError
from gpuhook.request import replicas
from gpuhook.request.resolve import resolve_names
from gpuhook.vendors.nvidia.hot import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpuhook.target.running_container import Target
    from gpuhook.vendors.nvidia.hot.nvidia_node import NvidiaNode

_EVERY = vocabulary.parse_capabilities("all")


class Shares:
    """The replicas that the names of a detach mean, and whether their devices go with them.

    `named` are those of the ledger's entry that go; `staying` the names whose devices stay.
    `nodes` has the device nodes of each device, by its qualified name.
    """

    def __init__(
        self,
        target: Target,
        node: NvidiaNode,
        nodes: Mapping[str, frozenset[str]],
        names: Sequence[str],
    ) -> None:
        self._entry = target.entry
        self._node = node
        self._nodes = nodes
        self._known: dict[str, frozenset[str]] = {}
        noted = target.entry.get("replicas") or ()
        held: list[str] = [name for name in noted if replicas.device_of(name)]
        asked = [name for name in names if replicas.device_of(name)]
        self.named = [one for one in held if any(self._is_same(one, name) for name in asked)]
        kept = [one for one in held if one not in self.named]
        whole = self._whole(held, target)
        self.staying = [name for name in asked if self._stays(name, kept, whole)]

    def _is_same(self, one: str, other: str) -> bool:
        """Return whether two replica ids are one, by whatever name of the device."""
        numbers = {int(name.rpartition(replicas.SEPARATOR)[2]) for name in (one, other)}
        return len(numbers) == 1 and self._is_one_device(one, other)

    def _is_one_device(self, one: str, other: str) -> bool:
        nodes = self._nodes_of(one)
        return device(one) == device(other) or (bool(nodes) and nodes == self._nodes_of(other))

    def _stays(self, name: str, kept: Iterable[str], whole: Sequence[frozenset[str]]) -> bool:
        """Return whether the device of a replica that is named stays all the same.

        A replica that is not held takes its device along only where the ledger knows nothing of
        that device.
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
        """Return the nodes of each device that the container holds as such, not by a replica."""
        noted = self._entry.get("devices") or ()
        requested = self._entry.get("requested") or []
        by_replica = {name for one in held for name in self._qualified(one)}
        for name in requested:
            if not replicas.device_of(name):
                by_replica -= self._qualified(name)
        by_replica.difference_update(self._entry.get("whole") or ())
        whole = [self._nodes.get(name, frozenset()) for name in noted if name not in by_replica]
        if not requested:
            # Of config.json, and nobody noted by what name: replicas are always noted.
            nodes = target.by_config.get("deviceNodes") or ()
            whole.append(frozenset(node["path"] for node in nodes) - {*target.withdrawn})
        return whole

    def _nodes_of(self, name: str) -> frozenset[str]:
        """Return the nodes of the device that a replica id means, none without a spec."""
        nodes: frozenset[str] = frozenset()
        for qualified in self._qualified(name):
            nodes |= self._nodes.get(qualified, frozenset())
        return frozenset(path for path in nodes if vocabulary.is_node(path))

    def _qualified(self, name: str) -> frozenset[str]:
        """Return the qualified name of the device that a name means, as an attach notes it."""
        plain = device(name)
        if plain not in self._known:
            try:
                self._known[plain] = frozenset(resolve_names([plain], _EVERY, self._node).devices)
            except GpuhookError:
                self._known[plain] = frozenset()
        return self._known[plain]


def device(name: str) -> str:
    """Return the device that a name or a replica id means."""
    return replicas.device_of(name) or name
