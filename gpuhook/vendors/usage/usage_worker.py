# SPDX-License-Identifier: Apache-2.0
"""The usage of a vendor's devices, read in a child process with a deadline.

A call into a driver that hangs, or a read of its files, may never end.
"""

from __future__ import annotations

from gpuhook.errors import GpuhookError
from gpuhook.host.worker import NoAnswerError, Worker
from gpuhook.vendors.usage.usage_device import UsageLook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 10.0  # without persistence mode, NVML initialises each GPU when it starts


class UsageWorker:
    """An object in a child process, whose method look() returns a UsageLook.

    `fault_of` returns the vendor's fault for a child without an answer; from then on, each look has
    it as its trouble.
    """

    def __init__(
        self, make: Callable[[], object], fault_of: Callable[[NoAnswerError], GpuhookError]
    ) -> None:
        self._fault_of = fault_of
        self._trouble: GpuhookError | None = None
        self._worker: Worker | None = None
        try:
            self._worker = Worker(make, SECONDS)
        except (GpuhookError, NoAnswerError) as error:
            self._trouble = self._fault(error)

    def look(self) -> UsageLook:
        """Return the present usage of the devices."""
        if self._worker is not None and self._trouble is None:
            try:
                answer: UsageLook = self._worker.call("look")
            except (GpuhookError, NoAnswerError) as error:
                self._trouble = self._fault(error)
            else:
                return answer
        return UsageLook(trouble=self._trouble)

    def _fault(self, error: GpuhookError | NoAnswerError) -> GpuhookError:
        return error if isinstance(error, GpuhookError) else self._fault_of(error)

    def __enter__(self) -> UsageWorker:  # noqa: PYI034 # Self needs a newer Python
        return self

    def __exit__(self, *exc: object) -> None:
        """End the child process."""
        if self._worker is not None:
            self._worker.close()
