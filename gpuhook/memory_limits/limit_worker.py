# SPDX-License-Identifier: Apache-2.0
"""Memory limits through a child process: a driver that hangs blocks no command."""

from __future__ import annotations

from contextlib import contextmanager

from gpuhook.errors import fault
from gpuhook.host import worker
from gpuhook.memory_limits.warm import cgroup_limits
from gpuhook.vendors.hot.memory_vendors import vendor_of
from gpuhook.vendors.warm.limit_drivers import open_driver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    from gpuhook.containers.warm.driver_limit import DriverLimit
    from gpuhook.vendors.interfaces.memory_interface import LimitDriver

    T = TypeVar("T")


class LimitWorker:
    """A vendor's LimitDriver in a child process. Raises its faults, and GH1256 to GH1258.

    `domain` is the vendor's; `library` is that of open_driver().
    """

    def __init__(self, domain: str, library: Callable[[], str]) -> None:
        with _as_fault():
            self._driver = worker.Worker(
                lambda: open_driver(domain, library), cgroup_limits.SECONDS
            )

    def set(self, device: str, cgroup: str, hard: int, soft: int) -> DriverLimit:
        """Limit the processes of a cgroup, and return the limit that is read back."""
        held: DriverLimit = self._call("set", device, cgroup, hard, soft)
        return held

    def get(self, device: str, cgroup: str) -> DriverLimit | None:
        """Return the limits of a cgroup, None if the driver does not know it."""
        held: DriverLimit | None = self._call("get", device, cgroup)
        return held

    def clear(self, device: str, cgroup: str) -> None:
        """Remove the limits of a cgroup."""
        self._call("clear", device, cgroup)

    def within(self, device: str, hard: int) -> int:
        """Return a hard limit that is no larger than the device's memory."""
        found: int = self._call("within", device, hard)
        return found

    def backend(self, device: str, cgroup: str) -> str:
        """Return how limits of a device are enforced for a cgroup, DMEM or MISC."""
        found: str = self._call("backend", device, cgroup)
        return found

    def backend_of(self, cgroup: str) -> str:
        """Return how limits are enforced for a cgroup, without use of a device."""
        found: str = self._call("backend_of", cgroup)
        return found

    def _call(self, name: str, *arguments: object) -> Any:
        with _as_fault():
            return self._driver.call(name, *arguments)

    def close(self) -> None:
        """Shut the library down; limits that were set remain."""
        self._driver.close()


class LimitDrivers:
    """What enforces limits, by device: each vendor's is opened for the first of its devices.

    A context manager that closes them. `library` is as in LimitWorker.
    """

    def __init__(self, library: Callable[[], str]) -> None:
        self._library = library
        self._opened: dict[str, LimitWorker] = {}

    def driver(self, device: str) -> LimitDriver:
        """Return the driver of a device. Raises the faults of opening it."""
        domain = vendor_of(device).domain
        if domain not in self._opened:
            self._opened[domain] = LimitWorker(domain, self._library)
        return self._opened[domain]

    def __enter__(self) -> LimitDrivers:  # noqa: PYI034 # Self needs a newer Python
        return self

    def __exit__(self, *exc: object) -> None:
        for driver in self._opened.values():
            driver.close()


def answered(work: Callable[[], T]) -> T:
    """Return what `work` returns in a child process; also raises GH1256 to GH1258."""
    with _as_fault():
        return worker.call_in_child(work, cgroup_limits.SECONDS)


@contextmanager
def _as_fault() -> Iterator[None]:
    """Raise a missing answer as a fault."""
    try:
        yield
    except worker.NoAnswerError as error:
        if error.how == worker.LATE:
            raise fault("GH1256", seconds=f"{cgroup_limits.SECONDS:g}") from error
        if error.how == worker.UNSTARTED:
            raise fault("GH1258", reason=error.reason) from error
        raise fault("GH1257", reason=error.reason) from error
