# SPDX-License-Identifier: Apache-2.0
"""Links and the loader's files made in a running container."""

from __future__ import annotations

from gpuhook.apply.live.dry_run_root import previous, put_back
from gpuhook.apply.live.live_injection import InjectedItems
from gpuhook.apply.rootfs.rootfs_files import provide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.apply.live.file_change import FileChange
    from gpuhook.apply.live.hotplug_steps import Live
    from gpuhook.apply.rootfs.rootfs_files import Provision


class LiveFiles:
    """Makes links and the loader's files; `failures` are those that are known not to work."""

    def __init__(
        self, provision: Provision, changes: list[FileChange], failures: list[OSError]
    ) -> None:
        self.provision = provision
        self.changes = changes
        self._known = [failure.filename for failure in failures]
        self._before: list[FileChange] = []
        self._directories: list[str] = []

    def describe(self) -> list[str]:
        """Return a line for each link and file that changes."""
        return [change.describe() for change in self.changes]

    def execute(self, live: Live) -> None:
        """Make them; all are put back when one fails that should not."""
        missing = [path for change in self.changes for path in live.root.missing(change.path)]
        self._directories = list(dict.fromkeys(missing))
        self._before = self._now(live)
        try:
            self._provide(live)
        except BaseException:
            self.undo(live)
            raise
        made = InjectedItems()
        made.changes += self._noted(self._before)
        made.directories += self._directories
        live.made.add(made)

    def _provide(self, live: Live) -> None:
        with live.as_root():
            failures = provide(live.root, self.provision)
        for failure in failures:
            if failure.filename not in self._known:
                raise failure

    def promised(self, live: Live) -> list[list[Any]]:
        """Return the links and files that are going to be made, as Made notes them."""
        return self._noted(self._now(live))

    def _now(self, live: Live) -> list[FileChange]:
        with live.as_root():
            return [previous(live.root, change.path) for change in self.changes]

    def _noted(self, befores: list[FileChange]) -> list[list[Any]]:
        return [change.noted(before) for change, before in zip(self.changes, befores)]

    def undo(self, live: Live) -> None:
        """Put back what was there before."""
        with live.as_root():
            for before in reversed(self._before):
                put_back(live.root, before)
        for directory in reversed(self._directories):
            live.root.remove_empty(directory)
