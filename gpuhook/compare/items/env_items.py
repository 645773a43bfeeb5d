# SPDX-License-Identifier: Apache-2.0
"""Items of variables, groups and effects of hooks: masked parameters, the EGL profile."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.compare.items import known_differences
from gpuhook.compare.items.compare_item import (
    GROUP,
    MASK,
    PROFILE,
    SAME,
    VARIABLE,
    Item,
    compare_words,
)
from gpuhook.errors import GpuhookError
from gpuhook.vendors import job_effects, known_difference
from gpuhook.vendors.known_difference import ADDED_VARIABLE, Difference

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.apply.live.hotplug_steps import Live
    from gpuhook.compare.expected_injection import ExpectedInjection

_MAX_PARAMS = 1 << 16


def variables(
    env: list[str], added: tuple[str, ...], by: str, expected: ExpectedInjection
) -> Iterator[Item]:
    """Yield the variables that gpuhook would set, and those of `added` that it would not.

    `env` are the variables of the container, `added` those that came with its GPUs.
    """
    ours = {entry.partition("=")[0]: entry for entry in expected.edits.get("env") or ()}
    for name, entry in ours.items():
        values = [one.partition("=")[2] for one in env if one.startswith(name + "=")]
        value = entry.partition("=")[2]
        if values == [value]:
            yield Item(VARIABLE, name, SAME, value, value)
            continue
        there = ", then ".join(values)
        difference = Difference(known_difference.VARIABLE, name, tuple(values))
        reason = known_differences.reason(by, difference)
        yield compare_words(VARIABLE, name, there, value, reason)
    others = [entry for entry in env if entry in expected.foreign.variables and entry not in added]
    for entry in dict.fromkeys((*added, *others)):
        name, _, value = entry.partition("=")
        if name not in ours:
            there = value or "empty"
            reason = known_differences.reason(by, Difference(ADDED_VARIABLE, name))
            yield compare_words(VARIABLE, name, there, "", reason)


def groups(held: Live, by: str, expected: ExpectedInjection) -> Iterator[Item]:
    """Yield the groups that opening a node needs; every process may use those of root."""
    needed = [gid for gid in expected.edits.get("additionalGids") or () if gid]
    own = identities(held) if needed else Identities(frozenset(), frozenset())
    for gid in needed:
        there = "member" if gid in own.groups else ""
        difference = Difference(known_difference.GROUP, str(gid))
        reason = known_differences.reason(by, difference) if 0 in own.users else ""
        yield compare_words(GROUP, str(gid), there, "member", reason)


def effects(held: Live, by: str, expected: ExpectedInjection) -> Iterator[Item]:
    """Yield the effects of hooks other than links and the loader's files."""
    yield from _mask(held, by, expected)
    if not expected.edits:
        return
    there = "written" if held.root.status(job_effects.PROFILE) is not None else ""
    written = (there,) if there else ()
    has_profile = job_effects.has_profile(expected.todo)
    if there or has_profile:
        ours = "written" if has_profile else ""
        yield compare_words(
            PROFILE,
            job_effects.PROFILE,
            there,
            ours,
            known_differences.reason(by, Difference(known_difference.PROFILE, there=written)),
        )


def _mask(held: Live, by: str, expected: ExpectedInjection) -> Iterator[Item]:
    try:
        text = held.root.read(job_effects.MASKED, _MAX_PARAMS)
    except (OSError, GpuhookError):
        text = None
    if text is None:
        return  # no driver, or no /proc in the container
    there = "masked" if job_effects.is_masked(text) else ""
    if job_effects.masks(expected.todo):
        yield compare_words(MASK, job_effects.MASKED, there or "ModifyDeviceFiles: 1", "masked")
    elif expected.edits and there and held.root.is_mounted(job_effects.MASKED):
        reason = known_differences.reason(by, Difference(known_difference.MASK))
        yield compare_words(MASK, job_effects.MASKED, there, "", reason)


@dataclass(frozen=True, slots=True)
class Identities:
    """The users and groups of a process on the host."""

    users: frozenset[int]
    groups: frozenset[int]


def identities(held: Live) -> Identities:
    """Return those of the container's first process (proc(5), status)."""
    lines = [line.split() for line in held.process.read("status").split(b"\n")]

    def ids(*keys: bytes) -> frozenset[int]:
        return frozenset(
            int(word) for words in lines if words[:1] and words[0] in keys for word in words[1:]
        )

    return Identities(ids(b"Uid:"), ids(b"Gid:", b"Groups:"))
