# SPDX-License-Identifier: Apache-2.0
"""The changes that make the stored slices of a pool those of its layout.

The scheduler uses a pool only if the slices of its highest generation are complete. One changed
slice keeps the generation; any other change writes all slices in a new generation. The name of a
slice begins with its number in the layout.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from gpuhook.host.hot import fastjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

_NUMBER = re.compile(r"([0-9a-f]{5,12})-")


@dataclass(frozen=True, slots=True)
class StoredSlice:
    """A slice of the API server; its `spec` is one of v1."""

    metadata: Mapping[str, Any]
    spec: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.metadata.get("name", ""))

    @property
    def uid(self) -> str:
        return str(self.metadata.get("uid", ""))

    @property
    def version(self) -> str:
        return str(self.metadata.get("resourceVersion", ""))

    @property
    def generation(self) -> int:
        """The generation of the pool, not that of the object."""
        generation = self.pool.get("generation")
        return generation if isinstance(generation, int) else 0

    @property
    def pool(self) -> Mapping[str, Any]:
        return fastjson.fields(self.spec, "pool")

    @property
    def number(self) -> int | None:
        """The number at the beginning of the name."""
        match = _NUMBER.match(self.name)
        return int(match[1], 16) if match else None


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """The slices to delete, then those to update, then those to create, by their numbers."""

    deletes: tuple[StoredSlice, ...] = ()
    updates: tuple[tuple[StoredSlice, dict[str, Any]], ...] = ()
    creates: tuple[tuple[int, dict[str, Any]], ...] = ()
    generation: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.deletes or self.updates or self.creates)


@dataclass(frozen=True, slots=True)
class SliceLayout:
    """The slices that a pool should have. `generation` is the highest one known so far.

    `is_equal` returns whether a stored slice is one with a spec.
    """

    specs: Sequence[dict[str, Any]]
    is_equal: Callable[[StoredSlice, dict[str, Any]], bool]
    generation: int = 0

    def plan(self, stored: Iterable[StoredSlice]) -> SlicePlan:
        """Return the changes; none if the stored slices are as they should be."""
        all_stored = list(stored)
        name = self.specs[0]["pool"]["name"]
        own = [one for one in all_stored if one.pool.get("name") == name]
        highest = max((one.generation for one in own), default=0)
        slots = self._slots(own)
        kept = {one.uid for one in slots.values()}
        deletes = tuple(one for one in all_stored if one.uid not in kept)
        wanted = [self._complete(spec, highest) for spec in self.specs]
        changed = [n for n, one in slots.items() if not self.is_equal(one, wanted[n])]
        is_whole = len(slots) == len(wanted) and all(
            one.generation == highest and one.pool.get("resourceSliceCount") == len(wanted)
            for one in slots.values()
        )
        if is_whole and len(changed) <= 1:
            updates = tuple((slots[n], wanted[n]) for n in changed)
            return SlicePlan(deletes, updates, generation=highest)
        generation = max(highest, self.generation) + 1
        wanted = [self._complete(spec, generation) for spec in self.specs]
        return SlicePlan(
            deletes,
            tuple((slots[n], wanted[n]) for n in sorted(slots)),
            tuple((n, spec) for n, spec in enumerate(wanted) if n not in slots),
            generation,
        )

    def _slots(self, own: Iterable[StoredSlice]) -> dict[int, StoredSlice]:
        """Return the slice for each number of the layout; a retried create may leave two."""
        found: dict[int, StoredSlice] = {}
        for one in sorted(own, key=lambda one: (-one.generation, one.name)):
            number = one.number
            if number is not None and number < len(self.specs):
                found.setdefault(number, one)
        return found

    def _complete(self, spec: Mapping[str, Any], generation: int) -> dict[str, Any]:
        pool = {"generation": generation, "resourceSliceCount": len(self.specs)}
        return {**spec, "pool": {**spec["pool"], **pool}}


@dataclass(slots=True)
class SliceMemory:
    """What this process wrote: for slices that a server or webhook changes, and for watches.

    `sent` has the spec that was sent and the one that was stored, by uid: such a slice is not
    written again.
    """

    sent: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = field(default_factory=dict)
    versions: dict[tuple[str, str], None] = field(default_factory=dict)  # (uid, resourceVersion)

    def add(self, spec: Mapping[str, Any], stored: StoredSlice) -> None:
        self.sent[stored.uid] = (spec, stored.spec)
        self._add_version(stored.uid, stored.version)

    def add_deleted(self, one: StoredSlice) -> None:
        self.sent.pop(one.uid, None)
        self._add_version(one.uid, "")

    def _add_version(self, uid: str, version: str) -> None:
        self.versions[uid, version] = None
        while len(self.versions) > _MOST_VERSIONS:
            del self.versions[next(iter(self.versions))]

    def is_accepted(self, stored: StoredSlice, spec: Mapping[str, Any]) -> bool:
        """Return whether the server stored `stored` when `spec` was sent."""
        return stored.spec == spec or self.sent.get(stored.uid) == (spec, stored.spec)

    def is_foreign(self, stored: StoredSlice) -> bool:
        """Return whether another program has written the slice last."""
        sent = self.sent.get(stored.uid)
        return sent is None or sent[1] != stored.spec

    def is_own_change(self, kind: str, one: StoredSlice) -> bool:
        """Return whether a change of a watch is one of this process."""
        return (one.uid, "" if kind == "DELETED" else one.version) in self.versions


_MOST_VERSIONS = 4096
