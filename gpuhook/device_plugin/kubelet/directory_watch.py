# SPDX-License-Identifier: Apache-2.0
"""Watches directories from an event loop, across their removal and return."""

from __future__ import annotations

import asyncio
import os

from gpuhook.kernel import inotify
from gpuhook.kernel.inotify import Inotify

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuhook.kernel.inotify import Event

_MADE = inotify.CREATE | inotify.MOVED_TO
_ITSELF = inotify.DELETE_SELF | inotify.MOVE_SELF
_MASK = _MADE | inotify.DELETE | inotify.MOVED_FROM | _ITSELF | inotify.ONLY_DIRECTORIES
_ENDED = _ITSELF | inotify.UNMOUNT | inotify.IGNORED | inotify.OVERFLOW


class DirectoryWatch:
    """Calls `changed(path, made)` for entries of `directories` that appear or go.

    `made` is whether the entry appeared. `changed(None, True)` means that anything may have
    changed: a directory was removed, moved or made, or events were lost. A changed time of a file
    is not reported; with `writes`, a file that is closed after writing is reported as made.
    """

    def __init__(
        self,
        directories: Iterable[str],
        changed: Callable[[str | None, bool], None],
        *,
        writes: bool = False,
    ) -> None:
        """Start watching. Raises OSError if inotify is not available."""
        self._directories = frozenset(directories)
        self._made = _MADE | (inotify.CLOSE_WRITE if writes else 0)
        self._changed = changed
        self._watches: dict[int, set[str]] = {}
        self._inotify = Inotify()
        try:
            self.renew()
            asyncio.get_running_loop().add_reader(self._inotify.fd, self._read)
        except OSError:
            self._inotify.close()
            raise

    def close(self) -> None:
        if self._inotify.fd >= 0:
            asyncio.get_running_loop().remove_reader(self._inotify.fd)
            self._inotify.close()

    def renew(self) -> None:
        """Watch the existing directories and the parent of each. Raises OSError.

        Of a missing directory, its nearest existing ancestor is watched.
        """
        watches: dict[int, set[str]] = {}
        for directory in self._directories:
            self._watch(directory, watches)
            above = os.path.dirname(directory)
            while not self._watch(above, watches) and above != os.path.dirname(above):
                above = os.path.dirname(above)
        for number in self._watches.keys() - watches.keys():
            self._inotify.unwatch(number)
        self._watches = watches

    def _watch(self, directory: str, watches: dict[int, set[str]]) -> bool:
        try:
            number = self._inotify.watch(directory, _MASK | self._made)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return False
        watches.setdefault(number, set()).add(directory)
        return True

    def _read(self) -> None:
        events = self._inotify.read()
        if any(self._is_structural(event) for event in events):
            try:
                self.renew()
            finally:  # report the change even if a watch is missing
                self._changed(None, True)
            return
        for event in events:
            for directory in self._watches.get(event.watch, ()):
                if directory in self._directories:
                    made = bool(event.mask & self._made)
                    self._changed(os.path.join(directory, event.name), made)

    def _is_structural(self, event: Event) -> bool:
        """Return whether the event concerns a watched directory or one of its ancestors."""
        if event.overflowed:
            return True
        directories = self._watches.get(event.watch, set())
        if not directories:
            return False
        if event.mask & _ENDED:
            return True
        entries = {os.path.join(directory, event.name) for directory in directories}
        return any(
            one == entry or one.startswith(entry + os.sep)
            for entry in entries
            for one in self._directories
        )
