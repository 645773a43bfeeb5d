# SPDX-License-Identifier: Apache-2.0
"""What the jobs of our hook leave in a container besides links and the loader's files.

A file below /proc with the parameters of a driver is masked, and a file has the profile of an
application.
"""

from __future__ import annotations

from gpuhook.vendors.hot import rootfs_plan
from gpuhook.vendors.nvidia.hot.rootfs import driver_params, egl_profile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.apply.rootfs.hook_args import Jobs

MASKED, PROFILE = driver_params.PATH, egl_profile.PATH
_KEY = b"ModifyDeviceFiles:"


def masks(jobs: Iterable[Jobs]) -> bool:
    """Return whether jobs mask MASKED on this host."""
    return any(job.driver_params and bool(driver_params.masked(job.host_root)) for job in jobs)


def is_masked(text: bytes) -> bool:
    """Return whether the content of MASKED, as a container sees it, has a mask's values."""
    values = (line[len(_KEY) :].strip() for line in text.split(b"\n") if line.startswith(_KEY))
    return next(values, b"") != b"1"


def has_profile(jobs: Iterable[Jobs]) -> bool:
    """Return whether jobs write PROFILE."""
    return any(map(rootfs_plan.needs_profile_of, jobs))
