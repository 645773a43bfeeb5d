# SPDX-License-Identifier: Apache-2.0
"""Memory limits of a cgroup's processes on an AMD GPU, by the kernel's controller dmem.

The amdgpu driver (from Linux 6.15) charges VRAM to the region "drm/<PCI address>/vram". There is
one region for each card and none for a partition. GTT, the memory of the host, is not limited.
"""

from __future__ import annotations

import errno
import os

from gpuhook.containers.warm.driver_limit import DMEM, DriverLimit, limit_words
from gpuhook.errors import GpuhookError, fault
from gpuhook.kernel import dmem
from gpuhook.request.memory_request import NO_LIMIT, amount
from gpuhook.vendors.amd.hot import amd_memory

_REASONS = {
    errno.EINVAL: "it does not know the region, or not the value",
    errno.ENODEV: "the driver was unloaded",
    errno.EROFS: "/sys/fs/cgroup is mounted read-only here",
}


class VramLimits:
    """The limits of AMD GPUs, a LimitDriver."""

    def set(self, device: str, cgroup: str, hard: int, soft: int) -> DriverLimit:
        """Limit the processes of `cgroup` and below, and read the limit back.

        Raises GH2540 for a partition, GH2541 without a region, GH2542 or GH2545 without the
        controller, GH2543 if the kernel refuses, GH2544 if the cgroup uses more than the limit, and
        GH1252 if another limit is read back.
        """
        region = region_of(device)
        self._require(device, region, cgroup)
        try:
            dmem.write(cgroup, dmem.MAX, region, hard)
            found = self._limit(region, cgroup)
            if found.hard != hard and found.used > hard:  # the kernel ignores it, and says nothing
                used, limit = amount(found.used), amount(hard)
                raise fault("GH2544", device=device, cgroup=cgroup, used=used, limit=limit)
            if found.soft != soft:
                dmem.protect(cgroup, region, soft)
                found = self._limit(region, cgroup)
        except OSError as error:
            raise _refusal(device, cgroup, error) from error
        if not found.holds(hard, soft):
            words = limit_words(hard, soft), limit_words(found.hard, found.soft)
            raise fault("GH1252", uuid=device, cgroup=cgroup, asked=words[0], found=words[1])
        return found

    def get(self, device: str, cgroup: str) -> DriverLimit | None:
        """Return the limits of `cgroup`, None for one that is gone or lacks the controller.

        Raises GH2540 and GH2541.
        """
        region = region_of(device)
        if not dmem.has_limits(cgroup):
            return None
        self._require(device, region, cgroup)
        return self._limit(region, cgroup)

    def clear(self, device: str, cgroup: str) -> None:
        """Remove the limits of `cgroup`; one without the controller has none. Raises as set()."""
        if dmem.has_limits(cgroup):
            self.set(device, cgroup, NO_LIMIT, 0)

    def within(self, device: str, hard: int) -> int:
        """Return `hard`, but no more than the GPU's memory."""
        return hard if hard == NO_LIMIT else min(hard, amd_memory.vram_total(device) or hard)

    def backend(self, device: str, cgroup: str) -> str:  # noqa: ARG002 # of the interface
        """Return DMEM."""
        return DMEM

    def backend_of(self, cgroup: str) -> str:  # noqa: ARG002
        """Return DMEM."""
        return DMEM

    def close(self) -> None:
        """Do nothing: limits that were set remain."""

    def _require(self, device: str, region: str, cgroup: str) -> None:
        """Raise unless the kernel can limit the memory of the region for `cgroup`."""
        found = dmem.regions(cgroup, dmem.MAX)
        if found is None:
            raise missing_controller(cgroup)
        if region not in found:
            raise fault("GH2541", device=device, region=region)

    def _limit(self, region: str, cgroup: str) -> DriverLimit:
        values = [dmem.regions(cgroup, name) or {} for name in (dmem.MAX, dmem.MIN, dmem.CURRENT)]
        hard, soft, used = (found.get(region) for found in values)
        return DriverLimit(NO_LIMIT if hard is None else hard, soft or 0, used or 0)


def region_of(device: str) -> str:
    """Return the region of a GPU's memory. Raises GH2540 for a partition, GH2541 without a GPU."""
    region = f"drm/{device}/vram"
    if amd_memory.gpu_directory(device):
        return region
    if amd_memory.is_partition(device):
        raise fault("GH2540", device=device)
    raise fault("GH2541", device=device, region=region)


def missing_controller(cgroup: str) -> GpuhookError:
    """Return why a cgroup has no files of the controller: GH2542, GH2543 or GH2545."""
    if not os.path.isdir(cgroup):
        return fault("GH2543", cgroup=cgroup, reason="the cgroup does not exist")
    if not dmem.has_controller(dmem.topmost(cgroup)):
        return fault("GH2545")
    return fault("GH2542", cgroup=cgroup, gap=dmem.first_gap(cgroup))


def _refusal(device: str, cgroup: str, error: OSError) -> GpuhookError:
    reason = _REASONS.get(error.errno or 0) or str(error.strerror)
    return fault("GH2543", cgroup=cgroup, reason=f"{device}: {reason}")
