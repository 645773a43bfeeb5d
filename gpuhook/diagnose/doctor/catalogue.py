# SPDX-License-Identifier: Apache-2.0
"""All checks, one module of them per subject; in the order in which they are listed."""

from __future__ import annotations

from gpuhook.diagnose.doctor.checks import (
    cgroups,
    containerd,
    containerd_runtimes,
    crio,
    docker,
    gpu_access,
    nvidia_toolkit,
    podman,
    rootless,
    security,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.diagnose.doctor.check import Check


def checks() -> tuple[Check, ...]:
    """Return every check of doctor."""
    return (
        *cgroups.CHECKS,
        *security.CHECKS,
        *rootless.CHECKS,
        *nvidia_toolkit.CHECKS,
        *containerd.CHECKS,
        *containerd_runtimes.CHECKS,
        *gpu_access.CHECKS,
        *docker.CHECKS,
        *crio.CHECKS,
        *podman.CHECKS,
    )
