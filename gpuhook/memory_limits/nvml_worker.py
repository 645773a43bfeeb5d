# SPDX-License-Identifier: Apache-2.0
"""The driver's memory limits, asked in a process of its own: one that hangs holds nobody."""

from __future__ import annotations

from contextlib import contextmanager

from gpuhook.errors import fault
from gpuhook.host import worker
from gpuhook.memory_limits.warm import cgroup_limits, nvml_limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Any, Protocol, TypeVar

    from gpuhook.memory_limits.warm.limit_records import DriverLimit

    T = TypeVar("T")

    class Limits(Protocol):
        """A driver's memory limits: in this process, or in one of its own."""

        def set(self, uuid: str, cgroup: str, hard: int, soft: int) -> DriverLimit:
            """Limit the processes of a cgroup, and return what is read back."""
            ...

        def get(self, uuid: str, cgroup: str) -> DriverLimit | None:
            """Return the limits of a cgroup, None where the driver knows none."""
            ...

        def clear(self, uuid: str, cgroup: str) -> None:
            """Take the limits of a cgroup away."""
            ...

        def within(self, uuid: str, hard: int) -> int:
            """Return a hard limit, but no more than the GPU has."""
            ...


class PatientDriver:
    """A nvml_limits.NvmlDriver in a process of its own. Raises what that does, GH1256 to GH1258."""

    def __init__(self, library: str, patience: float = cgroup_limits.PATIENCE) -> None:
        self._patience = patience
        with _worded(patience):
            self._driver = worker.Worker(lambda: nvml_limits.NvmlDriver(library), patience)

    def set(self, uuid: str, cgroup: str, hard: int, soft: int) -> DriverLimit:
        """Limit the processes of a cgroup, and return what is read back."""
        held: DriverLimit = self._call("set", uuid, cgroup, hard, soft)
        return held

    def get(self, uuid: str, cgroup: str) -> DriverLimit | None:
        """Return the limits of a cgroup, None where the driver knows none."""
        held: DriverLimit | None = self._call("get", uuid, cgroup)
        return held

    def clear(self, uuid: str, cgroup: str) -> None:
        """Take the limits of a cgroup away."""
        self._call("clear", uuid, cgroup)

    def within(self, uuid: str, hard: int) -> int:
        """Return a hard limit, but no more than the GPU has."""
        found: int = self._call("within", uuid, hard)
        return found

    def _call(self, name: str, *arguments: object) -> Any:
        with _worded(self._patience):
            return self._driver.call(name, *arguments)

    def close(self) -> None:
        """Shut the library down; limits that were set stay."""
        self._driver.close()

    def __enter__(self) -> PatientDriver:  # noqa: PYI034 # Self needs a newer Python
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def answered(work: Callable[[], T], patience: float = cgroup_limits.PATIENCE) -> T:
    """Return what `work` returns in a process of its own; raises GH1256 to GH1258 besides."""
    with _worded(patience):
        return worker.call_in_child(work, patience)


@contextmanager
def _worded(patience: float) -> Iterator[None]:
    """Say as a fault that nobody has answered."""
    try:
        yield
    except worker.NoAnswerError as error:
        if error.how == worker.LATE:
            raise fault("GH1256", seconds=f"{patience:g}") from error
        if error.how == worker.UNSTARTED:
            raise fault("GH1258", reason=error.reason) from error
        raise fault("GH1257", how=error.reason) from error
