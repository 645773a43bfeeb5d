# SPDX-License-Identifier: Apache-2.0
"""Work on running containers, in a child process with a deadline.

A container's file systems (FUSE, NFS) may never answer. The parent holds the lock of a container
that is changed, so a hung child does not block other commands.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import ExitStack, contextmanager

from gpuhook.containers import find
from gpuhook.containers.warm import ledger_changes
from gpuhook.errors import GpuhookError, fault
from gpuhook.host import worker
from gpuhook.host.error_text import worded
from gpuhook.host.hot.engine_log import unforeseen
from gpuhook.host.interrupt import Interruptible
from gpuhook.host.worker import LATE, NoAnswerError, Worker
from gpuhook.kernel import process
from gpuhook.target import running_container

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, TypeVar

    from gpuhook.containers.warm.runtime_state import Found
    from gpuhook.target.running_container import Target

    T = TypeVar("T")

SECONDS = 45.0  # for one container; a driver that hangs, and ldconfig, have less


class ContainerWorker:
    """Does `work` on one container after another, in a child process that works on several.

    With `to_change`, only one process at a time works on a container, and an interrupt lets the
    child undo its work.
    """

    def __init__(
        self, work: Callable[[Target], Any], *, to_change: bool, seconds: float = SECONDS
    ) -> None:
        self._work = work
        self._to_change = to_change
        self._seconds = seconds
        self._worker: Worker | None = None

    def do(self, found: Found) -> Any:
        """Return what `work` returns.

        Raises its faults, an OSError as a fault, GH1756 for another user's container, GH1757 if
        another process changes the container, GH1760 if there is no answer in time, GH1761 if the
        child ends without an answer.
        """
        with ExitStack() as stack:
            if self._to_change:
                running_container.require_ours(found)
                stack.enter_context(ledger_changes.Changing(found.id))
                stack.enter_context(Interruptible())
            return self._answer(found)

    def _answer(self, found: Found) -> Any:
        start = time.monotonic()
        try:
            if self._worker is None:
                self._worker = self._started()
            return self._worker.call("do", found)
        except NoAnswerError as error:
            self.close()
            raise no_answer(found.id, error, self._seconds) from error
        except KeyboardInterrupt:
            left = self._interrupted()
            if left:
                seconds = time.monotonic() - start
                raise no_answer(found.id, NoAnswerError(LATE, "", left), seconds) from None
            raise

    def _started(self) -> Worker:
        parent, work, to_change = os.getpid(), self._work, self._to_change
        return Worker(
            lambda: _Child(parent, work, to_change=to_change),
            self._seconds,
            relay_stderr=True,
            undo=to_change,
        )

    def _interrupted(self) -> tuple[int, ...]:
        """End the child; return the pids of processes that do not end."""
        if self._worker is None:
            return ()
        left = self._worker.interrupt() if self._to_change else self._worker.kill()
        self.close()
        return left

    def close(self) -> None:
        """Let the child end."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def __enter__(self) -> ContainerWorker:  # noqa: PYI034 # Self needs a newer Python
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Child:
    """Works on containers, in the child."""

    def __init__(self, parent: int, work: Callable[[Target], Any], *, to_change: bool) -> None:
        if to_change:  # the parent's lock ends with the parent
            process.die_with(parent)
        self._work = work
        self._to_change = to_change

    def do(self, found: Found) -> Any:
        with (
            _as_faults(),
            self._as_rootless(found),
            running_container.hold(found, to_change=self._to_change) as one,
        ):
            return self._work(one)

    @contextmanager
    def _as_rootless(self, found: Found) -> Iterator[None]:
        """Raise GH1749 if a change needs the capabilities that a user has in a user namespace."""
        try:
            yield
        except PermissionError as error:
            if not self._to_change or error.errno != errno.EPERM or os.geteuid() == 0:
                raise
            where = error.filename or "the system"
            raise fault("GH1749", id=found.id, where=where) from error


@contextmanager
def _as_faults() -> Iterator[None]:
    """Turn exceptions into faults: only these go from a child to its parent."""
    try:
        yield
    except (GpuhookError, OSError) as error:
        raise worded(error) from error
    except Exception as error:
        raise unforeseen(error) from error


def call_in_child(container: str, work: Callable[[], T]) -> T:
    """Return what `work` returns, which reads the file systems of a container from outside.

    Raises its faults, an OSError as a fault, GH1760 and GH1761.
    """

    def worded_work() -> T:
        with _as_faults():
            return work()

    try:
        return worker.call_in_child(worded_work, SECONDS, relay_stderr=True)
    except NoAnswerError as error:
        raise no_answer(container, error) from error


def work_on(
    text: str, state_roots: Sequence[str], work: Callable[[Target], T], *, to_change: bool = False
) -> T:
    """Return what `work` returns for the running container that `text` names.

    Raises the faults of find(), and those of ContainerWorker.do().
    """
    found = find.find(text, state_roots)
    with ContainerWorker(work, to_change=to_change) as one:
        result: T = one.do(found)
        return result


def no_answer(container: str, error: NoAnswerError, seconds: float = SECONDS) -> GpuhookError:
    """Return the fault of a container whose worker did not answer.

    GH1760 if its file systems did not answer within `seconds`, GH1761 if the child ended.
    """
    if error.how == LATE:
        left = error.left_behind()
        return fault("GH1760", container=container, seconds=f"{seconds:.0f}", left=left)
    return fault("GH1761", container=container, reason=error.reason)
