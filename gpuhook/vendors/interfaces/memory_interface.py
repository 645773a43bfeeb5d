# SPDX-License-Identifier: Apache-2.0
"""The answers of a vendor about memory limits: at a container's start, later, and to commands."""

from __future__ import annotations

from typing import Any, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from contextlib import AbstractContextManager
    from typing import TypeAlias

    from gpuhook.containers.warm.driver_limit import DriverLimit
    from gpuhook.request.parse import Vocabulary
    from gpuhook.vendors.plugin.vendor_part import VendorPart
    from gpuhook.vendors.usage.limit_device import LimitDevice, LimitSupport
    from gpuhook.vendors.usage.usage_device import SampleTarget

    FindLibrary: TypeAlias = Callable[[], str]


class MemoryVendor(Protocol):
    """A vendor whose devices may have memory limits; vendors/hot/memory_vendors.py has all."""

    @property
    def domain(self) -> str:
        """The prefix of the vendor's CDI kinds."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The variables of limits and requests, and the directory of grants."""

    @property
    def limited_by(self) -> str:
        """What enforces the limits: the `by` of the ledger's records."""

    @property
    def context(self) -> int:
        """The bytes that any program takes before it computes; 0 if that is unknown."""

    def has_device(self, device: str) -> bool:
        """Return whether a device id has the form of the vendor's ids."""

    def devices(
        self,
        spec: dict[str, Any],
        nodes: Collection[str],
        names: Iterable[str],
        covered: Callable[[], Collection[str]],
    ) -> list[str]:
        """Return the ids of a container's devices; memory_limits.hot.DeviceRequest has the rest.

        Raises GH1024 if one cannot be identified.
        """

    def totals(self, devices: Collection[str]) -> dict[str, int]:
        """Return the bytes of `devices`, without unknown ones."""

    def reports_limit(self, devices: Collection[str], library: str) -> bool:
        """Return whether programs get the limit as the total of their device."""


class LimitDriver(Protocol):
    """What enforces the limits of a vendor's devices; vendors/warm/limit_drivers.py opens it.

    `cgroup` is the directory of a cgroup, limits are bytes. All raise a GpuhookError with the
    reason.
    """

    def set(self, device: str, cgroup: str, hard: int, soft: int) -> DriverLimit:
        """Limit the processes of `cgroup` and below; return what is read back."""

    def get(self, device: str, cgroup: str) -> DriverLimit | None:
        """Return the limits of `cgroup`, None for a cgroup without any."""

    def clear(self, device: str, cgroup: str) -> None:
        """Remove the limits of `cgroup`; a cgroup that is gone has none."""

    def within(self, device: str, hard: int) -> int:
        """Return `hard`, but no more than the device's memory if it is known."""

    def backend(self, device: str, cgroup: str) -> str:
        """Return the backend of a device's limits, DMEM or MISC of driver_limit.py."""

    def backend_of(self, cgroup: str) -> str:
        """Return the backend without use of a device."""

    def close(self) -> None:
        """Release the driver; limits that were set remain."""


class ProcessReader(Protocol):
    """Reads the processes on the devices of one vendor. Both methods raise GpuhookError."""

    def opened(self) -> AbstractContextManager[None]:
        """Keep the driver open for several calls, or let them describe one moment."""

    def memory(self, target: SampleTarget) -> Mapping[int, int | None] | None:
        """Return the bytes of each process on a device, None if they are not reported.

        The bytes are None for a process whose memory is unknown.
        """


class LimitVendor(Protocol):
    """A vendor's devices whose memory may be limited, and the processes that use it."""

    def limit_devices(self, library: FindLibrary, host_root: str) -> list[LimitDevice]:
        """Return the devices of this node whose memory may be limited. Raises GpuhookError.

        `library` returns the path of the driver's library, for a vendor that has one.
        """

    def process_reader(self, part: VendorPart, host_root: str) -> ProcessReader | None:
        """Return the reader of the processes on the devices of a part, None without any device."""

    def limit_support(self, library: FindLibrary, host_root: str) -> LimitSupport:
        """Return whether this node can enforce memory limits."""

    def noted_nodes(self) -> dict[str, str]:
        """Return device node -> id as recorded on the node, {} for a vendor without a record."""
