# SPDX-License-Identifier: Apache-2.0
"""Contradictions between limits, replicas and modes in the entries of `sharing`."""

from __future__ import annotations

from gpuhook.device_plugin.config.grammar.grammar import keys_of
from gpuhook.device_plugin.config.grammar.memory_values import FAIR, MOST_MEMORY, UNLIMITED
from gpuhook.device_plugin.config.sharing_section import (
    ENTRIES,
    MPS,
    STRATEGIES,
    TIME_SLICING,
    SharedResource,
    units_name,
)
from gpuhook.request.memory_request import amount
from gpuhook.vendors.catalogue import vendor_of_resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.grammar.config_document import Document

LARGE_RESERVE = 8 << 30  # bytes: half of the memory of a T4
_DEFAULT_RESERVE = 256 << 20
_SET_LIMIT = "set `memory: fair`, or an amount"
_SET_LIMITS = "set `memory: fair` for a shared resource"


def is_limited(entry: SharedResource, strategy: str) -> bool:
    """Return whether a container with a unit of this entry has a memory limit."""
    if STRATEGIES[strategy] == TIME_SLICING:
        return entry.limit not in (None, UNLIMITED)
    return STRATEGIES[strategy] != MPS or entry.limit != UNLIMITED


def limited(document: Document) -> set[str]:
    """Return the strategies, keys of `sharing`, whose well-formed entries limit memory."""
    return {key for key, _, entry in entries(document) if is_limited(entry, key)}


def entries(document: Document) -> list[tuple[str, str, SharedResource]]:
    """Return (strategy, a key of `sharing`; path; entry) of all well-formed entries."""
    return [
        (strategy, path, section.built(values))
        for strategy, section in ENTRIES.items()
        for path, values in document.entries(f"sharing.{strategy}.resources")
    ]


def named_resources(document: Document) -> set[str]:
    """Return the names in `resources`."""
    paths = ("resources.gpus", "resources.mig")
    return {values["name"] for path in paths for _, values in document.entries(path)}


def check(document: Document) -> None:
    """Add the contradictions in the entries of a document to its findings."""
    for strategy, path, entry in entries(document):
        _check_amounts(document, path, entry)
        _check_mode(document, path, entry)
        _check_units_name(document, path, entry)
        _check_vendor(document, strategy, path, entry)
        if entry.hints and not is_limited(entry, strategy):
            message = "has no effect without a limit: hints are computed from it"
            document.warn(f"{path}.hints", message, _SET_LIMIT)
    _check_reserve(document)


def _check_amounts(document: Document, path: str, entry: SharedResource) -> None:
    size = entry.replica_memory
    if size is not None and entry.memory == FAIR:
        message = f"with `replicas: {{memory: {amount(size)}}}` a fair share can be larger than "
        message += f"{amount(size)}: it is an equal part of the whole device"
        hint = f"omit `memory` for {amount(size)} each, or set a number of replicas for equal parts"
        document.warn(f"{path}.memory", message, hint)
    if not isinstance(entry.memory, int):
        if entry.oversubscribe:
            message = "has no effect without an amount in `memory`: fair shares never exceed the "
            message += "memory of the device"
            document.warn(f"{path}.oversubscribe", message, "set `memory: 8Gi`, or remove it")
        return
    if entry.oversubscribe:
        return
    total = entry.memory * entry.replicas
    if total > MOST_MEMORY:
        message = f"{entry.replicas} limits of {amount(entry.memory)} add up to {amount(total)}, "
        message += "more than any GPU has"
        hint = "set `oversubscribe: true` to allow that, or `memory: fair`"
        document.error(f"{path}.memory", message, hint)
    if size is not None and entry.memory > size:
        message = f"a limit of {amount(entry.memory)} for replicas of {amount(size)}: together "
        message += "they can exceed the memory of the device"
        hint = "set `oversubscribe: true` to allow that, or remove `memory`"
        document.error(f"{path}.memory", message, hint)


def _check_mode(document: Document, path: str, entry: SharedResource) -> None:
    if entry.compute_mode == "exclusive-process" and entry.replicas != 1:
        what = f"{entry.replicas} replicas" if entry.replicas else "several containers on a device"
        message = f"exclusive-process prevents {what}: a second process cannot create a context"
        hint = "remove it" if entry.unit else "remove it, or set `replicas: 1`"
        document.error(f"{path}.computeMode", message, hint)


def _check_units_name(document: Document, path: str, entry: SharedResource) -> None:
    """Refuse the name of the units as that of the GPUs, which would be offered unshared."""
    gpu = f"{entry.name.partition('/')[0]}/gpu"
    is_units_name = entry.unit is not None and entry.name in (entry.rename, units_name(entry.name))
    if is_units_name and entry.name != gpu and entry.name not in named_resources(document):
        message = f"{entry.name} is not a resource of GPUs: `name` is the resource to share, and "
        message += "`rename` the resource that pods request"
        hint = f"write `name: {gpu}`, `rename: {entry.name}`"
        document.error(f"{path}.name", message, hint)


def _check_vendor(document: Document, strategy: str, path: str, entry: SharedResource) -> None:
    """Refuse what the vendor's GPUs do not have, and a name in the domain of another vendor."""
    vendor = vendor_of_resource(entry.name)
    if strategy in vendor.unshared:
        message = f"{entry.name} cannot be shared by {strategy}: {vendor.unshared[strategy]}"
        document.error(f"{path}.name", message, "share it by timeSlicing or memoryUnits")
    for one in keys_of(SharedResource):
        if one.name in vendor.unshared and getattr(entry, one.field) is not None:
            message = f"has no effect on {entry.name}: {vendor.unshared[one.name]}"
            document.error(f"{path}.{one.name}", message, "remove it")
    if entry.rename is not None and vendor_of_resource(entry.rename).domain != vendor.domain:
        message = f"{entry.rename} is not a resource of {vendor.domain}, as {entry.name} is"
        bare = entry.rename.partition("/")[2]
        document.error(f"{path}.rename", message, f"write {vendor.domain}/{bare}")


def _check_reserve(document: Document) -> None:
    path = "gpuhook.memoryReserve"
    reserve = document.get(path)
    if reserve is None or reserve == _DEFAULT_RESERVE:
        return
    if not limited(document):
        document.warn(path, "has no effect without a memory limit in `sharing`", _SET_LIMITS)
    elif reserve > LARGE_RESERVE:
        message = f"{amount(reserve)} of each device remain unused"
        document.warn(path, message, f"the default is {amount(_DEFAULT_RESERVE)}")
