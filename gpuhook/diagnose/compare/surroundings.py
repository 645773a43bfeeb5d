# SPDX-License-Identifier: Apache-2.0
"""Variables, groups, and what hooks leave behind: masked parameters, EGL's application profile."""

from __future__ import annotations

from gpuhook.diagnose.compare import item, reasons
from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia import params, profile, provision

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.container.operations import Live
    from gpuhook.diagnose.compare.expected import Expected
    from gpuhook.diagnose.compare.item import Item

_KEY = b"ModifyDeviceFiles:"
_MAX_PARAMS = 1 << 16


def variables(
    env: list[str], added: tuple[str, ...], by: str, expected: Expected
) -> Iterator[Item]:
    """Yield the variables that gpuhook would set, and those of `added` that it would not.

    `env` are the container's; `added` those that came with its GPUs.
    """
    ours = {entry.partition("=")[0]: entry for entry in expected.edits.get("env") or ()}
    for name, entry in ours.items():
        values = [one.partition("=")[2] for one in env if one.startswith(name + "=")]
        wanted = entry.partition("=")[2]
        if values == [wanted]:
            yield item.Item(item.VARIABLE, name, item.SAME, wanted, wanted)
            continue
        told = ", then ".join(values)
        yield item.of(item.VARIABLE, name, told, wanted, reasons.variable(name, values, by))
    others = [entry for entry in env if entry in expected.foreign.variables and entry not in added]
    for entry in dict.fromkeys((*added, *others)):
        name, _, value = entry.partition("=")
        if name not in ours:
            told = value or "empty"
            yield item.of(item.VARIABLE, name, told, "", reasons.added_variable(name, by))


def groups(held: Live, expected: Expected) -> Iterator[Item]:
    """Yield the groups without which a node cannot be opened; root's own is everybody's."""
    wanted = [gid for gid in expected.edits.get("additionalGids") or () if gid]
    member = _groups(held) if wanted else set()
    for gid in wanted:
        told = "member" if gid in member else ""
        yield item.of(item.GROUP, str(gid), told, "member")


def effects(held: Live, by: str, expected: Expected) -> Iterator[Item]:
    """Yield what hooks did besides links and the loader's files."""
    yield from _mask(held, by, expected)
    if not expected.edits:
        return
    there = "written" if held.root.found(profile.PATH) is not None else ""
    has_egl = any(provision.needs_profile_of(job) for job in expected.todo)
    if there or has_egl:
        ours = "written" if has_egl else ""
        yield item.of(item.PROFILE, profile.PATH, there, ours, reasons.profile(by, there))


def _mask(held: Live, by: str, expected: Expected) -> Iterator[Item]:
    try:
        text = held.root.read(params.PATH, _MAX_PARAMS)
    except (OSError, GpuhookError):
        text = None
    if text is None:
        return  # this kernel has no such driver, or the container no /proc
    told = "masked" if _value(text) != b"1" else ""
    if any(job.driver_params and params.masked(job.host_root) for job in expected.todo):
        yield item.of(item.MASK, params.PATH, told or "ModifyDeviceFiles: 1", "masked")
    elif expected.edits and told and held.root.is_mounted(params.PATH):
        yield item.of(item.MASK, params.PATH, told, "", reasons.mask(by))


def _value(text: bytes) -> bytes:
    for line in text.split(b"\n"):
        if line.startswith(_KEY):
            return line[len(_KEY) :].strip()
    return b""


def _groups(held: Live) -> set[int]:
    """Return the groups of the container's first process (proc(5), status)."""
    lines = [line.split() for line in held.process.read("status").split(b"\n")]
    member = [words[1:] for words in lines if words[:1] in ([b"Gid:"], [b"Groups:"])]
    return {int(word) for words in member for word in words}
