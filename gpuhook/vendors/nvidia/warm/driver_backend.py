# SPDX-License-Identifier: Apache-2.0
"""The backend that NVIDIA's driver uses for memory limits: DMEM or MISC.

The driver chooses when it is loaded. Sources: "MPS v3 Memory Partitioning" of NVIDIA's
documentation; src/nvidia/src/kernel/mem_mgr/memacct.c of NVIDIA's open kernel modules.
"""

from __future__ import annotations

from gpuhook.containers.warm.driver_limit import DMEM, MISC
from gpuhook.kernel import dmem

_OURS = "nvidia/"
NO_CONTROLLER = (
    (
        "the kernel's controller dmem, which enforces limits on this node, is not enabled for it: "
        "dmem is missing in cgroup.subtree_control of {above}"
    ),
    (
        "write +dmem into cgroup.subtree_control of each parent cgroup, from "
        "the root downwards; or use the driver's own accounting: options nvidia "
        "NVreg_RegistryDwords=RmMemacctMode=1 in /etc/modprobe.d, and reload the driver"
    ),
)


def backend_of(cgroup: str) -> str:
    """Return the backend for the cgroup with this directory: DMEM or MISC.

    The driver's regions show it once a GPU is in use. If they are not visible, as in a cgroup
    namespace, a kernel with the controller is DMEM: leaving a guarantee out does no harm.
    """
    top = dmem.topmost(cgroup)
    regions = dmem.capacity(top)
    if regions is not None:
        return DMEM if any(region.startswith(_OURS) for region in regions) else MISC
    return DMEM if dmem.has_controller(top) or dmem.has_limits(cgroup) else MISC


def lacks_controller(cgroup: str) -> bool:
    """Return whether the backend is DMEM, and its controller is not enabled for the cgroup."""
    return backend_of(cgroup) == DMEM and not dmem.has_limits(cgroup)


def is_not_passed_on(top: str) -> bool:
    """Return whether the backend is DMEM, and no cgroup below the topmost, `top`, has its files.

    False if another cgroup is visible as the topmost, as in a container: then it is unknown.
    """
    if dmem.capacity(top) is None or backend_of(top) != DMEM:
        return False
    return dmem.passes_on(top) is False
