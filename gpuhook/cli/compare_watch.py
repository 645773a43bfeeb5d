# SPDX-License-Identifier: Apache-2.0
"""`gpuhook compare --watch`: each container is compared once, soon after it was started."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager

import click

from gpuhook.compare import compare_text, records
from gpuhook.containers.warm import find
from gpuhook.errors import GpuhookError
from gpuhook.host import printing
from gpuhook.target import running_container

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType
    from typing import Any

    from gpuhook.cli.compare_node import Comparing
    from gpuhook.compare.records import Record


def run(comparing: Comparing, roots: Sequence[str], record: Record | None, interval: float) -> int:
    """Compare until SIGINT or SIGTERM; returns 1 if any container differed or failed, else 0.

    `interval` is in seconds. Those that are in the record already are not looked at.
    """
    watch = _Watch(comparing, roots, record)
    printing.say("watching for containers that are started; interrupt to end")
    with _interruptible():
        try:
            while True:
                watch.round()
                time.sleep(interval)
        except KeyboardInterrupt:
            printing.say("")
    click.echo(compare_text.total(watch.compared))
    return 1 if watch.is_wrong else 0


class _Watch:
    """What was seen until now."""

    def __init__(self, comparing: Comparing, roots: Sequence[str], record: Record | None) -> None:
        self._comparing = comparing
        self._roots = roots
        self._record = record
        self._seen = set(record.lives) if record is not None else set()
        self.compared: list[dict[str, Any]] = []
        self.is_wrong = False

    def round(self) -> None:
        """Compare the containers that are new; raises OSError where the record cannot be kept."""
        living, _ = find.everything(self._roots)
        ready = [found for found in living if self._comparing.is_ready(found)]
        new = [f for f in ready if records.life_of(f.id, f.started) not in self._seen]
        if not new:
            return
        try:
            self._comparing.renew()
        except GpuhookError as error:  # a driver that is being replaced answers later
            printing.warn(f"{error.code}: {error.message}")
            return
        started = {found.id: found.started for found in new}
        for one in self._comparing.all_of(new):
            self._take(one, started[one["container"]])
        self._seen.update(records.life_of(f.id, f.started) for f in new)

    def _take(self, one: dict[str, Any], started: int | None) -> None:
        if "code" in one:
            if one["code"] not in running_container.GONE:
                printing.warn(f"{one['container']}: {one['code']}: {one['message']}")
                self.is_wrong = True
            return
        if self._record is not None:
            self._record.add(records.line(one, started))
        compare_text.container(one, is_wide=False, no_headers=True)
        # Of each no more is kept than what is counted in the end.
        self.compared.append({"counts": one["counts"]})
        self.is_wrong = self.is_wrong or one["counts"]["differences"] > 0


@contextmanager
def _interruptible() -> Iterator[None]:
    """Within it, SIGTERM ends as SIGINT does: with the count."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
