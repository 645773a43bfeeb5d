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
from gpuhook.vendors.hot import rootfs_plan
from gpuhook.vendors.nvidia.hot.rootfs import driver_params, egl_profile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.apply.live.hotplug_steps import Live
    from gpuhook.compare.expected_injection import ExpectedInjection

_KEY = b"ModifyDeviceFiles:"
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
        yield compare_words(
            VARIABLE, name, there, value, known_differences.variable(name, values, by)
        )
    others = [entry for entry in env if entry in expected.foreign.variables and entry not in added]
    for entry in dict.fromkeys((*added, *others)):
        name, _, value = entry.partition("=")
        if name not in ours:
            there = value or "empty"
            yield compare_words(
                VARIABLE, name, there, "", known_differences.added_variable(name, by)
            )


def groups(held: Live, by: str, expected: ExpectedInjection) -> Iterator[Item]:
    """Yield the groups that opening a node needs; every process may use those of root."""
    needed = [gid for gid in expected.edits.get("additionalGids") or () if gid]
    own = identities(held) if needed else Identities(frozenset(), frozenset())
    reason = known_differences.of_toolkit(by, "group") if 0 in own.users else ""
    for gid in needed:
        there = "member" if gid in own.groups else ""
        yield compare_words(GROUP, str(gid), there, "member", reason)


def effects(held: Live, by: str, expected: ExpectedInjection) -> Iterator[Item]:
    """Yield the effects of hooks other than links and the loader's files."""
    yield from _mask(held, by, expected)
    if not expected.edits:
        return
    there = "written" if held.root.status(egl_profile.PATH) is not None else ""
    has_egl = any(rootfs_plan.needs_profile_of(job) for job in expected.todo)
    if there or has_egl:
        ours = "written" if has_egl else ""
        yield compare_words(
            PROFILE,
            egl_profile.PATH,
            there,
            ours,
            known_differences.profile(by, there),
        )


def _mask(held: Live, by: str, expected: ExpectedInjection) -> Iterator[Item]:
    try:
        text = held.root.read(driver_params.PATH, _MAX_PARAMS)
    except (OSError, GpuhookError):
        text = None
    if text is None:
        return  # no driver, or no /proc in the container
    there = "masked" if _value(text) != b"1" else ""
    if any(job.driver_params and driver_params.masked(job.host_root) for job in expected.todo):
        yield compare_words(MASK, driver_params.PATH, there or "ModifyDeviceFiles: 1", "masked")
    elif expected.edits and there and held.root.is_mounted(driver_params.PATH):
        yield compare_words(MASK, driver_params.PATH, there, "", known_differences.mask(by))


def _value(text: bytes) -> bytes:
    for line in text.split(b"\n"):
        if line.startswith(_KEY):
            return line[len(_KEY) :].strip()
    return b""


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
