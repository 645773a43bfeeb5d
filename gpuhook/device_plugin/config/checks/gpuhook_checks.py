# SPDX-License-Identifier: Apache-2.0
"""Contradictions of the guard and of interposers, in themselves and with `sharing`."""

from __future__ import annotations

import re

from gpuhook.device_plugin.config.checks import sharing_checks
from gpuhook.device_plugin.config.gpuhook_section import KILL, OWN, TERMINATE, Guard
from gpuhook.device_plugin.config.grammar import edit_values
from gpuhook.host.suggestion import nearest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.gpuhook_section import Interposer, Own
    from gpuhook.device_plugin.config.grammar.config_document import Document
    from gpuhook.device_plugin.config.sharing_section import SharedResource

GUARD, INTERPOSERS = "gpuhook.guard", "gpuhook.interposers"
_LIMITS = ("limitMiB", "limitBytes")
_PRELOAD = "LD_PRELOAD"


def check(document: Document) -> None:
    """Add the contradictions in a document to its findings."""
    _check_guard(document)
    _check_interposers(document)


def _own(document: Document, name: str) -> Own:
    """Return the section `gpuhook` with only the well-formed values of one key."""
    values = document.get(f"gpuhook.{name}") or {}
    if isinstance(values, list):
        values = [entry for entry in values if entry is not None]
    made: Own = OWN.built({name: values})
    return made


def _check_guard(document: Document) -> None:
    guard, default = _own(document, "guard").guard, Guard()
    if guard.shortest_interval > guard.longest_interval:
        is_short = document.get(f"{GUARD}.shortestInterval") is not None
        document.error(
            f"{GUARD}.{'shortestInterval' if is_short else 'longestInterval'}",
            f"the shortest interval, {guard.shortest_interval:g}s, is longer than the longest, "
            f"{guard.longest_interval:g}s",
            "set both",
        )
    if guard.ends_processes:
        _check_limits(document)
    elif guard.grace != default.grace:
        message = f"has no effect without action {TERMINATE} or {KILL}"
        document.warn(f"{GUARD}.grace", message, f"set {GUARD}.action: {TERMINATE}")
    if guard.kill_after != default.kill_after and guard.action != KILL:
        message = f"has no effect without action {KILL}"
        document.warn(f"{GUARD}.killAfter", message, f"set {GUARD}.action: {KILL}")


def _check_limits(document: Document) -> None:
    """Warn of a guard that ends processes, and has no limit to enforce."""
    path, limited = f"{GUARD}.action", sharing_checks.limited(document)
    if not limited:
        message = "has no effect without a memory limit in `sharing`"
        document.warn(path, message, "set `memory: fair` for a shared resource")
    elif limited == {"mps"}:
        message = "has no effect with mps: the MPS server enforces the limits of its clients"
        document.warn(path, message, "remove it, or share by timeSlicing")


def _check_interposers(document: Document) -> None:
    shared = sharing_checks.entries(document)
    used = {entry.interposer for _, _, entry in shared}
    known: dict[str, Interposer] = {}
    listed = document.entries(INTERPOSERS)
    for (path, _), made in zip(listed, _own(document, "interposers").interposers, strict=True):
        if made.name in known:
            document.error(f"{path}.name", f"duplicate: another entry has the name {made.name}")
        known[made.name] = made
        _check_edits(document, f"{path}.containerEdits", made)
        if made.name not in used:
            message = f"has no effect without a resource with `interposer: {made.name}`"
            document.warn(f"{path}.name", message)
    # A wrong entry may be the one that a resource names.
    is_whole = len(listed) == len(document.get(INTERPOSERS) or ())
    for strategy, path, entry in shared:
        if entry.interposer in known:
            if not sharing_checks.is_limited(entry, strategy):
                _check_unlimited(document, path, entry, known[entry.interposer])
        elif entry.interposer is not None and is_whole:
            near = nearest(entry.interposer, known)
            hint = f"did you mean {near}?" if near else f"known names are {', '.join(known)}"
            message = f"{entry.interposer} is not in {INTERPOSERS}"
            hint = hint if known else f"add it to {INTERPOSERS}"
            document.error(f"{path}.interposer", message, hint)


def _check_edits(document: Document, path: str, made: Interposer) -> None:
    edits = made.edits
    if not (edits.env or edits.mounts or edits.device_nodes):
        document.error(path, "is empty", "set `env`, `mounts` or `deviceNodes`")
    mounted = [mount.container_path for mount in edits.mounts]
    nodes = [node.path for node in edits.device_nodes]
    for name, paths in (("mounts[{}].containerPath", mounted), ("deviceNodes[{}].path", nodes)):
        for index, place in enumerate(paths):
            if place in paths[:index]:
                document.error(f"{path}.{name.format(index)}", f"duplicate: {place}")
    for index, (name, value) in enumerate(edits.env):
        if name == _PRELOAD:
            _check_preload(document, f"{path}.env[{index}]", value, mounted)


def _check_preload(document: Document, path: str, value: str, mounted: list[str]) -> None:
    """Check that mounts provide the libraries of LD_PRELOAD: else every program prints an error."""
    for library in filter(None, re.split(r"[: ]", value)):
        if not library.startswith("/"):
            message = f"{_PRELOAD} has {library}, which is not an absolute path: which file "
            message += "it is depends on the image"
            document.error(path, message, "write the containerPath of its mount")
        elif not any(library == place or library.startswith(place + "/") for place in mounted):
            message = f"{_PRELOAD} has {library}, and no mount of the interposer provides it"
            document.error(path, message, f"add a mount with `containerPath: {library}`")


def _check_unlimited(
    document: Document, path: str, entry: SharedResource, made: Interposer
) -> None:
    """Refuse placeholders of a limit in the interposer of a resource without one."""
    texts = [value for _, value in made.edits.env]
    texts += [mount.host_path for mount in made.edits.mounts]
    words = {word for text in texts for word in edit_values.placeholders(text)}
    for word in _LIMITS:
        if word in words:
            message = f"{made.name} has {{{word}}}, and {entry.name} has no memory limit here"
            document.error(f"{path}.interposer", message, "set `memory: fair`, or an amount")
