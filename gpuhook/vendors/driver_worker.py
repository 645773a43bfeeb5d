# SPDX-License-Identifier: Apache-2.0
"""Calls of the driver in a child process: a call that never returns blocks no command."""

from __future__ import annotations

from functools import partial

from gpuhook.errors import fault
from gpuhook.host.error_text import worded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from gpuhook.errors import GpuhookError
    from gpuhook.host.worker import NoAnswerError

    T = TypeVar("T")

SECONDS = 30.0  # without persistence mode, many GPUs take that long to wake up


def call_driver(
    call: Callable[[], T],
    seconds: float | None = None,
    *,
    relay_stderr: bool = False,
    no_answer: Callable[[NoAnswerError, float], GpuhookError] | None = None,
) -> T:
    """Return what `call` returns in a child process, which has `seconds` (SECONDS) to answer.

    Raises its faults, an OSError as a fault, and without an answer the fault of `no_answer`, by
    default GH1256 if it is late, and GH1257 if the child ends.
    """
    from gpuhook.host import worker

    limit = SECONDS if seconds is None else seconds
    try:
        return worker.call_in_child(partial(_as_fault, call), limit, relay_stderr=relay_stderr)
    except worker.NoAnswerError as error:
        if no_answer is not None:
            raise no_answer(error, limit) from error
        if error.how == worker.LATE:
            raise fault("GH1256", seconds=f"{limit:g}") from error
        raise fault("GH1257", reason=error.reason) from error


def _as_fault(call: Callable[[], T]) -> T:
    try:
        return call()
    except OSError as error:
        raise worded(error) from error
