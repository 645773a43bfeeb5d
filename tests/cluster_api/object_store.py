# SPDX-License-Identifier: Apache-2.0
"""The objects of the API server, with their versions, and the changes that watches see."""

from __future__ import annotations

import copy
import itertools
import random
import string
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone

from tests.cluster_api import claim_limits, slice_limits
from tests.cluster_api.amounts import canonical
from tests.cluster_api.field_gates import default_gates, drop_fields
from tests.cluster_api.limits import SUBDOMAIN
from tests.cluster_api.object_kinds import BY_NAME, Kind, Object

_MOST_GENERATED = 58  # characters of a generateName, before five random ones
_LETTERS = string.ascii_lowercase + string.digits


class RefusalError(Exception):
    """A call that the server refuses, with the HTTP status and the reason of its Status."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


@dataclass(frozen=True)
class Change:
    """A change that watches see; `before` is the object before it."""

    version: int
    type: str  # "ADDED", "MODIFIED" or "DELETED"
    kind: str
    object: Object


@dataclass
class ObjectStore:
    """The objects by (plural, namespace, name). `minor` and `gates` decide which fields remain."""

    minor: int = 36
    gates: set[str] | None = None
    objects: dict[tuple[str, str, str], Object] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    oldest: int = 0  # a watch from an earlier version is refused with 410
    changed: threading.Condition = field(default_factory=threading.Condition)
    version: int = 1000
    choose: random.Random = field(default_factory=lambda: random.Random(7))

    # Calls of tests.

    def add(self, one: Object) -> Object:
        """Keep an object of v1, without the work of a client: nodes, pods, claims, classes."""
        metadata = one["metadata"]
        return self.create(
            BY_NAME[one["kind"]], metadata.get("namespace", ""), one, uid=metadata.get("uid", "")
        )

    def get(self, plural: str, name: str, namespace: str = "") -> Object:
        """Return an object of v1."""
        return copy.deepcopy(self.objects[plural, namespace, name])

    def listed(self, plural: str) -> list[Object]:
        """Return the objects of a kind by name."""
        with self.changed:
            found = [one for key, one in sorted(self.objects.items()) if key[0] == plural]
        return copy.deepcopy(found)

    def slices(self) -> list[Object]:
        return self.listed("resourceslices")

    def edit(self, plural: str, name: str, change: Callable[[Object], None]) -> Object:
        """Change an object as another client."""
        one = self.get(plural, name)
        change(one)
        return self.update(_kind(plural), "", name, one)

    def remove(self, plural: str) -> int:
        """Delete all objects of a kind, as the kubelet does with slices; return their number."""
        found = self.listed(plural)
        for one in found:
            metadata = one["metadata"]
            self.delete(_kind(plural), metadata.get("namespace", ""), metadata["name"])
        return len(found)

    def compact(self) -> None:
        """Forget the changes so far: a watch from before gets 410."""
        with self.changed:
            self.oldest = self.version
            self.changes.clear()
            self.changed.notify_all()

    # Calls of clients.

    def read(self, kind: Kind, namespace: str, name: str) -> Object:
        with self.changed:
            found = self.objects.get((kind.plural, namespace, name))
            if found is None:
                raise RefusalError(404, "NotFound", f'{kind.plural} "{name}" not found')
            return copy.deepcopy(found)

    def create(
        self, kind: Kind, namespace: str, new: Object, *, dry: bool = False, uid: str = ""
    ) -> Object:
        with self.changed:
            one = copy.deepcopy(new)
            metadata = one.setdefault("metadata", {})
            for name in ("uid", "resourceVersion", "creationTimestamp", "generation"):
                metadata.pop(name, None)
            if kind.is_namespaced:
                metadata.setdefault("namespace", namespace)
            if not metadata.get("name"):
                metadata["name"] = self._generated(metadata.get("generateName", ""))
            key = (kind.plural, namespace, metadata["name"])
            self._check(kind, one, None)
            if key in self.objects:
                message = f'{kind.plural} "{metadata["name"]}" already exists'
                raise RefusalError(409, "AlreadyExists", message)
            metadata |= {
                "uid": uid or str(uuid.uuid4()),
                "creationTimestamp": now(),
                "generation": 1,
            }
            return copy.deepcopy(one) if dry else self._put(key, "ADDED", kind, one)

    def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        new: Object,
        *,
        part: str = "",
        dry: bool = False,
    ) -> Object:
        """Replace an object; `part` "status" replaces its status alone."""
        with self.changed:
            old = self.read(kind, namespace, name)
            metadata = new.get("metadata") or {}
            self._preconditions(kind, old, metadata)
            one = {**old, "status": new.get("status", {})} if part else copy.deepcopy(new)
            if not part and "status" in old:
                one["status"] = old["status"]
            if not part:
                kept = ("name", "namespace", "uid", "creationTimestamp", "generation",
                        "resourceVersion", "deletionTimestamp", "generateName")  # fmt: skip
                one["metadata"] = {
                    **{k: v for k, v in metadata.items() if k not in kept},
                    **{k: v for k, v in old["metadata"].items() if k in kept},
                }
            self._check(kind, one, old)
            if one == old or dry:
                return copy.deepcopy(one)
            if one.get("spec") != old.get("spec"):
                one["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
            key = (kind.plural, namespace, name)
            if one["metadata"].get("deletionTimestamp") and not one["metadata"].get("finalizers"):
                return self._drop(key, kind)
            return self._put(key, "MODIFIED", kind, one)

    def delete(
        self, kind: Kind, namespace: str, name: str, preconditions: Object | None = None
    ) -> Object:
        with self.changed:
            old = self.read(kind, namespace, name)
            self._preconditions(kind, old, preconditions or {})
            key = (kind.plural, namespace, name)
            if old["metadata"].get("finalizers"):
                old["metadata"]["deletionTimestamp"] = now()
                return self._put(key, "MODIFIED", kind, old)
            return self._drop(key, kind)

    def since(self, kind: Kind, version: int) -> Iterator[Change]:
        """Yield the changes after a version that are known now; raises RefusalError 410."""
        if version < self.oldest:
            raise RefusalError(410, "Expired", f"too old resource version: {version}")
        yield from [c for c in self.changes if c.version > version and c.kind == kind.name]

    def _preconditions(self, kind: Kind, old: Object, wanted: Object) -> None:
        for name in ("uid", "resourceVersion"):
            value = wanted.get(name)
            if value and value != old["metadata"][name]:
                message = f"the object has been modified: {name} is {old['metadata'][name]}"
                raise RefusalError(409, "Conflict", f"{kind.plural}: {message}")

    def _generated(self, base: str) -> str:
        for _ in itertools.count():
            tail = "".join(self.choose.choices(_LETTERS, k=5))
            name = base[:_MOST_GENERATED] + tail
            if all(key[2] != name for key in self.objects):
                return name
        raise AssertionError

    def _check(self, kind: Kind, one: Object, old: Object | None) -> None:
        """Drop and complete fields as the server does, then check the limits."""
        gates = default_gates(self.minor) if self.gates is None else self.gates
        drop_fields(kind.name, one, gates)
        name = one["metadata"]["name"]
        errors: list[str] = []
        try:
            errors += self._spec_errors(kind.name, one, old)
        except ValueError as error:
            errors.append(str(error))
        if not SUBDOMAIN.fullmatch(name) or len(name) > 253:
            errors.append(f"metadata.name: {name!r}: no DNS subdomain")
        for owner in one["metadata"].get("ownerReferences") or []:
            if not all(owner.get(word) for word in ("apiVersion", "kind", "name", "uid")):
                errors.append("metadata.ownerReferences: apiVersion, kind, name, uid are required")
        if errors:
            text = "; ".join(errors)
            raise RefusalError(422, "Invalid", f'{kind.name} "{name}" is invalid: {text}')

    def _spec_errors(self, kind: str, one: Object, old: Object | None) -> list[str]:
        spec = one.get("spec")
        if kind == "ResourceSlice":
            _complete(one)
            errors = slice_limits.slice_errors(spec, self.minor)
            return errors + (slice_limits.update_errors(one["spec"], old["spec"]) if old else [])
        if kind == "ResourceClaim":
            errors = claim_limits.claim_errors(spec)
            errors += claim_limits.status_errors(one.get("status") or {})
            errors.need(old is None or old.get("spec") == spec, "spec", "field is immutable")
            return errors
        if kind == "ResourceClaimTemplate":
            return claim_limits.claim_errors((spec or {}).get("spec"))
        return claim_limits.class_errors(spec or {}) if kind == "DeviceClass" else []

    def _put(self, key: tuple[str, str, str], change: str, kind: Kind, one: Object) -> Object:
        self.version += 1
        one["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = one
        self._changed(Change(self.version, change, kind.name, copy.deepcopy(one)))
        return copy.deepcopy(one)

    def _drop(self, key: tuple[str, str, str], kind: Kind) -> Object:
        one = self.objects.pop(key)
        self.version += 1
        one["metadata"]["resourceVersion"] = str(self.version)
        self._changed(Change(self.version, "DELETED", kind.name, one))
        return one

    def _changed(self, change: Change) -> None:
        self.changes.append(change)
        self.changed.notify_all()


def now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _kind(plural: str) -> Kind:
    return next(kind for kind in BY_NAME.values() if kind.plural == plural)


def _complete(one: Object) -> None:
    """Set the times of taints, and the form of quantities; empty lists are left out."""
    spec = one.get("spec") or {}
    for name in ("devices", "sharedCounters"):
        if not spec.get(name, True):
            del spec[name]
    counters = [s.get("counters") or {} for s in spec.get("sharedCounters") or ()]
    for device in spec.get("devices") or ():
        for taint in device.get("taints") or ():
            taint.setdefault("timeAdded", now())
        for capacity in (device.get("capacity") or {}).values():
            _canonical(capacity)
        counters += [c.get("counters") or {} for c in device.get("consumesCounters") or ()]
    for counter in (counter for own in counters for counter in own.values()):
        _canonical(counter)


def _canonical(capacity: Object) -> None:
    if "value" in capacity:
        capacity["value"] = canonical(capacity["value"])
    policy = capacity.get("requestPolicy") or {}
    for holder in (policy, policy.get("validRange") or {}):
        for name in ("default", "min", "max", "step"):
            if name in holder:
                holder[name] = canonical(holder[name])
    if "validValues" in policy:
        policy["validValues"] = [canonical(one) for one in policy["validValues"]]
