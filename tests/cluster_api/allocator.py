# SPDX-License-Identifier: Apache-2.0
"""Allocates devices to claims as the scheduler of Kubernetes 1.36 does, for the tests.

Devices are tried in the order of pools, of the names of slices, and of the devices in a slice; the
first combination that fits is taken. Selectors may compare the driver and attributes with texts.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.cluster_api.amounts import amount, canonical
from tests.cluster_api.object_kinds import BY_NAME, Object
from tests.cluster_api.object_store import ObjectStore

_DRIVER = re.compile(r"device\.driver == ['\"]([^'\"]+)['\"]")
_ATTRIBUTE = re.compile(
    r"device\.attributes\[['\"]([^'\"]+)['\"]\]\.(\w+) == (?:['\"]([^'\"]*)['\"]|(\d+))"
)


class NoFitError(Exception):
    """No devices fit a claim now: its pod would wait."""


@dataclass(frozen=True)
class Candidate:
    """A device of a complete pool."""

    driver: str
    pool: str
    device: Object
    counters: Object  # the counter sets of the pool

    @property
    def key(self) -> tuple[str, str, str]:
        return self.driver, self.pool, self.device["name"]

    @property
    def is_shared(self) -> bool:
        return bool(self.device.get("allowMultipleAllocations"))

    def attribute(self, name: str) -> Any:
        """Return the value of an attribute by its full name, None without it."""
        domain, _, own = name.rpartition("/")
        attributes = self.device.get("attributes") or {}
        value = attributes.get(name) or (attributes.get(own) if domain == self.driver else None)
        return next(iter(value.values())) if value else None


@dataclass(frozen=True)
class Need:
    """One device that a claim needs."""

    request: str  # "gpu", or "gpu/small"
    spec: Object
    expressions: tuple[str, ...]


Choice = tuple[Need, Candidate, dict[str, int]]  # with what is consumed


@dataclass
class Usage:
    """What is allocated: exclusive devices, consumed capacities and counters."""

    devices: set[tuple[str, str, str]] = field(default_factory=set)
    shared: dict[tuple[str, str, str], dict[str, int]] = field(default_factory=dict)
    own: set[tuple[str, str, str, str]] = field(default_factory=set)  # with the request


@dataclass
class Allocator:
    """Allocates the claims of a store."""

    store: ObjectStore

    def allocate(self, name: str, namespace: str = "ns") -> Object:
        """Allocate a claim, and return it; raises NoFitError."""
        claim = self.store.get("resourceclaims", name, namespace)
        spec = claim["spec"].get("devices") or {}
        pools = candidates(self.store.slices())
        usage = self._usage(name, namespace)
        for needs in self._choices(spec.get("requests") or [], pools):
            results = self._search(needs, pools, usage, spec.get("constraints") or [])
            if results is not None:
                return self._write(claim, needs, results)
        raise NoFitError(f"no devices for claim {namespace}/{name}")

    def deallocate(self, name: str, namespace: str = "ns") -> None:
        """End the allocation, as when the last pod of a claim is gone."""
        claim = self.store.get("resourceclaims", name, namespace)
        self._update(claim, {})

    def _update(self, claim: Object, status: Object) -> Object:
        metadata = claim["metadata"]
        kind, new = BY_NAME["ResourceClaim"], {**claim, "status": status}
        return self.store.update(kind, metadata["namespace"], metadata["name"], new, part="status")

    def _choices(self, requests: list[Object], pools: list[Candidate]) -> Iterator[list[Need]]:
        """Yield the needs of a claim, for each combination of `firstAvailable`."""
        if not requests:
            yield []
            return
        name, first = requests[0]["name"], requests[0]
        options = [(name, first["exactly"])] if "exactly" in first else []
        options += [(f"{name}/{sub['name']}", sub) for sub in first.get("firstAvailable") or []]
        for full, spec in options:
            own = self.store.get("deviceclasses", spec["deviceClassName"])["spec"]
            selectors = [*(own.get("selectors") or []), *(spec.get("selectors") or [])]
            need = Need(full, spec, tuple(one["cel"]["expression"] for one in selectors))
            count = spec.get("count", 1)
            if spec.get("allocationMode") == "All":
                count = sum(_selects(need, one) for one in pools)
            if not count:
                continue
            for rest in self._choices(requests[1:], pools):
                yield [need] * count + rest

    def _usage(self, name: str, namespace: str) -> Usage:
        usage = Usage()
        for claim in self.store.listed("resourceclaims"):
            if (claim["metadata"]["name"], claim["metadata"]["namespace"]) == (name, namespace):
                continue
            allocation = (claim.get("status") or {}).get("allocation") or {}
            for one in (allocation.get("devices") or {}).get("results") or []:
                if one.get("adminAccess"):
                    continue
                key = one["driver"], one["pool"], one["device"]
                if "shareID" not in one:
                    usage.devices.add(key)
                consumed = usage.shared.setdefault(key, {})
                for capacity, value in (one.get("consumedCapacity") or {}).items():
                    consumed[capacity] = consumed.get(capacity, 0) + amount(value)
        return usage

    def _search(
        self,
        needs: list[Need],
        pools: list[Candidate],
        usage: Usage,
        constraints: list[Object],
        chosen: tuple[Choice, ...] = (),
    ) -> tuple[Choice, ...] | None:
        """Return devices for all needs, the first ones that fit; None if there are none."""
        if len(chosen) == len(needs):
            return chosen
        need = needs[len(chosen)]
        for one in pools:
            consumed = _consumption(need, one, usage)
            if consumed is None or (*one.key, need.request) in usage.own:
                continue
            after, more = _with(usage, one, need, consumed), (*chosen, (need, one, consumed))
            if _within_counters(one, after, pools) and all(_holds(c, more) for c in constraints):
                found = self._search(needs, pools, after, constraints, more)
                if found is not None:
                    return found
        return None

    def _write(
        self,
        claim: Object,
        needs: list[Need],
        results: tuple[Choice, ...],
    ) -> Object:
        listed = [_result(*one) for one in results]
        configs = [
            {"source": "FromClass", "requests": [need.request], **one}
            for need in {need.request: need for need in needs}.values()
            for one in self.store.get("deviceclasses", need.spec["deviceClassName"])["spec"].get(
                "config"
            )
            or []
        ]
        own = (claim["spec"].get("devices") or {}).get("config") or []
        configs += [{"source": "FromClaim", **one} for one in own]
        devices: Object = {"results": listed}
        if configs:
            devices["config"] = configs
        return self._update(claim, {"allocation": {"devices": devices}})


def candidates(slices: list[Object]) -> list[Candidate]:
    """Return the devices of the pools that are complete and valid, in the scheduler's order."""
    pools: dict[tuple[str, str], list[Object]] = {}
    for one in slices:
        spec = one["spec"]
        pools.setdefault((spec["driver"], spec["pool"]["name"]), []).append(one)
    found = []
    for (driver, pool), own in sorted(pools.items()):
        latest = max(one["spec"]["pool"]["generation"] for one in own)
        current = [one for one in own if one["spec"]["pool"]["generation"] == latest]
        if any(one["spec"]["pool"]["resourceSliceCount"] != len(current) for one in current):
            continue
        current.sort(key=lambda one: str(one["metadata"]["name"]))
        sets = {
            s["name"]: s["counters"]
            for one in current
            for s in one["spec"].get("sharedCounters", ())
        }
        devices = [device for one in current for device in one["spec"].get("devices", ())]
        if len({device["name"] for device in devices}) == len(devices):
            found += [Candidate(driver, pool, device, sets) for device in devices]
    return found


def _selects(need: Need, one: Candidate) -> bool:
    """Return whether all selectors of a need match a device; other expressions are refused."""
    for expression in need.expressions:
        for part in expression.split("&&"):
            text = part.strip()
            driver, attribute = _DRIVER.fullmatch(text), _ATTRIBUTE.fullmatch(text)
            if driver is not None:
                if driver[1] != one.driver:
                    return False
            elif attribute is not None:
                wanted = attribute[3] if attribute[4] is None else int(attribute[4])
                if one.attribute(f"{attribute[1]}/{attribute[2]}") != wanted:
                    return False
            else:
                raise ValueError(f"the allocator does not know the expression {text}")
    return True


def _consumption(need: Need, one: Candidate, usage: Usage) -> dict[str, int] | None:
    """Return what a need consumes of a device, None if the device does not fit."""
    if not _selects(need, one) or not _tolerates(need, one):
        return None
    if need.spec.get("adminAccess"):
        return {}
    requests = (need.spec.get("capacity") or {}).get("requests") or {}
    capacities = one.device.get("capacity") or {}
    if set(requests) - set(capacities) or one.key in usage.devices:
        return None
    if not one.is_shared:
        small = any(amount(requests[n]) > amount(capacities[n]["value"]) for n in requests)
        return None if small or one.key in usage.shared else {}
    consumed = {}
    for name, capacity in capacities.items():
        value = _rounded(capacity, requests.get(name))
        used = usage.shared.get(one.key, {}).get(name, 0)
        if value is None or used + value > amount(capacity["value"]):
            return None
        consumed[name] = value
    return consumed


def _rounded(capacity: Object, requested: str | None) -> int | None:
    """Return what a request consumes: rounded up to the policy; None if it is too much."""
    policy = capacity.get("requestPolicy") or {}
    if requested is None:
        return amount(policy.get("default", capacity["value"]))
    value, limits = amount(requested), policy.get("validRange")
    if policy.get("validValues"):
        return next((n for n in map(amount, policy["validValues"]) if n >= value), None)
    if limits is None:
        return value
    least = amount(limits["min"])
    value = max(value, least)
    if "step" in limits:
        step = amount(limits["step"])
        value = least + -(-(value - least) // step) * step
    return None if "max" in limits and value > amount(limits["max"]) else value


def _tolerates(need: Need, one: Candidate) -> bool:
    tolerations = need.spec.get("tolerations") or []
    return all(
        taint["effect"] == "None" or any(_matches_taint(t, taint) for t in tolerations)
        for taint in one.device.get("taints") or []
    )


def _matches_taint(toleration: Object, taint: Object) -> bool:
    return (
        toleration.get("key") in (None, "", taint["key"])
        and toleration.get("effect") in (None, "", taint["effect"])
        and (
            toleration["operator"] == "Exists"
            or toleration.get("value", "") == taint.get("value", "")
        )
    )


def _with(usage: Usage, one: Candidate, need: Need, consumed: dict[str, int]) -> Usage:
    devices, shared = set(usage.devices), {key: dict(own) for key, own in usage.shared.items()}
    if not need.spec.get("adminAccess"):
        if one.is_shared:
            own = shared.setdefault(one.key, {})
            for name, value in consumed.items():
                own[name] = own.get(name, 0) + value
        else:
            devices.add(one.key)
    return Usage(devices, shared, {*usage.own, (*one.key, need.request)})


def _within_counters(one: Candidate, usage: Usage, pools: list[Candidate]) -> bool:
    """Return whether the counters of a pool suffice for all of its allocated devices."""
    used: dict[tuple[str, str], int] = {}
    for other in pools:
        is_used = other.key in usage.devices or other.key in usage.shared
        if not is_used or (other.driver, other.pool) != (one.driver, one.pool):
            continue
        for consumed in other.device.get("consumesCounters") or []:
            for name, counter in consumed["counters"].items():
                key = consumed["counterSet"], name
                used[key] = used.get(key, 0) + amount(counter["value"])
    return all(
        number <= amount(one.counters.get(name, {}).get(counter, {}).get("value", 0))
        for (name, counter), number in used.items()
    )


def _holds(constraint: Object, found: tuple[Choice, ...]) -> bool:
    wanted = constraint.get("requests") or []
    own = [
        c for n, c, _ in found if not wanted or {n.request, n.request.partition("/")[0]} & {*wanted}
    ]
    name = constraint.get("matchAttribute") or constraint["distinctAttribute"]
    values = [one.attribute(name) for one in own]
    if None in values:
        return False
    distinct = len(set(values))
    return distinct <= 1 if "matchAttribute" in constraint else distinct == len(values)


def _result(need: Need, one: Candidate, consumed: dict[str, int]) -> Object:
    found: Object = {"request": need.request, "driver": one.driver, "pool": one.pool}
    found["device"] = one.device["name"]
    if need.spec.get("adminAccess"):
        found["adminAccess"] = True
    elif one.is_shared:
        found["shareID"] = str(uuid.uuid4())
        found["consumedCapacity"] = {
            name: canonical(f"{value // 1024}Ki" if value % 1024 == 0 else str(value))
            for name, value in consumed.items()
        }
    return found
