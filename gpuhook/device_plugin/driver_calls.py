# SPDX-License-Identifier: Apache-2.0
"""Calls of a vendor's code, which reads the files of a driver, with a deadline.

A driver that resets a GPU may block its readers, and one that hangs never answers. The plugin has
threads of gRPC, so it does not fork: the calls are made in daemon threads.
"""

from __future__ import annotations

import os
import time
from contextvars import copy_context
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

from gpuhook.host.blocked_call import blocking_path
from gpuhook.host.worker import LATE, NoAnswerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.vendors.interfaces.vendor_interface import Vendor

T = TypeVar("T")

# The last call of each vendor and purpose, and when it began, in seconds of the monotonic clock.
_callers: dict[tuple[str, str], tuple[Thread, float]] = {}


def call_driver(vendor: Vendor, purpose: str, call: Callable[[], T]) -> T:
    """Return what `call` returns; raises what it raises, and vendor.no_answer() after the deadline.

    A thread that the kernel blocks cannot be ended: until it ends, another call for the same
    purpose fails as soon as the deadline of the first has passed.
    """
    if vendor.deadline is None:
        return call()
    key = vendor.domain, purpose
    if key in _callers:
        before, began = _callers[key]
        before.join(max(0.0, began + vendor.deadline - time.monotonic()))
        if before.is_alive():
            raise _no_answer(vendor, before, vendor.deadline)
    answers: SimpleQueue[tuple[T | None, Exception | None]] = SimpleQueue()

    def run() -> None:
        try:
            answers.put((call(), None))
        except Exception as error:  # the caller raises it
            answers.put((None, error))

    context = copy_context()
    thread = Thread(target=context.run, args=(run,), name=f"gpuhook-{purpose}", daemon=True)
    thread.start()
    _callers[key] = thread, time.monotonic()
    try:
        result, error = answers.get(timeout=vendor.deadline)
    except Empty:
        raise _no_answer(vendor, thread, vendor.deadline) from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value] # None only if the call returned it


def _no_answer(vendor: Vendor, thread: Thread, seconds: float) -> Exception:
    path = blocking_path(os.getpid(), thread.native_id or 0)
    error = NoAnswerError(LATE, f"no answer within {seconds:g} seconds", path=path)
    return vendor.no_answer(error, seconds)
