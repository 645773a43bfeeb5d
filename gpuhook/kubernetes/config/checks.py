# SPDX-License-Identifier: Apache-2.0
"""Contradictions of a configuration: what each value alone does not show.

What only the node's hardware can contradict is not here.
"""

from __future__ import annotations

import os
from typing import Any

from gpuhook.kubernetes.config.build import STRATEGIES
from gpuhook.kubernetes.config.configuration import MOST_CLIENTS, SharedResource
from gpuhook.kubernetes.config.findings import ERROR, WARNING
from gpuhook.kubernetes.config.names import ALL, LONGEST_NAME, is_index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.kubernetes.config.document import Document

_HOOK_OF_THE_REFERENCE = ("nvidia-ctk", "nvidia-cdi-hook")


def check(document: Document) -> None:
    """Add what contradicts itself in a document to its findings."""
    sharing = document.get("sharing")
    strategies = [key for key in STRATEGIES if isinstance(sharing, dict) and key in sharing]
    if len(strategies) > 1:
        document.add(
            ERROR,
            "sharing.mps",
            "timeSlicing and mps are both given, and a device is shared in one way only",
            "remove one of the two",
        )
    if "mps" in strategies:
        _check_mps(document)
    for key in strategies:
        _check_strategy(document, f"sharing.{key}")
    _check_host(document)
    _check_idle(document)


def final_name(entry: dict[str, Any], *, by_default: bool) -> str:
    """Return what the resource of a sharing entry is called once it is shared."""
    return SharedResource(**entry).offered_name(by_default=by_default)


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
        if entry is not None and entry["replicas"] > MOST_CLIENTS:
            document.add(
                WARNING,
                f"sharing.mps.resources[{index}].replicas",
                f"a GPU takes {MOST_CLIENTS} MPS clients or fewer: the others will not start",
            )


def _check_strategy(document: Document, path: str) -> None:
    """Check that entries neither share a device twice nor end up with one name for two things."""
    by_default = document.get(f"{path}.renameByDefault") is True
    earlier: list[tuple[int, dict[str, Any]]] = []
    for index, entry in enumerate(_entries(document, f"{path}.resources")):
        if entry is None:
            continue
        here = f"{path}.resources[{index}]"
        name = final_name(entry, by_default=by_default)
        if len(name) > LONGEST_NAME:
            document.add(
                ERROR,
                f"{here}.name",
                f"{name} would be {len(name)} characters long, {LONGEST_NAME} is the most",
                "give it another name with `rename`",
            )
        _check_against(document, here, entry, earlier, by_default=by_default)
        _check_named_elsewhere(document, here, entry["name"], name, by_default=by_default)
        earlier.append((index, entry))


def _check_against(
    document: Document,
    here: str,
    entry: dict[str, Any],
    earlier: list[tuple[int, dict[str, Any]]],
    *,
    by_default: bool,
) -> None:
    """Add the first contradiction of an entry with those before it."""
    name = final_name(entry, by_default=by_default)
    for number, other in earlier:
        there = f"{here[: here.rindex('[')]}[{number}]"
        if other["name"] == entry["name"]:
            shared = overlap(other.get("devices", ALL), entry.get("devices", ALL))
            if shared is not None:
                message = f"duplicate: {entry['name']} is shared by {there} already, for {shared}"
                hint = "several entries of one resource need `devices` that have none in common"
                document.add(ERROR, here, message, hint)
                return
        elif final_name(other, by_default=by_default) == name:
            message = f"would be called {name}, as {there} is: a name is one resource's"
            document.add(ERROR, here, message)
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


def _check_named_elsewhere(
    document: Document, here: str, before: str, name: str, *, by_default: bool
) -> None:
    """Check that a renamed resource does not take the name of one in `resources`.

    That one may be shared itself: then its entries are compared, and it may be renamed as a whole.
    """
    if name == before:
        return
    others = {
        entry["name"]
        for kind in ("gpus", "mig")
        for entry in _entries(document, f"resources.{kind}")
        if entry is not None and entry["name"] != before
    }
    for entry in _entries(document, here[: here.rindex("[")]):
        if entry is not None:
            stays = final_name(entry, by_default=by_default) == entry["name"]
            if stays or entry.get("devices", ALL) == ALL:
                others.discard(entry["name"])
    if name in others:
        document.add(ERROR, here, f"would be called {name}, which is a name of `resources` already")


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
