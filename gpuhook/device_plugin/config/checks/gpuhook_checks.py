# SPDX-License-Identifier: Apache-2.0
"""Contradictions of the guard and of interposers, in themselves and with what is shared."""

from __future__ import annotations

import re

from gpuhook.device_plugin.config import build
from gpuhook.device_plugin.config.checks import sharing_checks
from gpuhook.device_plugin.config.configuration import KILL, TERMINATE, Guard
from gpuhook.device_plugin.config.findings import ERROR, WARNING
from gpuhook.device_plugin.config.grammar import edit_values
from gpuhook.host.suggestion import nearest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.device_plugin.config.configuration import Interposer, SharedResource
    from gpuhook.device_plugin.config.grammar.config_document import Document

GUARD, INTERPOSERS = "gpuhook.guard", "gpuhook.interposers"
_OF_A_LIMIT = ("limitMiB", "limitBytes")
_PRELOAD = "LD_PRELOAD"


def check(document: Document) -> None:
    """Add what contradicts itself to the findings of a document."""
    _check_guard(document)
    _check_interposers(document)


def _check_guard(document: Document) -> None:
    values: Any = document.get(GUARD) or {}
    guard = build.guard(values)
    if guard.shortest_interval > guard.longest_interval:
        given = "shortestInterval" if "shortestInterval" in values else "longestInterval"
        document.add(
            ERROR,
            f"{GUARD}.{given}",
            f"the shortest interval, {guard.shortest_interval:g}s, is longer than the longest, "
            f"{guard.longest_interval:g}s",
            "set both; the longest must not be below the shortest",
        )
    if guard.action in (TERMINATE, KILL):
        _check_watched(document)
    _check_idle(document, guard)


def _check_watched(document: Document) -> None:
    """Warn where the guard is to end processes, and there is nothing that it watches."""
    path, limited = f"{GUARD}.action", sharing_checks.limited(document)
    if not limited:
        message = "has no effect without a limit of memory in `sharing`"
        document.add(WARNING, path, message, "set `memory: fair` for a resource that is shared")
    elif limited == {"mps"}:
        message = "has no effect with mps: its server holds its clients, and no guard watches them"
        document.add(WARNING, path, message, "leave it away, or share by timeSlicing")


def _check_idle(document: Document, guard: Guard) -> None:
    """Warn of times of the guard that no action of it has."""
    default = Guard()
    if guard.grace != default.grace and guard.action not in (TERMINATE, KILL):
        message = f"has no effect without action {TERMINATE} or {KILL}"
        document.add(WARNING, f"{GUARD}.grace", message, f"set {GUARD}.action: {TERMINATE}")
    if guard.kill_after != default.kill_after and guard.action != KILL:
        message = f"has no effect without action {KILL}"
        document.add(WARNING, f"{GUARD}.killAfter", message, f"set {GUARD}.action: {KILL}")


def _check_interposers(document: Document) -> None:
    listed: Any = document.get(INTERPOSERS)
    listed = listed if isinstance(listed, list) else []
    known: dict[str, Interposer] = {}
    used = {entry.interposer for _, _, entry in sharing_checks.entries(document)}
    for index, values in enumerate(listed):
        if values is None:
            continue
        path = f"{INTERPOSERS}[{index}]"
        made = build.interposer(values)
        if made.name in known:
            document.add(ERROR, f"{path}.name", f"duplicate: another is called {made.name}, too")
        known[made.name] = made
        _check_edits(document, f"{path}.containerEdits", made)
        if made.name not in used:
            document.add(
                WARNING,
                f"{path}.name",
                f"has no effect without a resource that says `interposer: {made.name}`",
            )
    is_whole = None not in listed  # else the one that is meant may be the wrong one
    for strategy, path, entry in sharing_checks.entries(document):
        if entry.interposer in known:
            limited = sharing_checks.is_limited(entry, build.STRATEGIES[strategy])
            _check_use(document, path, entry, known[entry.interposer], is_limited=limited)
        elif entry.interposer is not None and is_whole:
            _unknown(document, path, entry.interposer, list(known))


def _check_edits(document: Document, path: str, made: Interposer) -> None:
    if not (made.env or made.mounts or made.device_nodes):
        hint = "give it `env`, `mounts` or `deviceNodes`"
        document.add(ERROR, path, "gives containers nothing", hint)
    mounted = [mount.container_path for mount in made.mounts]
    for index, place in enumerate(mounted):
        if place in mounted[:index]:
            message = f"duplicate: {place} is mounted already"
            document.add(ERROR, f"{path}.mounts[{index}].containerPath", message)
    for index, node in enumerate(made.device_nodes):
        if node in made.device_nodes[:index]:
            message = f"duplicate: {node} is there already"
            document.add(ERROR, f"{path}.deviceNodes[{index}].path", message)
    for index, (name, value) in enumerate(made.env):
        if name == _PRELOAD:
            _check_preload(document, f"{path}.env[{index}]", value, mounted)


def _check_preload(document: Document, path: str, value: str, mounted: list[str]) -> None:
    """Check that the libraries of LD_PRELOAD are there: else each program of a container warns."""
    for library in filter(None, re.split(r"[: ]", value)):
        if not library.startswith("/"):
            document.add(
                ERROR,
                path,
                f"{_PRELOAD} has {library}, which is no absolute path: which file that is depends "
                "on the image",
                "give the containerPath of the mount that brings it",
            )
        elif not any(library == place or library.startswith(place + "/") for place in mounted):
            document.add(
                ERROR,
                path,
                f"{_PRELOAD} has {library}, and no mount of the interposer brings it",
                f"add a mount with `containerPath: {library}`",
            )


def _check_use(
    document: Document, path: str, entry: SharedResource, made: Interposer, *, is_limited: bool
) -> None:
    texts = [value for _, value in made.env] + [mount.host_path for mount in made.mounts]
    words = {word for text in texts for word in edit_values.placeholders(text)}
    for word in _OF_A_LIMIT if not is_limited else ():
        if word in words:
            document.add(
                ERROR,
                f"{path}.interposer",
                f"{made.name} has {{{word}}}, and {entry.name} has no limit of memory here",
                "set `memory: fair`, or an amount",
            )


def _unknown(document: Document, path: str, name: str, known: list[str]) -> None:
    near = nearest(name, known)
    hint = f"did you mean {near}?" if near else f"there are {', '.join(known)}"
    document.add(
        ERROR,
        f"{path}.interposer",
        f"{name} is none of {INTERPOSERS}",
        hint if known else f"add it to {INTERPOSERS}",
    )
