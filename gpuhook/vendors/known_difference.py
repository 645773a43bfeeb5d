# SPDX-License-Identifier: Apache-2.0
"""A difference between a container and what gpuhook would add, for vendors to judge.

A vendor knows what its own toolkit does differently on purpose, or without harm.
"""

from __future__ import annotations

from dataclasses import dataclass

# Who adds GPUs; a vendor has names for the parts of its toolkit. ENGINE is an engine that applies a
# CDI spec of gpuhook.
OURS, ENGINE = "gpuhook", "gpuhook-cdi"
# What differs. Of a device node:
MODE, ACCESS, GROUP = "mode", "access", "group"
# The values of a variable, and a variable that only the container has.
VARIABLE, ADDED_VARIABLE = "variable", "added-variable"
# A file or node that only the container has, that it lacks, or has at another path.
EXTRA, MISSING, MOVED = "extra", "missing", "moved"
# A link that it lacks; one that gpuhook makes at another path, next to the moved file; one that
# gpuhook makes for all capabilities at other paths, `there`.
LINK, MOVED_LINK, LINK_ELSEWHERE = "link", "moved-link", "link-elsewhere"
# A name that musl's loader does not find; the masked parameters and the profile of a driver.
MUSL_NAME, MASK, PROFILE = "musl-name", "mask", "profile"


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference: `what` it is, and the `name` of the path or variable.

    `there` is what the container has. `capabilities` are the requested ones, `mounts` the paths of
    the mounts for all capabilities. `is_whole`: gpuhook would add the same for all capabilities.
    `is_versioned` is for the link of a SONAME, `is_mounted` for one whose file is mounted.
    """

    what: str
    name: str = ""
    there: tuple[str, ...] = ()
    capabilities: frozenset[str] = frozenset()
    mounts: tuple[str, ...] = ()
    is_whole: bool = False
    is_versioned: bool = False
    is_mounted: bool = False
