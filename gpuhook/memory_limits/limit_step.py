# SPDX-License-Identifier: Apache-2.0
"""The step of a plan that makes the driver hold a memory limit, for every cgroup of a container."""

from __future__ import annotations

from gpuhook.errors import GpuhookError, fault
from gpuhook.memory_limits import limit_state
from gpuhook.memory_limits.warm import limit_records
from gpuhook.request.memory_request import NO_LIMIT, MemoryLimit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.apply.live.hotplug_steps import Live
    from gpuhook.memory_limits.limit_state import LimitState
    from gpuhook.memory_limits.nvml_worker import Limits
    from gpuhook.memory_limits.warm.limit_value import DriverLimit


class HoldMemory:
    """Makes the driver hold a limit on one GPU, or none; what it held before comes back.

    `doubt` says why nobody knows what it holds: it was not to be undone. "" otherwise.
    """

    def __init__(
        self, driver: Limits, before: LimitState, wanted: MemoryLimit | None, cgroups: list[str]
    ) -> None:
        self._driver = driver
        self._gpu = before.gpu
        self._was = limit_state.amounts(MemoryLimit(before.gpu, before.hard, before.soft))
        self._wanted = wanted
        self._cgroups = cgroups
        self._before: list[tuple[str, DriverLimit | None]] = []
        self.doubt = ""

    @property
    def gpu(self) -> str:
        """Return the GPU that it is about."""
        return self._gpu

    def describe(self) -> list[str]:
        """Return the limit, and what it replaces."""
        now = limit_state.amounts(self._wanted)
        return [f"memory limit of {self._gpu}: {now}, was {self._was}"]

    def execute(self, live: Live) -> None:
        """Set it, and read it back; raises GH1250 to GH1255."""
        self._before = []
        for cgroup in self._cgroups:
            held = self._driver.get(self._gpu, cgroup)
            self._before.append((cgroup, held))
            try:
                self._hold(cgroup, self._wanted)
            except BaseException as error:
                self._put_back(live, error)
                raise

    def _put_back(self, live: Live, cause: BaseException) -> None:
        try:
            self.undo(live)
        except GpuhookError as error:
            raise fault("GH1751", cause=cause, left=error.message) from cause

    def undo(self, live: Live) -> None:  # noqa: ARG002 # an operation's signature
        """Put back what the driver held; what it has refused to change is as it was."""
        try:
            for cgroup, held in reversed(self._before):
                before = MemoryLimit(self._gpu, held.hard, held.soft) if held else None
                if not limit_state.is_held(self._driver.get(self._gpu, cgroup), before):
                    self._hold(cgroup, before)
        except GpuhookError as error:
            self.doubt = f"{error.code}: {error.message}"
            raise

    def _hold(self, cgroup: str, limit: MemoryLimit | None) -> None:
        if limit is not None and limit_records.is_limited(limit):
            self._driver.set(self._gpu, cgroup, limit.hard, limit.soft)
        else:
            self._driver.clear(self._gpu, cgroup)


def unlimited(gpu: str) -> MemoryLimit:
    """Return the limit that limits nothing: of a grant that was lifted."""
    return MemoryLimit(gpu, NO_LIMIT)
