# SPDX-License-Identifier: Apache-2.0
"""The links /dev/char/MAJOR:MINOR to the driver's device nodes, which udev does not make.

systemd before 240 and runc 1.1.3 to 1.1.6 look there for the devices of a cgroup's rules.
"""

from __future__ import annotations

import os
import posixpath
import stat

from gpuhook.errors import fault
from gpuhook.vendors.nvidia.system.system_root import KEEP, MAKE, REFUSE, REPLACE, Step, described

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuhook.vendors.nvidia.system.expected_nodes import ExpectedNode
    from gpuhook.vendors.nvidia.system.system_root import SystemRoot

    Node = tuple[str, int, int]  # path inside, major, minor

DEV_CHAR = "/dev/char"
_DIRECTORIES = ("/dev/nvidia-caps", "/dev/nvidia-caps-imex-channels")


def present(place: SystemRoot) -> list[Node]:
    """Return the existing device nodes of the driver."""
    own = [f"/dev/{name}" for name in place.names("/dev") if name.startswith("nvidia")]
    inner = [f"{above}/{name}" for above in _DIRECTORIES for name in place.names(above)]
    return list(_nodes(place, [*own, *inner]))


def possible(expected: Iterable[ExpectedNode]) -> list[Node]:
    """Return all device nodes that the driver can have, existing or not."""
    return [(one.path, one.major, one.minor) for one in expected if one.major is not None]


def steps(
    place: SystemRoot, found: Iterable[Node], directory: str = DEV_CHAR, *, is_replaced: bool
) -> list[Step]:
    """Return the step for the link of each node; nothing is changed."""
    return [step for step, _, _ in _plan(place, found, directory, is_replaced=is_replaced)]


def make(
    place: SystemRoot, found: Iterable[Node], directory: str = DEV_CHAR, *, is_replaced: bool
) -> list[Step]:
    """Make the links; raises GH1535 before any change if a step is refused, and OSError."""
    planned = _plan(place, found, directory, is_replaced=is_replaced)
    for step, _, _ in planned:
        if step.action == REFUSE:
            raise fault("GH1535", path=step.what, reason=step.says)
    for step, link, target in planned:
        if step.action in (MAKE, REPLACE):
            place.make_link(link, target)
    return [step for step, _, _ in planned]


def _plan(
    place: SystemRoot, found: Iterable[Node], directory: str, *, is_replaced: bool
) -> list[tuple[Step, str, str]]:
    nodes: dict[tuple[int, int], str] = {}
    for path, major, minor in found:
        nodes.setdefault((major, minor), path)
    plan = []
    for (major, minor), path in sorted(nodes.items()):
        link = posixpath.join(directory, f"{major}:{minor}")
        target = posixpath.relpath(path, directory)
        step = _step(place, link, target, (major, minor), is_replaced=is_replaced)
        plan.append((step, link, target))
    return plan


def _step(
    place: SystemRoot, link: str, target: str, numbers: tuple[int, int], *, is_replaced: bool
) -> Step:
    path = place.host(link)
    status = place.status(link, is_followed=False)
    if status is None:
        return Step(MAKE, path, f"link to {target}")
    if stat.S_ISLNK(status.st_mode):
        leads = place.status(link, is_followed=True)
        if place.target(link) == target or _is_device(leads, numbers):
            return Step(KEEP, path, f"it is a link to {place.target(link)}")
        wrong = f"it is a link to {place.target(link)}, and should lead to {target}"
    elif _is_device(status, numbers):
        return Step(KEEP, path, f"it is {described(status)}")
    else:
        wrong = f"it is {described(status)}, and should be a link to {target}"
    if is_replaced and not stat.S_ISDIR(status.st_mode):
        return Step(REPLACE, path, f"link to {target}; {wrong}")
    return Step(REFUSE, path, wrong)


def _nodes(place: SystemRoot, paths: Iterable[str]) -> Iterator[Node]:
    for path in paths:
        status = place.status(path, is_followed=False)
        if status is not None and stat.S_ISCHR(status.st_mode):
            yield path, os.major(status.st_rdev), os.minor(status.st_rdev)


def _is_device(found: os.stat_result | None, numbers: tuple[int, int]) -> bool:
    if found is None or not stat.S_ISCHR(found.st_mode):
        return False
    return (os.major(found.st_rdev), os.minor(found.st_rdev)) == numbers
