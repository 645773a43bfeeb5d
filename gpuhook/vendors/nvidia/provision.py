# SPDX-License-Identifier: Apache-2.0
"""What a root file system is to get for the jobs of our hook, the image's own libraries considered.

HOT.
"""

from __future__ import annotations

from gpuhook.container.provide import Provision

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.container.rootfs import Root
    from gpuhook.vendors.nvidia.jobs import Jobs


def of(root: Root, jobs: Jobs) -> tuple[Provision, str]:
    """Return (the provision, a reason why the image's CUDA compatibility was left out, or "")."""
    preferred: list[tuple[str, str]] = []
    reason = ""
    if jobs.cuda_compat and jobs.driver_version and jobs.libraries:
        names = root.names(jobs.cuda_compat)
        if names:
            from gpuhook.vendors.nvidia import compat  # few images have any

            preferred, reason = compat.libraries(root, jobs.cuda_compat, names, jobs.driver_version)
    return Provision(jobs.libraries, jobs.links, preferred), reason
