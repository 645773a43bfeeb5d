# SPDX-License-Identifier: Apache-2.0
"""Makes the driver's device nodes: right ones remain, wrong ones are refused or replaced."""

from __future__ import annotations

import os
import stat
from functools import partial

from gpuhook.vendors.nvidia.system import system_root
from gpuhook.vendors.nvidia.system.system_root import Step, described

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.vendors.nvidia.system.expected_nodes import ExpectedNode
    from gpuhook.vendors.nvidia.system.system_root import SystemRoot


def steps(place: SystemRoot, expected: Iterable[ExpectedNode], *, is_replaced: bool) -> list[Step]:
    """Return the step for each node; with `is_replaced`, wrong nodes are replaced."""
    return [_step(place, one, is_replaced=is_replaced) for one in expected]


def _step(place: SystemRoot, expected: ExpectedNode, *, is_replaced: bool) -> Step:
    path = place.host(expected.path)
    if expected.major is None:
        names = " or ".join(expected.names)
        return Step(
            system_root.SKIP, path, f"/proc/devices has no {names}: its kernel module is not loaded"
        )
    says = f"character device {expected.major}:{expected.minor} with mode {expected.mode:04o}"
    found = place.status(expected.path, is_followed=True)
    if found is not None and _is_right(found, expected):
        return Step(system_root.KEEP, path, f"it is {described(found)}")
    make = partial(place.make_node, expected, expected.major)
    entry = place.status(expected.path, is_followed=False)
    if entry is None:
        return Step(system_root.MAKE, path, says, make)
    wrong = f"it is {described(found or entry)}, but should be {expected.major}:{expected.minor}"
    if stat.S_ISLNK(entry.st_mode):
        wrong = f"it is a link to {place.target(expected.path)}, which is not a {says}"
    if is_replaced and not stat.S_ISDIR(entry.st_mode):
        return Step(system_root.REPLACE, path, f"{says}; {wrong}", make)
    return Step(system_root.REFUSE, path, wrong)


def _is_right(found: os.stat_result, expected: ExpectedNode) -> bool:
    """Return whether it is the device; its mode is the administrator's choice."""
    numbers = (os.major(found.st_rdev), os.minor(found.st_rdev))
    return stat.S_ISCHR(found.st_mode) and numbers == (expected.major, expected.minor)
