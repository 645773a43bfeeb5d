# SPDX-License-Identifier: Apache-2.0
"""Contradictions of a configuration: what each value alone does not show.

What only the node's hardware can contradict is not here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from gpuhook.device_plugin.config import build
from gpuhook.device_plugin.config.build import STRATEGIES
from gpuhook.device_plugin.config.checks import gpuhook_checks, sharing_checks
from gpuhook.device_plugin.config.configuration import MOST_CLIENTS
from gpuhook.device_plugin.config.findings import ERROR, WARNING
from gpuhook.device_plugin.config.grammar.name_values import ALL, LONGEST_NAME, is_index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.grammar.config_document import Document

_HOOK_OF_THE_REFERENCE = ("nvidia-ctk", "nvidia-cdi-hook")


def check(document: Document) -> None:
    """Add what contradicts itself in a document to its findings."""
    sharing = document.get("sharing")
    strategies = [key for key in STRATEGIES if isinstance(sharing, dict) and key in sharing]
    if len(strategies) > 1:
        *most, last = strategies
        amount = "both" if len(strategies) == 2 else "all"
        document.add(
            ERROR,
            f"sharing.{last}",
            f"{', '.join(most)} and {last} are {amount} given, and a device is shared in one way "
            "only",
            "remove one of the two" if len(strategies) == 2 else "keep one of them",
        )
    if "mps" in strategies:
        _check_mps(document)
    for key in strategies:
        _check_strategy(document, key)
    sharing_checks.check(document)
    gpuhook_checks.check(document)
    _check_host(document)
    _check_idle(document)


def _check_mps(document: Document) -> None:
    roots = [path for path in ("flags.mpsRoot", "mps.root") if document.get(path)]
    if not roots:
        document.add(
            ERROR,
            "sharing.mps",
            "MPS needs the directory of its daemons on the host, and none is given",
            "set flags.mpsRoot or --mps-root, usually /run/nvidia/mps",
        )
    strategy = document.get("flags.migStrategy")
    if strategy == "mixed":
        document.add(
            ERROR,
            "flags.migStrategy",
            'the strategy "mixed" is not supported with MPS',
            'share by timeSlicing, or set migStrategy to "none"',
        )
    elif strategy == "single":
        document.add(
            WARNING,
            "flags.migStrategy",
            "MPS shares whole GPUs only: MIG instances of what it is to share are unhealthy",
            "share by timeSlicing on nodes with MIG instances",
        )
    if document.get("sharing.mps.failRequestsGreaterThanOne") is False:
        document.add(
            WARNING,
            "sharing.mps.failRequestsGreaterThanOne",
            "has no effect: with MPS a container never gets more than one replica",
        )
    for index, entry in enumerate(_entries(document, "sharing.mps.resources")):
        replicas = entry["replicas"] if entry is not None else 0
        if isinstance(replicas, int) and replicas > MOST_CLIENTS:
            document.add(
                WARNING,
                f"sharing.mps.resources[{index}].replicas",
                f"a GPU takes {MOST_CLIENTS} MPS clients or fewer: the others will not start",
            )


def _check_strategy(document: Document, strategy: str) -> None:
    """Check that entries neither share a device twice nor end up with one name for two things."""
    path = f"sharing.{strategy}"
    by_default = document.get(f"{path}.renameByDefault") is True
    entries = [
        _Named(
            f"{path}.resources[{index}]",
            entry["name"],
            build.shared(entry, strategy).offered_name(by_default=by_default),
            entry.get("devices", ALL),
        )
        for index, entry in enumerate(_entries(document, f"{path}.resources"))
        if entry is not None
    ]
    for number, entry in enumerate(entries):
        if len(entry.name) > LONGEST_NAME:
            document.add(
                ERROR,
                f"{entry.path}.name",
                f"{entry.name} would be {len(entry.name)} characters long, {LONGEST_NAME} is the "
                "most",
                "give it another name with `rename`",
            )
        _check_against(document, entry, entries[:number])
        _check_named_elsewhere(document, entry, entries)


@dataclass(frozen=True, slots=True)
class _Named:
    """An entry of a strategy, and what its resource is called once it is shared."""

    path: str
    before: str
    name: str
    devices: Any


def _check_against(document: Document, entry: _Named, earlier: list[_Named]) -> None:
    """Add the first contradiction of an entry with those before it."""
    for other in earlier:
        if other.before == entry.before:
            both = overlap(other.devices, entry.devices)
            if both is not None:
                message = f"duplicate: {entry.before} is shared by {other.path} already, for {both}"
                hint = "several entries of one resource need `devices` that have none in common"
                document.add(ERROR, entry.path, message, hint)
                return
        elif other.name == entry.name:
            message = f"would be called {entry.name}, as {other.path} is: a name is one resource's"
            document.add(ERROR, entry.path, message)
            return


def overlap(one: Any, other: Any) -> str | None:
    """Return in words what two values of `devices` surely have in common, None if nothing.

    `other` is the later one: `all` means all the others there. An index and a UUID may be the same
    device: only the node knows.
    """
    if one == ALL:
        return "all of its devices"
    if other == ALL:
        return None
    if isinstance(one, int) and isinstance(other, int):
        return "the same first devices"
    if isinstance(one, int) or isinstance(other, int):
        count, names = (one, other) if isinstance(one, int) else (other, one)
        both = [name for name in names if is_index(name) and ":" not in name and int(name) < count]
    else:
        both = [name for name in one if name in other]
    return ("device " + ", ".join(both)) if both else None


def _check_named_elsewhere(document: Document, entry: _Named, entries: list[_Named]) -> None:
    """Check that a renamed resource does not take the name of one in `resources`.

    That one may be shared itself: then its entries are compared, and it may be renamed as a whole.
    """
    if entry.name == entry.before:
        return
    others = {
        naming["name"]
        for kind in ("gpus", "mig")
        for naming in _entries(document, f"resources.{kind}")
        if naming is not None and naming["name"] != entry.before
    }
    for other in entries:
        if other.name == other.before or other.devices == ALL:
            others.discard(other.before)
    if entry.name in others:
        message = f"would be called {entry.name}, which is a name of `resources` already"
        document.add(ERROR, entry.path, message)


def _check_host(document: Document) -> None:
    """Check what the file, the command line and the environment say of the host."""
    one, two = document.get("flags.mpsRoot"), document.get("mps.root")
    if one and two and one != two and not isinstance(document.places["flags.mpsRoot"], str):
        document.add(ERROR, "mps.root", f"is {two}, and flags.mpsRoot is {one}", "keep one of them")
    hook = document.get("flags.plugin.nvidiaCTKPath")
    if isinstance(hook, str) and os.path.basename(hook) in _HOOK_OF_THE_REFERENCE:
        flags: Any = document.get("flags.plugin")
        document.add(
            WARNING,
            "flags.plugin.nvidiaCTKPath",
            f"{os.path.basename(hook)} is ignored: the hook of gpuhook's CDI specs is gpuhook-hook",
            "give the path of gpuhook-hook on the host, or nothing",
        )
        del flags["nvidiaCTKPath"]
    if document.get("flags.useNodeFeatureAPI") is True:
        document.add(
            WARNING,
            "flags.useNodeFeatureAPI",
            "has no effect: gpuhook writes its labels to a file or to the node",
            "set gpuhook.labels or gpuhook.labelNode",
        )


def _check_idle(document: Document) -> None:
    """Warn of what says nothing without something else."""
    if document.get("gpuhook.minFreeMemory") and not document.get("gpuhook.preStartCheck"):
        message = "has no effect without gpuhook.preStartCheck"
        document.add(WARNING, "gpuhook.minFreeMemory", message, "set gpuhook.preStartCheck: true")
    if document.get("resources.mig") and document.get("flags.migStrategy") in (None, "none"):
        message = "has no effect with migStrategy none: no MIG instance is offered"
        document.add(WARNING, "resources.mig", message, "set flags.migStrategy: mixed")
    if document.get("imex.required") and not document.get("imex.channelIDs"):
        message = "has no effect without imex.channelIDs"
        document.add(WARNING, "imex.required", message, "set imex.channelIDs: [0]")


def _entries(document: Document, path: str) -> list[dict[str, Any] | None]:
    found = document.get(path)
    return found if isinstance(found, list) else []
