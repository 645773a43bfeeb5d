# SPDX-License-Identifier: Apache-2.0
"""Work in a child process, with a deadline: a driver or a file system may never answer.

A process in such a call can be uninterruptible (proc(5), state D): SIGKILL does not end it. So the
child has its own session and no lock, pipe or terminal of its parent. After the deadline it is
killed and not waited for; the error names the processes that are left.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import time
from contextlib import ExitStack, suppress
from functools import partial
from struct import Struct

from gpuhook.errors import GpuhookError
from gpuhook.host import blocked_call, system_mounts
from gpuhook.host.hot import files, procfs
from gpuhook.host.warm import child_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")

LATE, ENDED, UNSTARTED = "late", "ended", "unstarted"


class NoAnswerError(Exception):
    """The child did not answer in time (LATE), it ended (ENDED), or did not start (UNSTARTED).

    `left` are the pids of its processes that SIGKILL has not ended; `reason` names them, too.
    `path` is the file for which the child waited, "" if it is unknown.
    """

    def __init__(self, how: str, reason: str, left: Sequence[int] = (), path: str = "") -> None:
        self.how = how
        self.path = path
        self.left = tuple(left)
        self.reason = reason + self.left_behind()
        super().__init__(self.reason)

    def left_behind(self) -> str:
        """Return a phrase for the end of a message that names these processes, "" without any."""
        if not self.left:
            return ""
        pids = ", ".join(map(str, self.left))
        return f"; left behind in an uninterruptible wait: process {pids}"


_LENGTH = Struct("!I")
_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)  # the parent's business
_ENDS_WITHIN = 2.0  # seconds, for a child that has no more to do
_DIES_WITHIN = 0.5  # seconds, after SIGKILL
_HANGS_AFTER = 2.0  # seconds in an uninterruptible wait
_LOOK = 0.02
_MAX_STDERR = 1 << 20


class Worker:
    """An object in a child process, which `make` creates there; its methods are called from here.

    Arguments and results are pickled. Raises the faults of `make` and of the methods, and
    NoAnswerError: if no answer comes within `seconds`, and at each call from then on; if the child
    ends, or a method raises another exception; if no child can be started; GH1594 without /proc or
    /dev. With `relay_stderr`, the
    child's standard error appears on ours after each answer. With `undo`, the child gets
    interrupt()'s SIGTERM and can undo its work.
    """

    def __init__(
        self,
        make: Callable[[], object],
        seconds: float,
        *,
        relay_stderr: bool = False,
        undo: bool = False,
    ) -> None:
        self._seconds = seconds
        self._lost: NoAnswerError | None = None
        self._signal = 0
        system_mounts.require()
        self._stderr: _Stderr | None = None
        with ExitStack() as opened:
            try:
                if relay_stderr:
                    self._stderr = _Stderr()
                    opened.callback(self._stderr.close)
                self._reader, writer = _pipe(opened)
                asked, self._writer = _pipe(opened)
                self._pid = os.fork()
            except OSError as error:
                raise NoAnswerError(UNSTARTED, error.strerror or str(error)) from error
            if self._pid == 0:
                _child(make, asked, writer, self._stderr, undo=undo)
            opened.pop_all()
        os.close(asked)
        os.close(writer)
        try:
            self.answer()
        except BaseException:
            self.close()
            raise

    def call(self, name: str, *arguments: object) -> Any:
        """Return what the object's method returns."""
        self.ask(name, *arguments)
        return self.answer()

    def ask(self, name: str, *arguments: object) -> None:
        """Call the object's method in the child; answer() returns its result."""
        if self._lost is not None:
            raise self._lost
        with suppress(BrokenPipeError):  # it has exited: answer() raises, after its last answer
            files.write_whole(self._writer, _packed((name, arguments)))

    def answer(self, seconds: float | None = None) -> Any:
        """Return the result of the first call without an answer so far."""
        if self._lost is not None:
            raise self._lost
        patience = self._seconds if seconds is None else seconds
        end = time.monotonic() + patience
        try:
            (size,) = _LENGTH.unpack(self._read(_LENGTH.size, end))
            how, fact = pickle.loads(self._read(size, end))  # noqa: S301 # our own child's
        except TimeoutError:
            path = blocked_call.blocking_path(self._pid)
            reason = f"no answer within {patience:g} seconds"
            self._lost = NoAnswerError(LATE, reason, self._kill(), path)
            raise self._lost from None
        finally:
            if self._stderr is not None:
                self._stderr.relay()
        if how == "fault":
            raise fact
        if how == "crash":
            raise NoAnswerError(ENDED, fact)
        return fact

    def interrupt(self) -> tuple[int, ...]:
        """Interrupt the child, and wait until it has undone its work.

        A child that hangs meanwhile is killed. Returns the pids of processes that SIGKILL has not
        ended.
        """
        os.kill(self._pid, signal.SIGTERM)
        end, hangs_since = time.monotonic() + self._seconds, None
        while not self._is_over() and time.monotonic() < end:
            now = time.monotonic()
            if not any(one[0] == b"D" for one in _processes(self._pid).values()):
                hangs_since = None
            elif hangs_since is None:
                hangs_since = now
            elif now - hangs_since > _HANGS_AFTER:
                break
            time.sleep(_LOOK)
        left = self._kill()
        self._lost = NoAnswerError(ENDED, "it was interrupted", left)
        return left

    def close(self) -> None:
        """Let the child end. A child that does not end is killed and not waited for."""
        if self._reader < 0:
            return
        os.close(self._writer)
        end = time.monotonic() + _ENDS_WITHIN
        while self._lost is None and not self._is_over():  # a lost one was killed
            if time.monotonic() > end:
                self._kill()
                break
            time.sleep(_LOOK)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, os.WNOHANG)
        os.close(self._reader)
        self._reader = -1
        if self._stderr is not None:
            self._stderr.relay()
            self._stderr.close()

    def kill(self) -> tuple[int, ...]:
        """Kill the child; return the pids of processes that do not end."""
        left = self._kill()
        self._lost = self._lost or NoAnswerError(ENDED, "it was killed", left)
        return left

    def __enter__(self) -> Worker:  # noqa: PYI034 # Self needs a newer Python
        return self

    def __exit__(self, *exc: object) -> None:
        if isinstance(exc[1], KeyboardInterrupt):
            self.kill()
        self.close()

    def _read(self, size: int, end: float) -> bytes:
        found = bytearray()
        while len(found) < size:
            left = max(0.0, end - time.monotonic())
            if not select.select([self._reader], [], [], left)[0]:
                raise TimeoutError
            chunk = os.read(self._reader, size - len(found))
            if not chunk:
                raise self._ended()
            found += chunk
        return bytes(found)

    def _ended(self) -> NoAnswerError:
        end = time.monotonic() + _DIES_WITHIN
        while not self._is_over() and time.monotonic() < end:
            time.sleep(_LOOK)
        left = self._kill()
        how = f" by signal {self._signal}" if self._signal else ""
        self._lost = NoAnswerError(ENDED, f"its process has exited{how}", left)
        return self._lost

    def _is_over(self) -> bool:
        """Return whether the child has exited; it keeps its pid until close()."""
        try:
            found = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        if found is not None and found.si_code != os.CLD_EXITED:
            self._signal = found.si_status
        return found is not None

    def _kill(self) -> tuple[int, ...]:
        """Kill all processes of the child; return the pids of those that do not end.

        Those of the first look are known: without their parents, nothing shows that they are the
        child's.
        """
        end = time.monotonic() + _DIES_WITHIN
        known: set[tuple[int, bytes]] = set()
        while True:
            living = _processes(self._pid, known)
            known.update((pid, fields[procfs.START]) for pid, fields in living.items())
            if not living and self._is_over():
                return ()
            if time.monotonic() > end:
                return tuple(living)
            for pid in {self._pid, *living}:
                _kill(pid)
            time.sleep(_LOOK)


def call_in_child(work: Callable[[], T], seconds: float, *, relay_stderr: bool = False) -> T:
    """Return what `work` returns in a child process; raises as Worker does."""
    with Worker(lambda: work, seconds, relay_stderr=relay_stderr) as worker:
        found: T = worker.call("__call__")
        return found


class _Stderr:
    """The standard error of a child, in a memory file: a pipe would block its reader."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("stderr", os.MFD_CLOEXEC)
        self._relayed = 0

    def take_over(self, descriptor: int) -> None:
        """Replace `descriptor` by the file, in the child."""
        os.dup2(self._fd, descriptor)

    def relay(self) -> None:
        """Write new output to our own standard error."""
        text = os.pread(self._fd, _MAX_STDERR, self._relayed)
        self._relayed += len(text)
        if text:
            with suppress(OSError, ValueError):
                sys.stderr.flush()
                files.write_whole(2, text)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def _pipe(opened: ExitStack) -> tuple[int, int]:
    """Return a pipe whose ends `opened` closes."""
    ends = os.pipe()
    for fd in ends:
        opened.callback(os.close, fd)
    return ends


def _packed(what: object) -> bytes:
    content = pickle.dumps(what)
    return _LENGTH.pack(len(content)) + content


def _child(
    make: Callable[[], object], asked: int, writer: int, stderr: _Stderr | None, *, undo: bool
) -> None:
    """Create the object, answer each call, and end when there are no more."""
    try:
        os.setsid()
        for number in _SIGNALS:
            is_default = undo and number == signal.SIGTERM
            signal.signal(number, signal.SIG_DFL if is_default else signal.SIG_IGN)
        if stderr is not None:
            stderr.take_over(2)
        child_process.keep_only(asked, writer, *([] if stderr is None else [2]))
        made: list[object] = []
        _answer(writer, lambda: made.append(make()))
        with open(asked, "rb", closefd=False) as requests:
            while made and (head := requests.read(_LENGTH.size)):
                content = requests.read(*_LENGTH.unpack(head))
                name, arguments = pickle.loads(content)  # noqa: S301 # our own parent's
                _answer(writer, partial(getattr(made[0], name), *arguments))
        close = getattr(made[0], "close", None) if made else None
        if close is not None:
            close()
    finally:
        os._exit(0)


def _answer(writer: int, call: Callable[[], object]) -> None:
    answer = _outcome(call)
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    files.write_whole(writer, _packed(answer))


def _outcome(call: Callable[[], object]) -> tuple[str, object]:
    try:
        return "done", call()
    except GpuhookError as error:
        return "fault", error
    except Exception as error:  # the parent reports it
        return "crash", f"{type(error).__name__}: {error}"


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _processes(session: int, known: Collection[tuple[int, bytes]] = ()) -> dict[int, list[bytes]]:
    """Return the pid and /proc/PID/stat of each living process of a session and its descendants.

    A worker in a worker's child has its own session. `known` are further processes, by pid and
    start: a pid may be used again.
    """
    stats = {pid: fields for pid in procfs.pids() if (fields := procfs.process_stat(pid))}
    found = {pid for pid, fields in stats.items() if int(fields[procfs.SESSION]) == session}
    found.update(pid for pid, one in stats.items() if (pid, one[procfs.START]) in known)
    new = found
    while new:
        new = {pid for pid, one in stats.items() if int(one[procfs.PARENT]) in new} - found
        found |= new
    return {pid: stats[pid] for pid in sorted(found) if stats[pid][0] not in procfs.ENDED}
