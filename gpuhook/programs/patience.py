# SPDX-License-Identifier: Apache-2.0
"""Something asked in a process of its own, that somebody waits for as long as they have patience.

A call into a driver that hangs cannot be ended, nor can the process that made it; and a file system
of somebody else's answers when it likes. So that process is a child, which holds nothing of ours:
no lock, no pipe to a reader who would wait for its end.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
from functools import partial
from struct import Struct

from gpuhook import files
from gpuhook.errors import GpuhookError
from gpuhook.fault_texts import text_of
from gpuhook.programs.memory.handover import keep_only

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, TypeVar

    T = TypeVar("T")

LATE, ENDED, UNSTARTED = "late", "ended", "unstarted"


class NoAnswerError(Exception):
    """Nobody answered: in time (LATE), any more (ENDED), or at all (UNSTARTED); says why."""

    def __init__(self, how: str, reason: str) -> None:
        super().__init__(reason)
        self.how = how
        self.reason = reason


_LENGTH = Struct("!I")
_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)  # the parent's business
_ENDS_WITHIN = 2.0  # seconds
_LOOK = 0.01


class Apart:
    """An object in a child process, which `make` makes there; its methods are called from here.

    What they take and return is sent as pickles of our own child. Raises the faults of `make` and
    of the methods, and NoAnswerError: where none answers within `patience` seconds, from then on at
    once; where the child ends, or a method crashes; where no child can be started.
    """

    def __init__(self, make: Callable[[], object], patience: float) -> None:
        self._patience = patience
        self._lost: NoAnswerError | None = None
        self._reader, writer = os.pipe()
        asked, self._writer = os.pipe()
        try:
            self._pid = os.fork()
        except OSError as error:
            for fd in (self._reader, writer, asked, self._writer):
                os.close(fd)
            raise NoAnswerError(UNSTARTED, error.strerror or str(error)) from error
        if self._pid == 0:
            _child(make, asked, writer)
        os.close(asked)
        os.close(writer)
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    def call(self, name: str, *arguments: object) -> Any:
        """Return what the object's method returns."""
        if self._lost is not None:
            raise self._lost
        try:
            files.write_whole(self._writer, _packed((name, arguments)))
        except BrokenPipeError:
            raise self._ended() from None
        return self._answer()

    def close(self) -> None:
        """Let the child end. One that does not is killed, and not waited for."""
        if self._reader < 0:
            return
        os.close(self._writer)
        end = time.monotonic() + (0 if self._lost else _ENDS_WITHIN)
        while not self._is_over():
            if time.monotonic() > end:
                os.kill(self._pid, signal.SIGKILL)
                self._is_over()
                break
            time.sleep(_LOOK)
        os.close(self._reader)
        self._reader = -1

    def __enter__(self) -> Apart:  # noqa: PYI034 # Self needs a newer Python
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _answer(self) -> Any:
        end = time.monotonic() + self._patience
        (size,) = _LENGTH.unpack(self._read(_LENGTH.size, end))
        how, *facts = pickle.loads(self._read(size, end))  # noqa: S301 # our own child's
        if how == "fault":
            code, message, hint = facts
            raise text_of(code)[0](code, message, hint)
        if how == "crash":
            raise NoAnswerError(ENDED, str(facts[0]))
        return facts[0]

    def _read(self, size: int, end: float) -> bytes:
        found = bytearray()
        while len(found) < size:
            left = max(0.0, end - time.monotonic())
            if not select.select([self._reader], [], [], left)[0]:
                self._lost = NoAnswerError(LATE, f"no answer within {self._patience:g} seconds")
                os.kill(self._pid, signal.SIGKILL)
                raise self._lost
            chunk = os.read(self._reader, size - len(found))
            if not chunk:
                raise self._ended()
            found += chunk
        return bytes(found)

    def _ended(self) -> NoAnswerError:
        self._lost = NoAnswerError(ENDED, "its process has ended")
        return self._lost

    def _is_over(self) -> bool:
        try:
            return os.waitpid(self._pid, os.WNOHANG)[0] != 0
        except ChildProcessError:
            return True


def answered(work: Callable[[], T], patience: float) -> T:
    """Return what `work` returns in a process of its own; raises as Apart does."""
    with Apart(lambda: work, patience) as apart:
        found: T = apart.call("__call__")
        return found


def _packed(what: object) -> bytes:
    content = pickle.dumps(what)
    return _LENGTH.pack(len(content)) + content


def _child(make: Callable[[], object], asked: int, writer: int) -> None:
    """Make the object, answer what is asked of it until nobody does, and end."""
    try:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        keep_only(asked, writer)
        made: list[object] = []
        files.write_whole(writer, _packed(_done(lambda: made.append(make()))))
        with open(asked, "rb", closefd=False) as requests:
            while made and (head := requests.read(_LENGTH.size)):
                content = requests.read(*_LENGTH.unpack(head))
                name, arguments = pickle.loads(content)  # noqa: S301 # our own parent's
                answer = _done(partial(getattr(made[0], name), *arguments))
                files.write_whole(writer, _packed(answer))
        close = getattr(made[0], "close", None) if made else None
        if close is not None:
            close()
    finally:
        os._exit(0)


def _done(call: Callable[[], object]) -> tuple[object, ...]:
    try:
        return "done", call()
    except GpuhookError as error:
        return "fault", error.code, error.message, error.hint
    except Exception as error:  # the parent tells it
        return "crash", f"{type(error).__name__}: {error}"
