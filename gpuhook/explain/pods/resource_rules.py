# SPDX-License-Identifier: Apache-2.0
"""The API server's objections to the GPUs and other extended resources of a container.

`kubectl apply --dry-run=server` checks the other parts of a manifest. Source:
ValidateContainerResourceRequirements in kubernetes/pkg/apis/core/validation. Servers print the
amount of "must be an integer" in several forms; gpuhook prints it as the manifest has it.
"""

from __future__ import annotations

from math import ceil

from gpuhook.explain.pods import resource_names
from gpuhook.explain.pods.pod_requests import (
    API_SERVER,
    EPHEMERAL,
    PENDING,
    REFUSED,
    SCHEDULER,
    Objection,
)
from gpuhook.host.quantity import MALFORMED, quantity
from gpuhook.host.suggestion import nearest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from fractions import Fraction

    from gpuhook.explain.pods.manifest_value import Value

_SECTIONS = ("limits", "requests")


def objections(resources: Value, path: str, kind: str) -> Iterator[Objection]:
    """Yield the objections to `resources`, which are at `path` in the object."""
    if kind == EPHEMERAL:
        yield from _ephemeral(resources, path)
        return
    yield from _misplaced(resources, path)
    for section in _SECTIONS:
        for name, amount in resources[section].members().items():
            if resource_names.is_extended(name):
                yield from _amount(name, amount, f"{path}.{section}[{name}]")
            else:
                yield from _name(name, amount, f"{path}.{section}[{name}]")
    yield from _unequal(resources, path)


def _ephemeral(resources: Value, path: str) -> Iterator[Objection]:
    names = (name for section in _SECTIONS for name in resources[section].members())
    if any(resource_names.is_extended(name) for name in names):
        yield _refused(
            "ephemeral-resources",
            f"{path}: Forbidden: cannot be set for an Ephemeral Container",
            "remove them: an ephemeral container gets no devices; request the GPU in a container "
            "of the pod, or set NVIDIA_VISIBLE_DEVICES in a separate pod",
            resources,
        )


def _misplaced(resources: Value, path: str) -> Iterator[Objection]:
    """Yield an objection to each extended resource that is not below limits or requests."""
    for name, value in resources.members().items():
        if resource_names.is_extended(name):
            instead = f"limits: {{{name}: {value.text() or '1'}}}, below resources"
            said = f'strict decoding error: unknown field "{path}.{name}"'
            yield _refused("resources-field", said, instead, value)


def _name(name: str, amount: Value, path: str) -> Iterator[Objection]:
    """Yield an objection to the name of a GPU that no plugin offers."""
    if name == resource_names.OBSOLETE:
        said = f"0/1 nodes are available: 1 Insufficient {name}. (removed in 1.11)"
        instead = f"{resource_names.GPU}: {amount.text()}"
        yield Objection("obsolete", SCHEDULER, PENDING, said, instead, amount.where)
    elif resource_names.lacks_domain(name):
        like = nearest(f"nvidia.com/{name}", resource_names.USUAL)
        yield _refused(
            "resource-unqualified",
            f'{path}: Invalid value: "{name}": must be a standard resource type or fully qualified',
            f"{like or resource_names.GPU}: {amount.text() or '1'}",
            amount,
        )


def _amount(name: str, amount: Value, path: str) -> Iterator[Objection]:
    text = amount.text()
    number = quantity(text)
    if number is None:
        yield _refused("quantity", f"{path}: {MALFORMED}", f"{name}: 1", amount)
        return
    if number < 0:
        said = f'{path}: Invalid value: "{text}": must be greater than or equal to 0'
        yield _refused("negative", said, f"{name}: 1, or nothing", amount)
    if number.denominator != 1:
        instead = f"{name}: {_whole(number)}"
        if resource_names.is_gpu(name):
            instead += (
                "; for a part of a GPU, request one unit of a shared resource: configure the "
                "plugin to divide the GPU (sharing.timeSlicing, sharing.memoryUnits) or use MIG"
            )
        said = f'{path}: Invalid value: "{text}": must be an integer'
        yield _refused("fraction", said, instead, amount)


def _unequal(resources: Value, path: str) -> Iterator[Objection]:
    limits = resources["limits"].members()
    for name, amount in resources["requests"].members().items():
        request = quantity(amount.text())
        if not resource_names.is_extended(name) or request is None:
            continue
        if name not in limits:
            yield _refused(
                "gpu-under-requests",
                f"{path}.limits: Required value: Limit must be set for non overcommitable "
                "resources",
                f"{name}: {_whole(request)} under limits; requests are optional",
                amount,
            )
            continue
        limit = limits[name].text()
        held = quantity(limit)
        if held is not None and held != request:
            yield _refused(
                "unequal",
                f'{path}.requests: Invalid value: "{amount.text()}": must be equal to {name} limit '
                f"of {limit}",
                f"{name}: {_whole(held)} in both, or only under limits",
                amount,
            )


def _whole(number: Fraction) -> int:
    """Return the next whole amount, at least one."""
    return max(1, ceil(number))


def _refused(identifier: str, said: str, instead: str, value: Value) -> Objection:
    return Objection(identifier, API_SERVER, REFUSED, said, instead, value.where)
