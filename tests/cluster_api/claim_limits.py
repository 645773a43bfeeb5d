# SPDX-License-Identifier: Apache-2.0
"""The limits of claims, their status, and device classes of v1. CEL is not evaluated."""

from __future__ import annotations

import uuid
from typing import Any

from gpuhook.host.quantity import quantity
from tests.cluster_api.amounts import amount
from tests.cluster_api.limits import EFFECTS, LABEL_VALUE, Errors
from tests.cluster_api.object_kinds import Object

REQUEST = ("deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations",
           "capacity")  # fmt: skip
RESULT = ("request", "driver", "pool", "device", "adminAccess", "tolerations", "shareID",
          "consumedCapacity", "bindingConditions", "bindingFailureConditions")  # fmt: skip
STATUS = ("driver", "pool", "device", "shareID", "conditions", "data", "networkData")
CONDITION = ("type", "status", "reason", "message", "lastTransitionTime", "observedGeneration")


def claim_errors(spec: Any) -> Errors:
    """Return the errors of the `spec` of a claim."""
    errors = Errors()
    if not errors.known(spec, ("devices",), "spec"):
        return errors
    devices = spec.get("devices") or {}
    path = "spec.devices"
    if not errors.known(devices, ("requests", "constraints", "config"), path):
        return errors
    requests = devices.get("requests") or []
    errors.most(requests, 32, f"{path}.requests")
    errors.unique([one.get("name") for one in requests], f"{path}.requests")
    for number, request in enumerate(requests):
        _request(request, errors, f"{path}.requests[{number}]")
    names = {name for one in requests for name in _names(one)}
    errors.most(devices.get("constraints") or [], 32, f"{path}.constraints")
    for number, one in enumerate(devices.get("constraints") or []):
        where = f"{path}.constraints[{number}]"
        if errors.known(one, ("requests", "matchAttribute", "distinctAttribute"), where):
            unknown = set(one.get("requests") or []) - names
            errors.need(not unknown, f"{where}.requests", f"unknown requests {sorted(unknown)}")
            attribute = one.get("matchAttribute") or one.get("distinctAttribute") or ""
            errors.need("/" in attribute, where, "a fully qualified attribute is required")
            errors.qualified(attribute, where)
    _configs(devices.get("config") or [], names, 32, errors, f"{path}.config")
    return errors


def class_errors(spec: Any) -> Errors:
    """Return the errors of the `spec` of a device class."""
    errors = Errors()
    if errors.known(spec, ("selectors", "config", "extendedResourceName"), "spec"):
        _selectors(spec.get("selectors") or [], errors, "spec.selectors")
        errors.most(spec.get("config") or [], 32, "spec.config")
        for number, one in enumerate(spec.get("config") or []):
            if errors.known(one, ("opaque",), f"spec.config[{number}]"):
                errors.opaque(one.get("opaque"), f"spec.config[{number}].opaque")
        if "extendedResourceName" in spec:
            path = "spec.extendedResourceName"
            errors.need("/" in spec["extendedResourceName"], path, "must have a domain")
            errors.key(spec["extendedResourceName"], path)
    return errors


def status_errors(status: Any) -> Errors:
    """Return the errors of the `status` of a claim."""
    errors = Errors()
    if not errors.known(status, ("allocation", "reservedFor", "devices"), "status"):
        return errors
    errors.most(status.get("reservedFor") or [], 256, "status.reservedFor")
    allocation = status.get("allocation") or {}
    known = ("devices", "nodeSelector", "allocationTimestamp")
    if not errors.known(allocation, known, "status.allocation"):
        return errors
    results = (allocation.get("devices") or {}).get("results") or []
    errors.most(results, 32, "status.allocation.devices.results")
    for number, one in enumerate(results):
        path = f"status.allocation.devices.results[{number}]"
        if errors.known(one, RESULT, path):
            _device_id(one, errors, path)
            for value in (one.get("consumedCapacity") or {}).values():
                amount(value)
    configs = (allocation.get("devices") or {}).get("config") or []
    names = {one.get("request", "") for one in results}
    names |= {name.partition("/")[0] for name in names}
    _configs(configs, names, 64, errors, "status.allocation.devices.config")
    _device_statuses(status.get("devices") or [], results, errors)
    return errors


def _request(request: Any, errors: Errors, path: str) -> None:
    if not errors.known(request, ("name", "exactly", "firstAvailable"), path):
        return
    errors.label(request.get("name"), f"{path}.name")
    both = ("exactly" in request) != ("firstAvailable" in request)
    errors.need(both, path, "exactly one of `exactly` or `firstAvailable` is required")
    if "exactly" in request:
        _exactly(request["exactly"], REQUEST, errors, f"{path}.exactly")
    choices = request.get("firstAvailable") or []
    errors.most(choices, 8, f"{path}.firstAvailable")
    for number, one in enumerate(choices):
        errors.label(one.get("name"), f"{path}.firstAvailable[{number}].name")
        known = ("name", *(name for name in REQUEST if name != "adminAccess"))
        _exactly(one, known, errors, f"{path}.firstAvailable[{number}]")


def _exactly(one: Any, known: tuple[str, ...], errors: Errors, path: str) -> None:
    if not errors.known(one, known, path):
        return
    errors.subdomain(one.get("deviceClassName"), f"{path}.deviceClassName")
    _selectors(one.get("selectors") or [], errors, f"{path}.selectors")
    mode, count = one.get("allocationMode", "ExactCount"), one.get("count", 1)
    errors.need(mode in ("ExactCount", "All"), f"{path}.allocationMode", f"{mode!r}")
    positive = type(count) is int and count > 0
    errors.need(mode == "All" or positive, f"{path}.count", "must be greater than zero")
    requests = (one.get("capacity") or {}).get("requests") or {}
    for name, value in requests.items():
        errors.qualified(name, f"{path}.capacity.requests[{name}]")
        is_number = type(value) in (int, float)  # JSON numbers are read as quantities
        is_quantity = isinstance(value, str) and quantity(value) is not None
        errors.need(is_number or is_quantity, f"{path}.capacity.requests[{name}]", "not a quantity")
    tolerations = one.get("tolerations") or []
    errors.most(tolerations, 16, f"{path}.tolerations")
    for toleration in tolerations:
        effect = toleration.get("effect", "NoSchedule")
        errors.need(effect in EFFECTS, f"{path}.tolerations", f"{effect!r} is not supported")
        operator, value = toleration.get("operator", "Equal"), toleration.get("value") or ""
        known_operator = operator in ("Exists", "Equal")
        errors.need(known_operator, f"{path}.tolerations", f"{operator!r} is not supported")
        is_free = operator != "Exists" or not value
        errors.need(is_free, f"{path}.tolerations", "must be empty for operator `Exists`")
        errors.need(bool(LABEL_VALUE.fullmatch(value)), f"{path}.tolerations", "no label value")


def _names(request: Object) -> list[str]:
    name = str(request.get("name"))
    choices = request.get("firstAvailable") or []
    return [name, *(f"{name}/{one.get('name')}" for one in choices)]


def _selectors(selectors: list[Any], errors: Errors, path: str) -> None:
    errors.most(selectors, 32, path)
    for number, one in enumerate(selectors):
        expression = (one.get("cel") or {}).get("expression", "")
        fits = 0 < len(expression) <= 10 << 10
        errors.need(fits, f"{path}[{number}].cel.expression", "must have 1 to 10240 characters")


def _configs(configs: list[Any], names: set[str], most: int, errors: Errors, path: str) -> None:
    errors.most(configs, most, path)
    for number, one in enumerate(configs):
        where = f"{path}[{number}]"
        if errors.known(one, ("source", "requests", "opaque"), where):
            unknown = set(one.get("requests") or []) - names
            errors.need(not unknown, f"{where}.requests", f"unknown requests {sorted(unknown)}")
            errors.opaque(one.get("opaque"), f"{where}.opaque")


def _device_id(one: Object, errors: Errors, path: str) -> None:
    errors.driver(one.get("driver"), f"{path}.driver")
    errors.pool(one.get("pool"), f"{path}.pool")
    errors.label(one.get("device"), f"{path}.device")
    if "shareID" in one:
        try:
            uuid.UUID(one["shareID"])
        except ValueError:
            errors.append(f"{path}.shareID: must be a UUID")


def _device_statuses(devices: list[Any], results: list[Object], errors: Errors) -> None:
    allocated = {_key(one) for one in results}
    errors.unique([_key(one) for one in devices], "status.devices")
    for number, one in enumerate(devices):
        path = f"status.devices[{number}]"
        if not errors.known(one, STATUS, path):
            continue
        _device_id(one, errors, path)
        errors.need(_key(one) in allocated, path, "must be an allocated device in the claim")
        if one.get("data") is not None:
            errors.json_object(one["data"], f"{path}.data")
        conditions = one.get("conditions") or []
        errors.most(conditions, 8, f"{path}.conditions")
        errors.unique([condition.get("type") for condition in conditions], f"{path}.conditions")
        for condition in conditions:
            errors.known(condition, CONDITION, f"{path}.conditions")
            missing = {"type", "status", "reason", "lastTransitionTime"} - set(condition)
            errors.need(not missing, f"{path}.conditions", f"{sorted(missing)}: Required value")
            short = len(condition.get("message", "")) <= 32 << 10
            errors.need(short, f"{path}.conditions", "message: Too long")


def _key(one: Object) -> tuple[Any, ...]:
    return tuple(one.get(name) for name in ("driver", "pool", "device", "shareID"))
