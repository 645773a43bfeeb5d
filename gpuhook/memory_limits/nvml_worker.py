# SPDX-License-Identifier: Apache-2.0
"""The driver's memory limits through a child process: an NVML call that hangs blocks no command."""

from __future__ import annotations

from contextlib import contextmanager

from gpuhook.errors import fault
from gpuhook.host import worker
from gpuhook.memory_limits.warm import cgroup_limits, nvml_limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    from gpuhook.memory_limits.warm.limit_records import DriverLimit

    T = TypeVar("T")


class NvmlWorker:
    """A nvml_limits.NvmlDriver in a child process. Raises its faults, and GH1256 to GH1258."""

    def __init__(self, library: str) -> None:
        with _as_fault():
            self._driver = worker.Worker(
                lambda: nvml_limits.NvmlDriver(library), cgroup_limits.SECONDS
            )

    def set(self, uuid: str, cgroup: str, hard: int, soft: int) -> DriverLimit:
        """Limit the processes of a cgroup, and return the limit that is read back."""
        held: DriverLimit = self._call("set", uuid, cgroup, hard, soft)
        return held

    def get(self, uuid: str, cgroup: str) -> DriverLimit | None:
        """Return the limits of a cgroup, None if the driver does not know it."""
        held: DriverLimit | None = self._call("get", uuid, cgroup)
        return held

    def clear(self, uuid: str, cgroup: str) -> None:
        """Remove the limits of a cgroup."""
        self._call("clear", uuid, cgroup)

    def within(self, uuid: str, hard: int) -> int:
        """Return a hard limit that is no larger than the GPU's memory."""
        found: int = self._call("within", uuid, hard)
        return found

    def _call(self, name: str, *arguments: object) -> Any:
        with _as_fault():
            return self._driver.call(name, *arguments)

    def close(self) -> None:
        """Shut the library down; limits that were set remain."""
        self._driver.close()

    def __enter__(self) -> NvmlWorker:  # noqa: PYI034 # Self needs a newer Python
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


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
