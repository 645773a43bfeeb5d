# SPDX-License-Identifier: Apache-2.0
"""Contradictions of limits, replicas and modes in the entries of `sharing`.

Whether limits add up to more than a device of the node has, only the node shows.
"""

from __future__ import annotations

from gpuhook.device_plugin.config import build
from gpuhook.device_plugin.config.configuration import (
    FAIR,
    MOST_MEMORY,
    MPS,
    TIME_SLICING,
    UNLIMITED,
    Configuration,
)
from gpuhook.device_plugin.config.findings import ERROR, WARNING
from gpuhook.device_plugin.config.grammar.memory_values import amount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.device_plugin.config.configuration import SharedResource
    from gpuhook.device_plugin.config.grammar.config_document import Document

MUCH_RESERVE = 8 << 30  # bytes: with more, half of a T4 and of many others is nobody's


def is_limited(entry: SharedResource, strategy: str) -> bool:
    """Return whether a container with a unit of this entry has a limit of memory."""
    if strategy == TIME_SLICING:
        return entry.limit not in (None, UNLIMITED)
    return strategy != MPS or entry.limit != UNLIMITED


def limited(document: Document) -> set[str]:
    """Return the strategies, keys of `sharing`, whose well-formed entries limit memory."""
    listed = entries(document)
    return {key for key, _, entry in listed if is_limited(entry, build.STRATEGIES[key])}


def entries(document: Document) -> list[tuple[str, str, SharedResource]]:
    """Return (key of the strategy, path, entry) of all well-formed entries of `sharing`."""
    found = []
    for strategy in build.STRATEGIES:
        listed: Any = document.get(f"sharing.{strategy}.resources")
        for index, values in enumerate(listed if isinstance(listed, list) else ()):
            if values is not None:
                path = f"sharing.{strategy}.resources[{index}]"
                found.append((strategy, path, build.shared(values, strategy)))
    return found


def check(document: Document) -> None:
    """Add what entries contradict in themselves to the findings of a document."""
    for strategy, path, entry in entries(document):
        _check_oversubscription(document, path, entry)
        _check_mode(document, path, entry)
        _check_shares(document, path, entry)
        _check_units_name(document, path, entry)
        if entry.hints and not is_limited(entry, build.STRATEGIES[strategy]):
            document.add(
                WARNING,
                f"{path}.hints",
                "has no effect without a limit: hints are computed from it",
                "set `memory: fair`, or an amount",
            )
    _check_reserve(document)


def _check_oversubscription(document: Document, path: str, entry: SharedResource) -> None:
    is_amount = isinstance(entry.memory, int)
    if entry.oversubscribe and not is_amount:
        document.add(
            WARNING,
            f"{path}.oversubscribe",
            "has no effect without an amount in `memory`: fair shares never add up to more than a "
            "device has",
            "set `memory: 8Gi`, or leave it away",
        )
    if entry.oversubscribe or not isinstance(entry.memory, int):
        return
    together = entry.memory * entry.replicas
    if together > MOST_MEMORY:
        document.add(
            ERROR,
            f"{path}.memory",
            f"{entry.replicas} limits of {amount(entry.memory)} are {amount(together)} together, "
            "more than any GPU has",
            "set `oversubscribe: true` if that is meant, or `memory: fair`",
        )
    if entry.replica_memory is not None and entry.memory > entry.replica_memory:
        document.add(
            ERROR,
            f"{path}.memory",
            f"a limit of {amount(entry.memory)} for replicas of {amount(entry.replica_memory)}: "
            "together they may be more than a device has",
            "set `oversubscribe: true` if that is meant, or leave `memory` away",
        )


def _check_shares(document: Document, path: str, entry: SharedResource) -> None:
    """Warn of a fair share beside the size of a replica: it is the larger of the two."""
    if entry.replica_memory is not None and entry.memory == FAIR:
        size = amount(entry.replica_memory)
        document.add(
            WARNING,
            f"{path}.memory",
            f"fair beside `replicas: {{memory: {size}}}`: a replica may have its part of the "
            f"device, which is more than {size} where that does not divide it evenly",
            f"leave `memory` away for {size} each, or give a number of replicas for fair parts",
        )


def _check_units_name(document: Document, path: str, entry: SharedResource) -> None:
    """Refuse the name that pods ask for as that of the GPUs: these would be offered unshared."""
    if entry.unit is None or entry.name not in (entry.rename, build.UNITS_NAME):
        return
    listed: Any = [document.get(f"resources.{kind}") or [] for kind in ("gpus", "mig")]
    named = {naming["name"] for kind in listed for naming in kind if naming is not None}
    if entry.name != Configuration().gpus[0].name and entry.name not in named:
        document.add(
            ERROR,
            f"{path}.name",
            f"{entry.name} is no resource of GPUs: `name` is what is shared, and what pods ask "
            "for is `rename`",
            f"write `name: {Configuration().gpus[0].name}`, `rename: {entry.name}`",
        )


def _check_mode(document: Document, path: str, entry: SharedResource) -> None:
    if entry.compute_mode != "exclusive-process" or entry.replicas == 1:
        return
    what = f"{entry.replicas} replicas" if entry.replicas else "several containers on a device"
    document.add(
        ERROR,
        f"{path}.computeMode",
        f"exclusive-process does not go with {what}: the second process gets no context",
        "leave it away" if entry.unit else "leave it away, or set `replicas: 1`",
    )


def _check_reserve(document: Document) -> None:
    path = "gpuhook.memoryReserve"
    reserve = document.get(path)
    default = Configuration().own.memory_reserve
    if not isinstance(reserve, int) or reserve == default:
        return
    if not limited(document):
        message = "has no effect without a limit of memory in `sharing`"
        document.add(WARNING, path, message, "set `memory: fair` for a resource that is shared")
    elif reserve > MUCH_RESERVE:
        document.add(
            WARNING,
            path,
            f"{amount(reserve)} of each device are nobody's: replicas and units get that much less",
            f"the default is {amount(default)}",
        )
