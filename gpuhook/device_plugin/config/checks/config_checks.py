# SPDX-License-Identifier: Apache-2.0
"""Contradictions between keys: strategies, resource names, MPS, host paths, keys without effect.

Contradictions with the hardware of a node are in node_config_check.py.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from gpuhook.device_plugin.config.checks import gpuhook_checks, sharing_checks
from gpuhook.device_plugin.config.grammar.name_values import ALL, LONGEST_NAME, is_index
from gpuhook.device_plugin.config.sharing_section import MOST_CLIENTS, STRATEGIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.grammar.config_document import Document

_NVIDIA_HOOKS = ("nvidia-ctk", "nvidia-cdi-hook")


def check(document: Document) -> None:
    """Add the contradictions in a document to its findings."""
    strategies = [key for key in STRATEGIES if key in (document.get("sharing") or {})]
    if len(strategies) > 1:
        *most, last = strategies
        names = f"{', '.join(most)} and {last}"
        message = f"{names} are mutually exclusive: a device can be shared in only one way"
        document.error(f"sharing.{last}", message, "keep one of them")
    if "mps" in strategies:
        _check_mps(document)
    for key in strategies:
        _check_names(document, key)
    sharing_checks.check(document)
    gpuhook_checks.check(document)
    _check_host(document)
    _check_without_effect(document)


def _check_mps(document: Document) -> None:
    if not (document.get("flags.mpsRoot") or document.get("mps.root")):
        message = "MPS requires the directory of its daemons on the host"
        hint = "set flags.mpsRoot or --mps-root, usually /run/nvidia/mps"
        document.error("sharing.mps", message, hint)
    strategy = document.get("flags.migStrategy")
    if strategy == "mixed":
        message = 'the strategy "mixed" is not supported with MPS'
        hint = 'share by timeSlicing, or set migStrategy to "none"'
        document.error("flags.migStrategy", message, hint)
    elif strategy == "single":
        message = "MPS shares whole GPUs only: MIG instances of a shared resource are unhealthy"
        hint = "share by timeSlicing on nodes with MIG instances"
        document.warn("flags.migStrategy", message, hint)
    path = "sharing.mps.failRequestsGreaterThanOne"
    if document.get(path) is False:
        document.warn(path, "has no effect: with MPS, a container never gets more than one replica")
    for path, values in document.entries("sharing.mps.resources"):
        if isinstance(values["replicas"], int) and values["replicas"] > MOST_CLIENTS:
            message = (
                f"a GPU serves at most {MOST_CLIENTS} MPS clients: further clients do not start"
            )
            document.warn(f"{path}.replicas", message)


@dataclass(frozen=True, slots=True)
class _Named:
    """An entry of a strategy, with the name of its resource before and after sharing."""

    path: str
    before: str
    name: str
    devices: Any


def _check_names(document: Document, strategy: str) -> None:
    """Check that entries share no device twice, and that no two resources get one name."""
    by_default = document.get(f"sharing.{strategy}.renameByDefault") is True
    entries = [
        _Named(path, made.name, made.offered_name(by_default=by_default), made.devices)
        for key, path, made in sharing_checks.entries(document)
        if key == strategy
    ]
    for number, entry in enumerate(entries):
        if len(entry.name) > LONGEST_NAME:
            message = f"{entry.name} has {len(entry.name)} characters; at most {LONGEST_NAME}"
            document.error(f"{entry.path}.name", message, "set another name with `rename`")
        _check_earlier(document, entry, entries[:number])
        _check_other_resources(document, entry, entries)


def _check_earlier(document: Document, entry: _Named, earlier: list[_Named]) -> None:
    """Add the first contradiction between an entry and those before it."""
    for other in earlier:
        if other.before == entry.before:
            common = overlap(other.devices, entry.devices)
            if common is not None:
                message = f"duplicate: {other.path} already shares {entry.before}, for {common}"
                hint = "several entries for one resource need `devices` that do not overlap"
                document.error(entry.path, message, hint)
                return
        elif other.name == entry.name:
            message = (
                f"{other.path} already has the name {entry.name}: each name is for one resource"
            )
            document.error(entry.path, message)
            return


def overlap(one: Any, other: Any) -> str | None:
    """Return in words the certain overlap of two values of `devices`, None if there is none.

    `other` is of the later entry, where `all` means all other devices. An index and a UUID may be
    the same device; only the node shows that.
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


def _check_other_resources(document: Document, entry: _Named, entries: list[_Named]) -> None:
    """Check that a renamed resource does not get the name of another one in `resources`.

    That name is free if the other resource is itself renamed as a whole.
    """
    if entry.name == entry.before:
        return
    others = sharing_checks.named_resources(document) - {entry.before}
    for other in entries:
        if other.name == other.before or other.devices == ALL:
            others.discard(other.before)
    if entry.name in others:
        document.error(entry.path, f"`resources` already has the name {entry.name}")


def _check_host(document: Document) -> None:
    one, two = document.get("flags.mpsRoot"), document.get("mps.root")
    if one and two and one != two and not isinstance(document.places["flags.mpsRoot"], str):
        document.error("mps.root", f"is {two}, and flags.mpsRoot is {one}", "keep one of them")
    path = "flags.plugin.nvidiaCTKPath"
    hook = os.path.basename(document.get(path) or "")
    if hook in _NVIDIA_HOOKS:
        message = f"{hook} is ignored: the hook of gpuhook's CDI specs is gpuhook-hook"
        document.warn(path, message, "set the path of gpuhook-hook on the host, or remove the key")
        del document.get("flags.plugin")["nvidiaCTKPath"]


def _check_without_effect(document: Document) -> None:
    """Warn of keys that have no effect without another key."""
    if document.get("flags.useNodeFeatureAPI") is True:
        message = "has no effect: gpuhook writes its labels to a file or to the node"
        hint = "set gpuhook.labels or gpuhook.labelNode"
        document.warn("flags.useNodeFeatureAPI", message, hint)
    if document.get("gpuhook.minFreeMemory") and not document.get("gpuhook.preStartCheck"):
        message = "has no effect without gpuhook.preStartCheck"
        document.warn("gpuhook.minFreeMemory", message, "set gpuhook.preStartCheck: true")
    if document.get("resources.mig") and document.get("flags.migStrategy") in (None, "none"):
        message = "has no effect with migStrategy none: no MIG instance is offered"
        document.warn("resources.mig", message, "set flags.migStrategy: mixed")
    if document.get("imex.required") and not document.get("imex.channelIDs"):
        message = "has no effect without imex.channelIDs"
        document.warn("imex.required", message, "set imex.channelIDs: [0]")
