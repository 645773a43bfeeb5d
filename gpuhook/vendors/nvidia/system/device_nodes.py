# SPDX-License-Identifier: Apache-2.0
"""Makes the driver's device nodes: right ones remain, wrong ones are refused or replaced."""

from __future__ import annotations

import os
import stat

from gpuhook.errors import fault
from gpuhook.vendors.nvidia.system.system_root import (
    KEEP,
    MAKE,
    REFUSE,
    REPLACE,
    SKIP,
    Step,
    described,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.vendors.nvidia.system.expected_nodes import ExpectedNode
    from gpuhook.vendors.nvidia.system.system_root import SystemRoot


def steps(place: SystemRoot, expected: Iterable[ExpectedNode], *, is_replaced: bool) -> list[Step]:
    """Return the step for each node; nothing is changed."""
    return [_step(place, one, is_replaced=is_replaced) for one in expected]


def make(place: SystemRoot, expected: Iterable[ExpectedNode], *, is_replaced: bool) -> list[Step]:
    """Make missing nodes, and with `is_replaced` wrong ones; return the steps.

    If any step is refused, nothing is made: raises GH1535 for the first one, and OSError.
    """
    plan = [(one, _step(place, one, is_replaced=is_replaced)) for one in expected]
    for _, step in plan:
        if step.action == REFUSE:
            raise fault("GH1535", path=step.what, reason=step.says)
    for one, step in plan:
        if step.action in (MAKE, REPLACE) and one.major is not None:
            place.make_node(one, one.major)
    return [step for _, step in plan]


def _step(place: SystemRoot, expected: ExpectedNode, *, is_replaced: bool) -> Step:
    path = place.host(expected.path)
    if expected.major is None:
        names = " or ".join(expected.names)
        return Step(SKIP, path, f"/proc/devices has no {names}: its kernel module is not loaded")
    says = f"character device {expected.major}:{expected.minor} with mode {expected.mode:04o}"
    found = place.status(expected.path, is_followed=True)
    if found is not None and _is_right(found, expected):
        return Step(KEEP, path, f"it is {described(found)}")
    entry = place.status(expected.path, is_followed=False)
    if entry is None:
        return Step(MAKE, path, says)
    wrong = f"it is {described(found or entry)}, and should be {expected.major}:{expected.minor}"
    if stat.S_ISLNK(entry.st_mode):
        wrong = f"it is a link to {place.target(expected.path)}, which is not a {says}"
    if is_replaced and not stat.S_ISDIR(entry.st_mode):
        return Step(REPLACE, path, f"{says}; {wrong}")
    return Step(REFUSE, path, wrong)


def _is_right(found: os.stat_result, expected: ExpectedNode) -> bool:
    """Return whether it is the device; its mode is the administrator's choice."""
    numbers = (os.major(found.st_rdev), os.minor(found.st_rdev))
    return stat.S_ISCHR(found.st_mode) and numbers == (expected.major, expected.minor)
