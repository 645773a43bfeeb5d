# SPDX-License-Identifier: Apache-2.0
"""Work in a process of its own, for as long as it may take: a container can keep us waiting.

Its own file systems (FUSE) answer when they like, and nothing but SIGKILL ends that wait.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import time

from gpuhook import files
from gpuhook.programs.interruptible import Interruptible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")


def each(
    work: Callable[[T], Any], items: Sequence[T], seconds: float, at_once: int = 1
) -> Iterator[tuple[T, Any]]:
    """Yield each item with what `work(item)`, done in a child process, returns.

    One child does them all in turn, as long as it answers for each within so many seconds; else it
    is killed, TimeoutError stands for the answer, and another child goes on with the next item. An
    OSError stands for the answer of a child that has ended without. Nothing is begun before it is
    asked for. Otherwise as done().

    With `at_once` children each has its share, and goes ahead of what is asked for: that is for
    work which changes nothing, as a child that is not needed any more is killed.
    """
    shares = [list(items[start::at_once]) for start in range(min(at_once, len(items)))]
    turns = [_in_turn(work, share, seconds, is_ahead=at_once > 1) for share in shares]
    with Interruptible() as signals:
        signals.hold()
        try:
            for number in range(len(items)):
                answered = next(turns[number % at_once])
                signals.check()
                yield answered
                signals.check()
        finally:
            for turn in turns:
                turn.close()


def _in_turn(
    work: Callable[[T], Any], left: list[T], seconds: float, *, is_ahead: bool
) -> Generator[tuple[T, Any], None, None]:
    """Yield each item of `left` with its answer, of one child after another."""
    while left:
        for answer in _answers(work, tuple(left), seconds, is_ahead=is_ahead):
            yield left.pop(0), answer


def _answers(
    work: Callable[[T], Any], items: Sequence[T], seconds: float, *, is_ahead: bool
) -> Iterator[Any]:
    """Yield the answers of one child for `items`, in order; the last one may be an exception."""
    asked, ask = os.pipe()
    try:
        pid, reader = _started(lambda writer: _answer_all(work, items, asked, ask, writer))
    finally:
        os.close(asked)
    lines = _Lines(reader)
    trouble: Exception | None = None
    is_over = False
    try:
        if is_ahead:
            _ask(ask, len(items))
        for _ in items:
            if not is_ahead:
                _ask(ask)
            yield json.loads(lines.next(time.monotonic() + seconds))
        is_over = True
    except TimeoutError as error:
        trouble = error
        os.kill(pid, signal.SIGKILL)
    except ValueError as error:
        trouble = error
    finally:
        if is_ahead and not is_over:
            os.kill(pid, signal.SIGKILL)
        os.close(ask)  # the child, which waits to be asked, ends
        os.close(reader)
        status = os.waitpid(pid, 0)[1]
    if trouble is not None:
        yield trouble if isinstance(trouble, TimeoutError) else _without_answer(status)


def _ask(ask: int, count: int = 1) -> None:
    try:
        files.write_whole(ask, b"\n" * count)
    except BrokenPipeError:
        return  # it has ended: so does the pipe of its answers


def _answer_all(
    work: Callable[[T], Any], items: Sequence[T], asked: int, ask: int, writer: int
) -> None:
    os.close(ask)
    for item in items:
        if not os.read(asked, 1):
            return
        files.write_whole(writer, json.dumps(work(item)).encode() + b"\n")


class _Lines:
    """The lines that come out of a pipe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._rest = b""

    def next(self, end: float) -> bytes:
        """Return the next line, b"" at the end of the pipe; raises TimeoutError."""
        while b"\n" not in self._rest:
            if not select.select([self._fd], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError
            chunk = os.read(self._fd, 65536)
            if not chunk:
                return b""
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line


def done(work: Callable[[], Any], seconds: float) -> Any:
    """Return what `work`, done in a child process, returns, as far as JSON can say it.

    Raises TimeoutError after so many seconds, and OSError where the child ends without an answer.
    `work` catches what it raises. An interrupt is raised when the child has ended: it may be
    undoing what it had begun, as whoever interrupts at a terminal interrupts both.
    """
    with Interruptible() as signals:
        signals.hold()
        try:
            return _answer(work, seconds)
        finally:
            signals.check()


def _answer(work: Callable[[], Any], seconds: float) -> Any:
    pid, reader = _started(lambda writer: files.write_whole(writer, json.dumps(work()).encode()))
    try:
        text = _read(reader, time.monotonic() + seconds)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.close(reader)
        status = os.waitpid(pid, 0)[1]
    try:
        return json.loads(text)
    except ValueError:
        raise _without_answer(status) from None


def _without_answer(status: int) -> OSError:
    return OSError(errno.EIO, f"the process that was to do it {_ended(status)}")


def _started(work: Callable[[int], None]) -> tuple[int, int]:
    """Return the pid of a child that works, and a descriptor (the caller's) of its answer.

    `work` is given a descriptor to write the answer to.
    """
    reader, writer = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if pid == 0:
        status = 1
        try:
            work(writer)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    return pid, reader


def _ended(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"was ended by signal {os.WTERMSIG(status)}"
    return f"ended with status {os.WEXITSTATUS(status)}"


def _read(fd: int, end: float) -> bytes:
    """Return all that comes out of a pipe; raises TimeoutError."""
    chunks: list[bytes] = []
    while True:
        if not select.select([fd], [], [], max(0.0, end - time.monotonic()))[0]:
            raise TimeoutError
        chunk = os.read(fd, 65536)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
