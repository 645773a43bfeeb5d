# SPDX-License-Identifier: Apache-2.0
"""Items of the libraries that the container's loader finds, and of links.

The comparison is by the file that a name leads to, not by its path or the loader's configuration.
A library with a wrong mount is only an item of mount_items.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from posixpath import dirname, join, normpath

from gpuhook.compare.items import known_differences
from gpuhook.compare.items.compare_item import DIFFERS, LIBRARY, LINK, SAME, Item, compare_words
from gpuhook.host.hot.files import MAX_LINKS
from gpuhook.inspect.loader_view import LoaderView
from gpuhook.loader import library_directory
from gpuhook.vendors import known_difference
from gpuhook.vendors.hot import rootfs_plan
from gpuhook.vendors.known_difference import Difference

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from gpuhook.apply.live.hotplug_steps import Live
    from gpuhook.apply.rootfs.hook_args import Jobs
    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.compare.expected_injection import ExpectedInjection

Identity = tuple[int, int]  # of a file: device and inode
NARROW = " (32-bit)"
_NOT_THERE = "not found by the loader"


def items(
    side: Side, todo: Sequence[Jobs], bad: Collection[str], moved: Collection[str]
) -> Iterator[Item]:
    """Yield libraries and links of jobs; `bad` are the paths of wrong mounts.

    For `moved` files, mounted at another path, only the names of the loader are compared.
    """
    for names, links in _planned(side.held, todo):
        seen: set[tuple[str, bool]] = set()
        for name, path in names:
            if path in links and name.endswith(".so"):
                continue  # a link for the linker, compared as a link
            end = _end(path, links)
            # A name has a 32-bit and a 64-bit library.
            known = name, library_directory.is_narrow(path)
            is_unsupported = library_directory.is_narrow(path) and side.is_musl
            if known not in seen and end not in bad and not is_unsupported:
                yield side.library(name, path, end)
            seen.add(known)
        for path, target in links.items():
            end = _end(path, links)
            if end not in bad and end not in moved and side.identity(end) is not None:
                known = path.rpartition("/")[2], library_directory.is_narrow(path)
                is_versioned = known in seen
                yield side.link(path, target, end, is_versioned=is_versioned)


@dataclass(slots=True)
class JobNames:
    """The results of jobs: the files of loader names (32-bit or not) and of links."""

    names: dict[tuple[str, bool], str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)


def names_of_jobs(held: Live, todo: Sequence[Jobs]) -> JobNames:
    """Return the names and links that jobs create in a container."""
    found = JobNames()
    for names, links in _planned(held, todo):
        found.links |= {path: _end(path, links) for path in links}
        for name, path in names:
            key = name, library_directory.is_narrow(path)
            found.names.setdefault(key, _end(path, links))
    return found


def _planned(
    held: Live, todo: Sequence[Jobs]
) -> Iterator[tuple[list[tuple[str, str]], dict[str, str]]]:
    """Yield the (name, path) of the loader, and the links (path: target), of each job."""
    for job in todo:
        made, _ = rootfs_plan.rootfs_plan(held.root, [job])
        names = [(os.fsdecode(name), os.fsdecode(path)) for name, path in made.entries()]
        yield names, {path: normpath(join(dirname(path), target)) for target, path in made.links}


class Side:
    """The container's files, compared with the files that gpuhook would mount."""

    def __init__(self, held: Live, by: str, expected: ExpectedInjection) -> None:
        self.held = held
        self._by = by
        self._seen: dict[str, Identity | None] = {}
        self._expected = expected
        self._files = _host_paths(expected.edits)
        self._whole = _host_paths(expected.whole)

    @cached_property
    def view(self) -> LoaderView:
        """The libraries that the container's loader finds."""
        return LoaderView(self.held)

    @property
    def is_musl(self) -> bool:
        """Whether the container's loader is musl's, for which gpuhook adds no 32-bit libraries."""
        return self.view.is_musl

    def library(self, name: str, path: str, end: str) -> Item:
        """Return the item of a loader name that leads to `path`, a link to `end`, with gpuhook."""
        is_32_bit = library_directory.is_narrow(path)
        there = self.view.place(name, is_32_bit=is_32_bit)
        name += NARROW if is_32_bit else ""
        if there and self.found(there) == self.identity(end):
            return Item(LIBRARY, name, SAME, there, path)
        trouble = self.view.trouble
        shown = there or (f"no readable cache: {trouble}" if trouble else _NOT_THERE)
        reason = known_differences.missing(path, self._by, self._expected)
        if not there and self.is_musl and self.found(path) == self.identity(end):
            name_on_musl = Difference(known_difference.MUSL_NAME, name)
            reason = reason or known_differences.reason(self._by, name_on_musl)
        return Item(LIBRARY, name, DIFFERS, shown, path, reason)

    def link(self, path: str, target: str, end: str, *, is_versioned: bool) -> Item:
        """Return the item of a link, compared by the file that it leads to."""
        found = self.found(path)
        if found is not None and found == self.identity(end):
            return Item(LINK, path, SAME, target, target)
        difference = Difference(
            known_difference.LINK,
            path,
            mounts=tuple(self._files),
            is_versioned=is_versioned,
            is_mounted=self.found(end) is not None,
        )
        reason = known_differences.reason(self._by, difference)
        return compare_words(LINK, path, "another file" if found else "", target, reason)

    def identity(self, path: str, *, is_whole: bool = False) -> Identity | None:
        """Return the file at `path` with gpuhook: the host's, or the image's.

        `is_whole`: with gpuhook and all capabilities.
        """
        files = self._whole if is_whole else self._files
        if path not in files:
            return self.found(path)
        try:
            found = os.stat(files[path])
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def found(self, path: str) -> Identity | None:
        """Return the file at `path` in the container, None for none."""
        if path not in self._seen:
            found = self.held.root.status(path)
            self._seen[path] = None if found is None else (found.st_dev, found.st_ino)
        return self._seen[path]


def _host_paths(edits: ContainerEdits) -> dict[str, str]:
    return {mount["containerPath"]: mount["hostPath"] for mount in edits.get("mounts") or ()}


def _end(path: str, links: dict[str, str]) -> str:
    for _ in range(MAX_LINKS):
        if path not in links:
            break
        path = links[path]
    return path
