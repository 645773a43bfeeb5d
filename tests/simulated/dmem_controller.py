# SPDX-License-Identifier: Apache-2.0
"""A double of the kernel's controller dmem: its files' content, and what a write to them does.

It follows kernel/cgroup/dmem.c and mm/page_counter.c: a line is a region and a value with an
optional suffix; an unknown region or value is EINVAL; a dmem.max below the current use is ignored
without an error; limits end with their cgroup. The kernel keeps bytes, and this double whole pages,
as the memory controller does: gpuhook must not depend on either.

The facts are a JSON file, which a test may change at any time.
"""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

NO_LIMIT = (1 << 64) - 1
PAGE = 4096
FILES = ("dmem.max", "dmem.min", "dmem.low", "dmem.current")
CAPACITY = "dmem.capacity"
_SUFFIXES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_DEFAULT = {"dmem.max": NO_LIMIT, "dmem.min": 0, "dmem.low": 0}


class DmemFacts:
    """The facts of the controller in a file, as a test sets them.

    `capacity` has the bytes of each region; None is a kernel without the controller. `used` are the
    bytes of each region by cgroup, named as in /proc/PID/cgroup. The cgroups `without` do not
    enable the controller for those below them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(
        self,
        capacity: dict[str, int] | None,
        used: dict[str, dict[str, int]] | None = None,
        without: tuple[str, ...] = (),
    ) -> None:
        """Set all facts."""
        document = {"capacity": capacity, "used": used or {}, "without": list(without)}
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(document), encoding="utf-8")
        new.rename(self.path)

    def read(self) -> dict[str, Any]:
        """Return all facts."""
        return dict(json.loads(self.path.read_text("utf-8")))


class DmemController:
    """The controller: the files of each cgroup, and the limits in them."""

    def __init__(self, facts: DmemFacts) -> None:
        self._facts = facts
        self._limits: dict[tuple[str, str, str], int] = {}  # by cgroup, file and region

    def has_controller(self) -> bool:
        """Return whether the kernel has the controller."""
        return self._facts.read()["capacity"] is not None

    def passes_on(self, cgroup: str) -> bool:
        """Return whether a cgroup enables the controller for those below it."""
        return self._is_enabled(cgroup) and cgroup not in self._facts.read()["without"]

    def files(self, cgroup: str) -> tuple[str, ...]:
        """Return the names of the controller's files in a cgroup, "/" for the root."""
        if not self._is_enabled(cgroup):
            return ()
        return (CAPACITY, "dmem.current") if cgroup == "/" else FILES

    def show(self, cgroup: str, name: str) -> str:
        """Return the content of a file."""
        capacity: dict[str, int] = self._facts.read()["capacity"]
        if name == CAPACITY:
            return "".join(f"{region} {size}\n" for region, size in capacity.items())
        values = ((region, self._value(cgroup, name, region)) for region in capacity)
        return "".join(f"{one} {'max' if value == NO_LIMIT else value}\n" for one, value in values)

    def store(self, cgroup: str, name: str, text: str) -> None:
        """Write to a file; raises OSError."""
        if name not in _DEFAULT:
            raise OSError(errno.EACCES, "read-only")
        region, _, value = text.strip().partition(" ")
        if region not in self._facts.read()["capacity"]:
            raise OSError(errno.EINVAL, "unknown region")
        limit = _parsed(value.strip())
        if name == "dmem.max" and self._value(cgroup, "dmem.current", region) > limit:
            return  # page_counter_set_max() fails, and its caller does not return that
        self._limits[cgroup, name, region] = limit

    def remove(self, cgroup: str) -> None:
        """Forget the limits of a cgroup that is removed."""
        self._limits = {key: one for key, one in self._limits.items() if key[0] != cgroup}

    def _is_enabled(self, cgroup: str) -> bool:
        facts = self._facts.read()
        above = [one for one in facts["without"] if one == "/" or cgroup.startswith(one + "/")]
        return facts["capacity"] is not None and (cgroup == "/" or not above)

    def _value(self, cgroup: str, name: str, region: str) -> int:
        if name != "dmem.current":
            return self._limits.get((cgroup, name, region), _DEFAULT[name])
        used = self._facts.read()["used"]
        below = [one for one in used if one == cgroup or one.startswith(cgroup.rstrip("/") + "/")]
        return sum(used[one].get(region, 0) for one in below)


def _parsed(text: str) -> int:
    if text == "max":
        return NO_LIMIT
    digits, factor = text, 1
    if text[-1:].upper() in _SUFFIXES:
        digits, factor = text[:-1], _SUFFIXES[text[-1].upper()]
    if not digits.isdigit():
        raise OSError(errno.EINVAL, "not a value")
    return int(digits) * factor // PAGE * PAGE
