# SPDX-License-Identifier: Apache-2.0
"""The node's driver asked for its GPUs by who only looks: an NVML that hangs must hang nobody."""

from __future__ import annotations

from functools import partial

from gpuhook.errors import fault
from gpuhook.host.error_text import worded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

PATIENCE = 30.0  # seconds: without persistence mode many GPUs take that long to wake


def call_driver(ask: Callable[[], T]) -> T:
    """Return what `ask` returns in a process of its own, which ends after PATIENCE.

    Raises its faults, an OSError as one, GH1901 where it takes too long, GH1941 where it ends
    without an answer.
    """
    from gpuhook.host import worker

    try:
        return worker.call_in_child(partial(_worded, ask), PATIENCE)
    except worker.NoAnswerError as error:
        if error.how == worker.LATE:
            raise fault("GH1901", seconds=f"{PATIENCE:g}") from error
        raise fault("GH1941", reason=error.reason) from error


def _worded(ask: Callable[[], T]) -> T:
    try:
        return ask()
    except OSError as error:
        raise worded(error) from error
