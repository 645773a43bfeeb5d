# SPDX-License-Identifier: Apache-2.0
"""Items of names and links that lead to driver files, and that gpuhook would not create.

loader_items.py starts from the names that gpuhook creates. This module starts from those of the
container: the entries of its loader cache, the links that its hooks name, and the links in the
directories of the driver's files. A link older than the container is of the image, and gpuhook
does not change it.
"""

from __future__ import annotations

import os
import stat
import time
from posixpath import basename, dirname

from gpuhook.compare.items import known_differences, loader_items
from gpuhook.compare.items.compare_item import LIBRARY, LINK, compare_words
from gpuhook.usage import injection_route
from gpuhook.vendors.known_difference import LINK_ELSEWHERE, MOVED_LINK, Difference

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from gpuhook.apply.live.hotplug_steps import Live
    from gpuhook.compare.expected_injection import ExpectedInjection
    from gpuhook.compare.items.compare_item import Item
    from gpuhook.compare.items.mount_items import ContainerMounts

_LINK = "--link"  # of the hook create-symlinks: TARGET::PATH
_MARGIN = 0.01  # seconds: the kernel stamps files by a clock that it updates at each tick


def items(
    side: loader_items.Side,
    spec: dict[str, Any],
    by: str,
    expected: ExpectedInjection,
    mounts: ContainerMounts,
) -> Iterator[Item]:
    """Yield the links, then the loader names, that only the container has."""
    if not expected.edits:
        return
    surplus = _Surplus(side, by, expected, mounts)
    links = list(surplus.links(named(spec)))
    yield from links
    linked = {basename(one.name) for one in links}
    yield from (one for one in surplus.libraries() if one.name not in linked)


def named(spec: dict[str, Any]) -> list[str]:
    """Return the paths of the links that the hooks of a config.json create."""
    found = []
    for hook in injection_route.hooks(spec, "createContainer"):
        args = hook.get("args")
        words = [word for word in args if isinstance(word, str)] if isinstance(args, list) else []
        values = [after for word, after in zip(words, words[1:], strict=False) if word == _LINK]
        values += [word[len(_LINK) + 1 :] for word in words if word.startswith(_LINK + "=")]
        found += [value.partition("::")[2] for value in values]
    return [path for path in found if path.startswith("/")]


class _Surplus:
    """The container's names and links, compared with those of gpuhook."""

    def __init__(
        self,
        side: loader_items.Side,
        by: str,
        expected: ExpectedInjection,
        mounts: ContainerMounts,
    ) -> None:
        self._held = side.held
        self._by = by
        self._expected = expected
        self._side = side
        self._ours = loader_items.names_of_jobs(side.held, expected.todo)
        self._whole = loader_items.names_of_jobs(side.held, expected.whole_todo)
        self._mounts = mounts
        self._since = _started(side.held) - _MARGIN
        self._files = {self._side.found(path): path for path in mounts.files}
        self._files.pop(None, None)
        self._directories = dict.fromkeys(map(dirname, self._files.values()))
        self._resolved: dict[str, str] = {}  # of each directory

    def libraries(self) -> Iterator[Item]:
        """Yield the names by which the loader finds a file of the driver.

        A file with a wrong mount is only an item of mount_items.
        """
        for name, is_32_bit, place in self._side.view.names():
            end = self._side.found(place)
            file = self._files.get(end)
            key = name, is_32_bit
            if file in (None, place) or file in self._mounts.unexpected or key in self._ours.names:
                continue
            if self._is_older(place):
                continue
            expected = self._whole.names.get(key)
            is_whole = expected is not None and self._side.identity(expected, is_whole=True) == end
            name += loader_items.NARROW if is_32_bit else ""
            yield self._item(LIBRARY, name, place, place, is_whole=is_whole)

    def links(self, named: list[str]) -> Iterator[Item]:
        """Yield the links that were created for the container; hooks name those in `named`."""
        ours = {self._real(path): end for path, end in self._ours.links.items()}
        whole = {self._real(path): end for path, end in self._whole.links.items()}
        mounts = self._expected.edits.get("mounts") or ()
        expected = {self._real(mount["containerPath"]) for mount in mounts}
        known = dict.fromkeys(map(self._real, named))
        for path in sorted({**known, **dict.fromkeys(self._new())}):
            target, end = self._target(path), self._side.found(path)
            file = self._files.get(end)
            if not target or end is None or path in ours or path in expected:
                continue
            if file in self._mounts.unexpected or not (file or path in known):
                continue
            if self._is_moved(path, end) and self._reason(MOVED_LINK, path):
                continue
            is_whole = self._leads(whole, path, end)
            others = (one for one in whole if basename(one) == basename(path))
            elsewhere = tuple(one for one in others if self._leads(whole, one, end))
            reason = "" if is_whole else self._reason(LINK_ELSEWHERE, path, elsewhere)
            if reason:
                yield compare_words(LINK, path, target, "", reason)
            else:
                yield self._item(LINK, path, target, path, is_whole=is_whole)

    def _reason(self, what: str, path: str, there: tuple[str, ...] = ()) -> str:
        return known_differences.reason(self._by, Difference(what, path, there))

    def _leads(self, links: dict[str, str], path: str, end: loader_items.Identity) -> bool:
        """Return whether a link of gpuhook for all capabilities leads to the file `end`."""
        return path in links and self._side.identity(links[path], is_whole=True) == end

    def _is_moved(self, path: str, end: loader_items.Identity) -> bool:
        """Return whether gpuhook creates the link in another directory, to the same file."""
        name = basename(path)
        return any(
            basename(one) == name and self._side.identity(leads_to) == end
            for one, leads_to in self._ours.links.items()
        )

    def _item(self, kind: str, name: str, there: str, path: str, *, is_whole: bool) -> Item:
        reason = known_differences.extra_part(
            path, self._by, self._expected, is_whole=is_whole, is_privileged=False
        )
        return compare_words(kind, name, there, "", reason)

    def _new(self) -> Iterator[str]:
        """Yield the links next to the driver's files that are newer than the container."""
        for directory in self._directories:
            for name in self._held.root.directory_names(directory):
                path = f"{directory}/{name}"
                found = self._held.root.status(path, follow=False)
                if found and stat.S_ISLNK(found.st_mode) and found.st_ctime >= self._since:
                    yield self._real(path)

    def _is_older(self, path: str) -> bool:
        found = self._held.root.status(path, follow=False)
        return found is not None and stat.S_ISLNK(found.st_mode) and found.st_ctime < self._since

    def _real(self, path: str) -> str:
        """Return a path with the links in its directory resolved."""
        directory = dirname(path)
        if directory not in self._resolved:
            self._resolved[directory] = self._held.root.real(directory).rstrip("/")
        return f"{self._resolved[directory]}/{basename(path)}"

    def _target(self, path: str) -> str:
        """Return the target of a link, "" for any other file."""
        fd = self._held.root.lookup(path, follow=False)
        if fd is None:
            return ""
        try:
            return os.readlink("", dir_fd=fd)
        except OSError:
            return ""
        finally:
            os.close(fd)


def _started(held: Live) -> float:
    """Return the start of the container's first process, in seconds since the epoch."""
    ticks = (held.process.started or 0) / os.sysconf("SC_CLK_TCK")
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks
