# SPDX-License-Identifier: Apache-2.0
"""Work on many items in several child processes at once, with a deadline for each item."""

from __future__ import annotations

import time
from contextlib import suppress

from gpuhook.host.worker import LATE, UNSTARTED, NoAnswerError, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")

_AHEAD = 64  # requests that a child has at once; their size is far below that of a pipe
_LEAST = 0.5  # seconds for reading an answer that is larger than a pipe


def each(
    work: Callable[[T], Any], items: Sequence[T], seconds: float, at_once: int
) -> Iterator[tuple[T, Any]]:
    """Yield each item, in order, with what `work(item)` returns in one of `at_once` processes.

    If a process does not answer for an item within `seconds`, or ends, the result is a
    NoAnswerError, and another process continues with the next item. Processes start on items before
    their results are needed. `work` changes nothing: a process that is no longer needed is killed.
    """
    number_of = min(at_once, len(items))
    shares = [_Share(work, items[n::number_of], seconds) for n in range(number_of)]
    try:
        for share in shares:
            share.ask()
        for number, item in enumerate(items):
            yield item, shares[number % number_of].answer()
    finally:
        for share in shares:
            share.close()


class _Share:
    """The items of one child and its successors."""

    def __init__(self, work: Callable[[T], Any], items: Sequence[T], seconds: float) -> None:
        self._work = lambda number: work(items[number])
        self._count = len(items)
        self._seconds = seconds
        self._asked = self._answered = 0
        self._since = 0.0  # the child works on its present item since then, or is done with it
        self._worker: Worker | None = None

    def ask(self) -> None:
        """Send the next items to the child; an error is the next answer."""
        with suppress(NoAnswerError):
            if self._worker is None:
                self._worker = Worker(lambda: self._work, self._seconds, relay_stderr=True)
            if self._asked == self._answered:
                self._since = time.monotonic()
            while self._asked < min(self._answered + _AHEAD, self._count):
                self._worker.ask("__call__", self._asked)
                self._asked += 1

    def answer(self) -> Any:
        """Return the next answer."""
        self.ask()
        self._answered += 1
        if self._worker is None:
            self._asked = self._answered
            return NoAnswerError(UNSTARTED, "no process could be started")
        left = self._since + self._seconds - time.monotonic()
        try:
            return self._worker.answer(max(left, min(_LEAST, self._seconds)))
        except NoAnswerError as error:
            self.close(is_lost=True)
            self._asked = self._answered
            if error.how == LATE:
                reason = f"no answer within {self._seconds:g} seconds"
                return NoAnswerError(LATE, reason, error.left)
            return error
        finally:
            self._since = time.monotonic()

    def close(self, *, is_lost: bool = False) -> None:
        """End the child. Unless it is lost, one that has answered everything ends by itself."""
        if self._worker is not None:
            if is_lost or self._answered < self._asked:
                self._worker.kill()
            self._worker.close()
            self._worker = None
