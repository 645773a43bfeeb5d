# SPDX-License-Identifier: Apache-2.0
"""Links and the loader's files made in a running container.

WARM.
"""

from __future__ import annotations

from binascii import crc32

from gpuhook.container.made import Made
from gpuhook.container.provide import provide
from gpuhook.container.rehearsal import previous, put_back

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.container.operations import Live
    from gpuhook.container.provide import Provision
    from gpuhook.container.rehearsal import Change

_KEPT = 65536


class Files:
    """Makes links and the loader's files; `failures` are those that are known not to work."""

    def __init__(
        self, provision: Provision, changes: list[Change], failures: list[OSError]
    ) -> None:
        self.provision = provision
        self.changes = changes
        self._known = [failure.filename for failure in failures]
        self._before: list[Change] = []
        self._directories: list[str] = []

    def describe(self) -> list[str]:
        """Return a line for each link and file that changes."""
        return [change.describe() for change in self.changes]

    def execute(self, live: Live) -> None:
        """Make them; all are put back when one fails that should not."""
        missing = [path for change in self.changes for path in live.root.missing(change.path)]
        self._directories = list(dict.fromkeys(missing))
        with live.as_root():
            self._before = [previous(live.root, change.path) for change in self.changes]
            failures = provide(live.root, self.provision)
        for failure in failures:
            if failure.filename not in self._known:
                self.undo(live)
                raise failure
        live.made.add(self._made(self._before))
        live.made.directories += self._directories

    def promised(self, live: Live) -> Made:
        """Return the links and files that are going to be made, and what they are now."""
        with live.as_root():
            return self._made([previous(live.root, change.path) for change in self.changes])

    def _made(self, befores: list[Change]) -> Made:
        made = Made()
        for change, before in zip(self.changes, befores):
            if change.target is not None:
                made.links.append([change.path, change.target, before.target])
            else:
                made.contents.append(_content(change, before))
        return made

    def undo(self, live: Live) -> None:
        """Put back what was there before."""
        with live.as_root():
            for before in reversed(self._before):
                put_back(live.root, before)
        for directory in reversed(self._directories):
            live.root.remove_empty(directory)


def _content(change: Change, before: Change) -> list[Any]:
    """Return what taking a file back needs: its checksum, and its text from before.

    A large loader cache is not kept: it is taken apart instead of being put back.
    """
    old = before.data
    kept = old.decode("latin-1") if old is not None and len(old) <= _KEPT else None
    return [change.path, crc32(change.data or b""), kept, old is not None]
