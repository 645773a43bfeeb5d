# SPDX-License-Identifier: Apache-2.0
"""The kernel's controller dmem (Linux 6.14): a cgroup's memory of devices, in cgroup v2.

A driver registers regions, such as "drm/0000:06:00.0/vram": the root cgroup's dmem.capacity has a
line "REGION BYTES" for each of them, other cgroups have dmem.max, dmem.min and dmem.current. Values
are bytes, NO_LIMIT is "max". Source: kernel/cgroup/dmem.c, admin-guide/cgroup-v2.rst.

The kernel accepts a dmem.max below the current use and ignores it: only reading it back shows that.
"""

from __future__ import annotations

import os

from gpuhook.host.hot import file_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "dmem"
MAX, MIN, CURRENT = "dmem.max", "dmem.min", "dmem.current"
CAPACITY = "dmem.capacity"
CONTROLLERS, PASSED_ON = "cgroup.controllers", "cgroup.subtree_control"
NO_LIMIT = (1 << 64) - 1
ENABLE = "write +dmem into cgroup.subtree_control of each parent cgroup, from the root downwards"
_UNLIMITED = "max"


def topmost(cgroup: str) -> str:
    """Return the directory of the highest visible cgroup above a cgroup's directory."""
    while True:
        above = os.path.dirname(cgroup)
        if above == cgroup or not os.path.exists(os.path.join(above, CONTROLLERS)):
            return cgroup
        cgroup = above


def capacity(top: str) -> dict[str, int] | None:
    """Return the bytes of each region; None if `top` is not the root cgroup, or without dmem."""
    return regions(top, CAPACITY)


def has_controller(top: str) -> bool:
    """Return whether the kernel offers the controller to the cgroup `top`."""
    return NAME in (_text(os.path.join(top, CONTROLLERS)) or "").split()


def has_limits(cgroup: str) -> bool:
    """Return whether the controller is enabled for a cgroup, so that it has the files."""
    return os.path.exists(os.path.join(cgroup, MAX))


def passes_on(cgroup: str) -> bool | None:
    """Return whether a cgroup enables the controller for those below it, None if unknown."""
    found = _text(os.path.join(cgroup, PASSED_ON))
    return None if found is None else NAME in found.split()


def first_gap(cgroup: str) -> str:
    """Return the highest directory above a cgroup that does not enable the controller below it."""
    gap = os.path.dirname(cgroup)
    for directory in _upwards(gap):
        if passes_on(directory) is False:
            gap = directory
    return gap


def regions(cgroup: str, name: str) -> dict[str, int] | None:
    """Return the values of a file such as MAX by region, None if it cannot be read."""
    content = _text(os.path.join(cgroup, name))
    if content is None:
        return None
    pairs = (line.rpartition(" ") for line in content.splitlines())
    return {region: _number(value) for region, _, value in pairs if region}


def write(cgroup: str, name: str, region: str, value: int) -> None:
    """Write the value of one region to MAX or MIN. Raises OSError, EINVAL for an unknown region."""
    text = _UNLIMITED if value == NO_LIMIT else str(value)
    fd = os.open(os.path.join(cgroup, name), os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, f"{region} {text}\n".encode())
    finally:
        os.close(fd)


def protect(cgroup: str, region: str, value: int) -> None:
    """Set dmem.min of a cgroup, and change that of those above by as much. Raises OSError.

    The kernel protects no more than what each cgroup above has. What they have outlives the cgroup.
    """
    top = topmost(cgroup)
    lock = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        file_lock.is_locked(lock)
        change = value - (regions(cgroup, MIN) or {}).get(region, 0)
        for directory in _upwards(cgroup) if change else ():
            held = regions(directory, MIN)  # the root cgroup has no such file
            if held is not None:
                write(directory, MIN, region, max(0, held.get(region, 0) + change))
    finally:
        os.close(lock)


def _upwards(cgroup: str) -> Iterator[str]:
    top = topmost(cgroup)
    while cgroup != top:
        yield cgroup
        cgroup = os.path.dirname(cgroup)
    yield top


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else NO_LIMIT


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return None
