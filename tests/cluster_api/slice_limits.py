# SPDX-License-Identifier: Apache-2.0
"""The limits of a ResourceSlice of v1."""

from __future__ import annotations

import re
from typing import Any

from tests.cluster_api.amounts import amount
from tests.cluster_api.limits import EFFECTS, LABEL_VALUE, SEMVER, Errors
from tests.cluster_api.object_kinds import Object

SPEC = ("driver", "pool", "nodeName", "nodeSelector", "allNodes", "devices",
        "perDeviceNodeSelection", "sharedCounters")  # fmt: skip
DEVICE = ("name", "attributes", "capacity", "consumesCounters", "nodeName", "nodeSelector",
          "allNodes", "taints", "bindsToNode", "bindingConditions", "bindingFailureConditions",
          "allowMultipleAllocations")  # fmt: skip
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
VALUES = {"int": int, "bool": bool, "string": str, "version": str}


def slice_errors(spec: Any, minor: int) -> Errors:
    """Return the errors of the `spec` of a slice for a server of version 1.`minor`."""
    errors = Errors()
    if not errors.known(spec, SPEC, "spec"):
        return errors
    errors.driver(spec.get("driver"), "spec.driver")
    _pool(spec.get("pool"), errors)
    places = [n for n in ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
              if n in spec]  # fmt: skip
    errors.need(len(places) == 1, "spec", f"exactly one node selection is required, not {places}")
    if "nodeName" in spec:
        errors.subdomain(spec["nodeName"], "spec.nodeName")
    devices, sets = spec.get("devices"), spec.get("sharedCounters")
    _devices(devices or [], errors)
    _counter_sets(sets or [], errors, minor)
    if minor >= 35:
        both = sets is not None and devices is not None
        errors.need(not both, "spec", "only one of `sharedCounters` or `devices` is allowed")
    else:
        known = {one.get("name"): one.get("counters", {}) for one in sets or []}
        _references(devices or [], known, errors)
    return errors


def update_errors(spec: Object, old: Object) -> Errors:
    """Return the errors of a change of a slice."""
    errors = Errors()
    for path in (("driver",), ("nodeName",), ("pool", "name")):
        before: Any = old
        after: Any = spec
        for word in path:
            before, after = before.get(word, {}), after.get(word, {})
        errors.need(before == after, ".".join(("spec", *path)), "field is immutable")
    return errors


def _pool(pool: Any, errors: Errors) -> None:
    if errors.known(pool, ("name", "generation", "resourceSliceCount"), "spec.pool"):
        errors.pool(pool.get("name"), "spec.pool.name")
        count, generation = pool.get("resourceSliceCount", 0), pool.get("generation", 0)
        errors.need(count > 0, "spec.pool.resourceSliceCount", "must be greater than zero")
        errors.need(generation >= 0, "spec.pool.generation", "must not be negative")


def _devices(devices: list[Any], errors: Errors) -> None:
    special = any(one.get("taints") or one.get("consumesCounters") for one in devices)
    if not errors.most(devices, 64 if special else 128, "spec.devices"):
        return
    errors.unique([one.get("name") for one in devices], "spec.devices")
    for number, device in enumerate(devices):
        path = f"spec.devices[{number}]"
        if errors.known(device, DEVICE, path):
            errors.label(device.get("name"), f"{path}.name")
            _facts(device, errors, path)
            _taints(device.get("taints") or [], errors, f"{path}.taints")
            _consumption(device.get("consumesCounters") or [], errors, f"{path}.consumesCounters")


def _facts(device: Object, errors: Errors, path: str) -> None:
    attributes, capacities = device.get("attributes") or {}, device.get("capacity") or {}
    count = len(attributes) + len(capacities)
    errors.need(count <= 32, path, f"{count}: attributes and capacities must not exceed 32")
    for name, value in attributes.items():
        where = f"{path}.attributes[{name}]"
        errors.qualified(name, where)
        _attribute(value, errors, where)
    for name, capacity in capacities.items():
        where = f"{path}.capacity[{name}]"
        errors.qualified(name, where)
        if errors.known(capacity, ("value", "requestPolicy"), where):
            _capacity(capacity, bool(device.get("allowMultipleAllocations")), errors, where)


def _attribute(value: Any, errors: Errors, path: str) -> None:
    if not errors.known(value, VALUES, path):
        return
    if not errors.need(len(value) == 1, path, "exactly one value must be specified"):
        return
    [(kind, content)] = value.items()
    fits = type(content) is VALUES[kind]
    if not errors.need(fits, f"{path}.{kind}", f"{content!r} has another type"):
        return
    if isinstance(content, str):
        errors.need(len(content.encode()) <= 64, f"{path}.{kind}", "Too long: at most 64 bytes")
    if kind == "version":
        errors.need(SEMVER.fullmatch(content), f"{path}.version", f"{content!r} is no semver")
    if kind == "int":
        errors.need(-(2**63) <= content < 2**63, f"{path}.int", "no int64")


def _capacity(capacity: Object, is_shared: bool, errors: Errors, path: str) -> None:
    try:
        value = amount(capacity.get("value"))
    except ValueError as error:
        errors.append(f"{path}.value: {error}")
        return
    policy = capacity.get("requestPolicy")
    if policy is None:
        return
    where = f"{path}.requestPolicy"
    if not errors.need(is_shared, where, "allowMultipleAllocations must be true"):
        return
    if errors.known(policy, ("default", "validValues", "validRange"), where):
        _policy(policy, value, errors, where)


def _policy(policy: Object, value: int, errors: Errors, path: str) -> None:
    valid, limits = policy.get("validValues") or [], policy.get("validRange")
    errors.need(not (valid and limits), path, "validValues and validRange exclude each other")
    if not valid and limits is None:
        return
    if not errors.need("default" in policy, f"{path}.default", "Required value"):
        return
    default = amount(policy["default"])
    if limits is not None:
        if errors.known(limits, ("min", "max", "step"), f"{path}.validRange"):
            _range(limits, default, value, errors, f"{path}.validRange")
        return
    numbers = [amount(one) for one in valid]
    errors.most(numbers, 10, f"{path}.validValues")
    errors.need(numbers == sorted(set(numbers)), f"{path}.validValues", "must be ascending")
    errors.need(default in numbers, f"{path}.validValues", "do not have the default")
    errors.need(max(numbers) <= value, f"{path}.validValues", "larger than the capacity")


def _range(limits: Object, default: int, value: int, errors: Errors, path: str) -> None:
    if not errors.need("min" in limits, f"{path}.min", "Required value"):
        return
    least = amount(limits["min"])
    most = amount(limits["max"]) if "max" in limits else None
    errors.need(least <= value, f"{path}.min", "min is larger than capacity value")
    errors.need(default >= least, f"{path}.min", "default is less than min")
    if most is not None:
        errors.need(least <= most <= value, f"{path}.max", "not between min and capacity value")
        errors.need(default <= most, f"{path}.max", "default is more than max")
    if "step" in limits:
        step = amount(limits["step"])
        if errors.need(step > 0, f"{path}.step", "must be positive"):
            errors.need(least + step <= value, f"{path}.step", "one step is larger than capacity")
            for one in (default, default if most is None else most):
                errors.need((one - least) % step == 0, f"{path}.step", f"{one}: no multiple")


def _taints(taints: list[Any], errors: Errors, path: str) -> None:
    errors.most(taints, 16, path)
    for number, taint in enumerate(taints):
        where = f"{path}[{number}]"
        if errors.known(taint, ("key", "value", "effect", "timeAdded"), where):
            errors.key(taint.get("key"), f"{where}.key")
            value, effect = taint.get("value", ""), taint.get("effect")
            errors.need(LABEL_VALUE.fullmatch(value), f"{where}.value", f"{value!r}: no label")
            errors.need(effect in EFFECTS, f"{where}.effect", f"{effect!r} is not supported")
            if "timeAdded" in taint:
                added = TIME.fullmatch(taint["timeAdded"])
                errors.need(added, f"{where}.timeAdded", "not an RFC 3339 time in seconds")


def _consumption(consumed: list[Any], errors: Errors, path: str) -> None:
    errors.most(consumed, 2, path)
    errors.unique([one.get("counterSet") for one in consumed], path)
    for number, one in enumerate(consumed):
        if errors.known(one, ("counterSet", "counters"), f"{path}[{number}]"):
            errors.label(one.get("counterSet"), f"{path}[{number}].counterSet")
            _counters(one.get("counters"), errors, f"{path}[{number}].counters")


def _counter_sets(sets: list[Any], errors: Errors, minor: int) -> None:
    errors.most(sets, 8, "spec.sharedCounters")
    errors.unique([one.get("name") for one in sets], "spec.sharedCounters")
    for number, one in enumerate(sets):
        path = f"spec.sharedCounters[{number}]"
        if errors.known(one, ("name", "counters"), path):
            errors.label(one.get("name"), f"{path}.name")
            _counters(one.get("counters"), errors, f"{path}.counters")
    if minor < 35:  # a limit for all sets together
        names = [name for one in sets for name in one.get("counters") or {}]
        errors.most(names, 32, "spec.sharedCounters")


def _counters(counters: Any, errors: Errors, path: str) -> None:
    if not errors.need(isinstance(counters, dict) and counters, path, "Required value"):
        return
    errors.most(counters, 32, path)
    for name, counter in counters.items():
        errors.label(name, f"{path}[{name}]")
        if errors.known(counter, ("value",), f"{path}[{name}]"):
            amount(counter.get("value"))


def _references(devices: list[Any], known: Object, errors: Errors) -> None:
    """Before 1.35, counters are those of the same slice."""
    for number, device in enumerate(devices):
        for one in device.get("consumesCounters") or []:
            have = known.get(one.get("counterSet"), {})
            path = f"spec.devices[{number}].consumesCounters"
            errors.need(set(one.get("counters", {})) <= set(have), path, "unknown counters")
