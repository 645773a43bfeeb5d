# SPDX-License-Identifier: Apache-2.0
"""The links /dev/char/MAJOR:MINOR to the driver's device nodes, which udev does not make.

systemd before 240 and runc 1.1.3 to 1.1.6 look there for the devices of a cgroup's rules.
"""

from __future__ import annotations

import os
import posixpath
import stat
from functools import partial

from gpuhook.vendors.nvidia.system import system_root
from gpuhook.vendors.nvidia.system.system_root import Step, described

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
    """Return the step for the link of each node; with `is_replaced`, wrong ones are replaced."""
    nodes: dict[tuple[int, int], str] = {}
    for path, major, minor in found:
        nodes.setdefault((major, minor), path)
    plan = []
    for (major, minor), path in sorted(nodes.items()):
        link = posixpath.join(directory, f"{major}:{minor}")
        target = posixpath.relpath(path, directory)
        plan.append(_step(place, link, target, (major, minor), is_replaced=is_replaced))
    return plan


def _step(
    place: SystemRoot, link: str, target: str, numbers: tuple[int, int], *, is_replaced: bool
) -> Step:
    path = place.host(link)
    make = partial(place.make_link, link, target)
    status = place.status(link, is_followed=False)
    if status is None:
        return Step(system_root.MAKE, path, f"link to {target}", make)
    if stat.S_ISLNK(status.st_mode):
        leads = place.status(link, is_followed=True)
        if place.target(link) == target or _is_device(leads, numbers):
            return Step(system_root.KEEP, path, f"it is a link to {place.target(link)}")
        wrong = f"it is a link to {place.target(link)}, but should point to {target}"
    elif _is_device(status, numbers):
        return Step(system_root.KEEP, path, f"it is {described(status)}")
    else:
        wrong = f"it is {described(status)}, but should be a link to {target}"
    if is_replaced and not stat.S_ISDIR(status.st_mode):
        return Step(system_root.REPLACE, path, f"link to {target}; {wrong}", make)
    return Step(system_root.REFUSE, path, wrong)


def _nodes(place: SystemRoot, paths: Iterable[str]) -> Iterator[Node]:
    for path in paths:
        status = place.status(path, is_followed=False)
        if status is not None and stat.S_ISCHR(status.st_mode):
            yield path, os.major(status.st_rdev), os.minor(status.st_rdev)


def _is_device(found: os.stat_result | None, numbers: tuple[int, int]) -> bool:
    if found is None or not stat.S_ISCHR(found.st_mode):
        return False
    return (os.major(found.st_rdev), os.minor(found.st_rdev)) == numbers
