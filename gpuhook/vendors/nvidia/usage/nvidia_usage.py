# SPDX-License-Identifier: Apache-2.0
"""The present usage of NVIDIA's GPUs as the driver reports it through NVML."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import state
from gpuhook.host.worker import LATE, UNSTARTED
from gpuhook.vendors.nvidia.usage import nvidia_devices
from gpuhook.vendors.usage import usage_worker
from gpuhook.vendors.usage.usage_device import UsageLook
from gpuhook.vendors.usage.usage_worker import UsageWorker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuhook.host.worker import NoAnswerError
    from gpuhook.vendors.nvidia.usage.nvml_reader import NvmlReader

_NO_LIBRARY = "GH1200"


@contextmanager
def opened(library: Callable[[], str]) -> Iterator[Callable[[], UsageLook]]:
    """Yield a function that reads the usage now; `library` returns the path of NVML."""
    try:
        path = library()
    except GpuhookError as error:
        missing = UsageLook(trouble=error, has_driver=error.code != _NO_LIBRARY)
        yield lambda: _with_devices(missing)
        return
    with reader(path) as worker:
        yield lambda: _with_devices(worker.look())


def reader(library: str) -> UsageWorker:
    """Return the child process that calls the NVML library at `library`."""
    return UsageWorker(partial(_reader, library, state.host_root()), no_answer)


def _with_devices(look: UsageLook) -> UsageLook:
    """Return a look without devices with those that generate-cdi recorded."""
    if look.devices:
        return look
    return replace(look, devices=nvidia_devices.of_node(nvidia_devices.recorded_node()))


def _reader(library: str, host_root: str) -> NvmlReader:
    from gpuhook.vendors.nvidia.usage import nvml_reader  # it loads NVML's bindings: in the child

    return nvml_reader.NvmlReader(library, host_root)


def no_answer(error: NoAnswerError, seconds: float | None = None) -> GpuhookError:
    """Return the fault for a call without an answer within `seconds`, those of UsageWorker."""
    if error.how == LATE:
        limit = usage_worker.SECONDS if seconds is None else seconds
        return fault("GH1256", seconds=f"{limit:g}")
    if error.how == UNSTARTED:
        return fault("GH1258", reason=error.reason)
    return fault("GH1257", reason=error.reason)
