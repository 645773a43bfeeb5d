# SPDX-License-Identifier: Apache-2.0
"""Calls of the driver in a child process: an NVML call that never returns blocks no command."""

from __future__ import annotations

from functools import partial

from gpuhook.host.error_text import worded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from gpuhook.vendors.interfaces.vendor_interface import Vendor

    T = TypeVar("T")

SECONDS = 30.0  # without persistence mode, many GPUs take that long to wake up


def call_driver(
    call: Callable[[], T],
    seconds: float | None = None,
    *,
    relay_stderr: bool = False,
    vendor: Vendor | None = None,
) -> T:
    """Return what `call` returns in a child process, which has `seconds` (SECONDS) to answer.

    Raises its faults, an OSError as a fault, and the fault of `vendor`, else of the first vendor,
    if there is no answer in time or the child ends without one.
    """
    from gpuhook.host import worker
    from gpuhook.vendors.catalogue import vendors

    limit = SECONDS if seconds is None else seconds
    try:
        return worker.call_in_child(partial(_as_fault, call), limit, relay_stderr=relay_stderr)
    except worker.NoAnswerError as error:
        raise (vendor or vendors()[0]).no_answer(error, limit) from error


def _as_fault(call: Callable[[], T]) -> T:
    try:
        return call()
    except OSError as error:
        raise worded(error) from error
