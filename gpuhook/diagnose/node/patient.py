# SPDX-License-Identifier: Apache-2.0
"""The node's driver asked for its GPUs by who only looks: an NVML that hangs must hang nobody."""

from __future__ import annotations

from functools import partial

from gpuhook.errors import fault
from gpuhook.programs.wording import worded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

PATIENCE = 30.0  # seconds: without persistence mode many GPUs take that long to wake


def asked(
    ask: Callable[[], T],
    seconds: float = PATIENCE,
    late: str = "GH1901",
    *,
    relay_stderr: bool = False,
) -> T:
    """Return what `ask` returns in a child process, which ends after so many seconds.

    Raises its faults, an OSError as one, the fault `late` if there is no answer in time, GH1941 if
    the child ends without one.
    """
    from gpuhook import worker

    try:
        return worker.call_in_child(partial(_worded, ask), seconds, relay_stderr=relay_stderr)
    except worker.NoAnswerError as error:
        if error.how == worker.LATE:
            raise fault(late, seconds=f"{seconds:g}") from error
        raise fault("GH1941", reason=error.reason) from error


def _worded(ask: Callable[[], T]) -> T:
    try:
        return ask()
    except OSError as error:
        raise worded(error) from error
