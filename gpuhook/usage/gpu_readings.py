# SPDX-License-Identifier: Apache-2.0
"""The present usage of the GPUs as the driver reports it, or why it does not.

The driver is called in a child process with a deadline: a call into a driver that hangs never ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import state
from gpuhook.host.worker import LATE, UNSTARTED, NoAnswerError, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.usage.nvml_reader import NvmlReader
    from gpuhook.vendors.usage_device import UsageDevice

PATIENCE = 10.0  # seconds; without persistence mode, NVML initialises each GPU when it starts


@dataclass(frozen=True, slots=True)
class UsageLook:
    """The answer of the driver; `trouble` is why there is none. `is_asked`: it was called."""

    devices: tuple[UsageDevice, ...] = ()
    trouble: GpuhookError | None = None
    is_asked: bool = True


class DriverReading:
    """The driver, called through the NVML library at `library`."""

    def __init__(self, library: str) -> None:
        """Start the child process; if that fails, each look has the trouble."""
        self._trouble: GpuhookError | None = None
        self._worker: Worker | None = None
        try:
            self._worker = Worker(partial(_reader, library, state.host_root()), PATIENCE)
        except (GpuhookError, NoAnswerError) as error:
            self._trouble = _fault(error)

    def look(self) -> UsageLook:
        """Return the present usage of the devices."""
        if self._worker is not None and self._trouble is None:
            try:
                return UsageLook(devices=self._worker.call("look"))
            except (GpuhookError, NoAnswerError) as error:
                self._trouble = _fault(error)
        return UsageLook(trouble=self._trouble)

    def __enter__(self) -> DriverReading:  # noqa: PYI034 # Self needs a newer Python
        return self

    def __exit__(self, *exc: object) -> None:
        """End the child process."""
        if self._worker is not None:
            self._worker.close()


def _reader(library: str, host_root: str) -> NvmlReader:
    from gpuhook.usage import nvml_reader  # it loads NVML's bindings: only in the child

    return nvml_reader.NvmlReader(library, host_root)


def _fault(error: GpuhookError | NoAnswerError) -> GpuhookError:
    if isinstance(error, GpuhookError):
        return error
    if error.how == LATE:
        return fault("GH1256", seconds=f"{PATIENCE:g}")
    if error.how == UNSTARTED:
        return fault("GH1258", reason=error.reason)
    return fault("GH1257", reason=error.reason)
