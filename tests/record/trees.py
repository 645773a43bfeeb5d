# SPDX-License-Identifier: Apache-2.0
"""The contents of a directory tree, and its changes, as text."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from tests.record import loader_cache, transcript

_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
    stat.S_IFIFO: "pipe",
}
# Made again whenever it is missing: its contents are not behaviour.
_UNREAD = ("/compiled/",)
# Records of the loader's files, whose names depend on when gpuhook was installed.
_LEFT_OUT = "/state/loader"


@dataclass(frozen=True)
class Entry:
    """One path: its type, and its contents if it is a file."""

    head: str
    content: bytes = b""


Tree = dict[str, Entry]


def read(roots: list[str]) -> Tree:
    """Return the contents of these directories, by path."""
    tree: Tree = {}
    for root in roots:
        for directory, names, files in os.walk(root):
            for name in [*names, *files]:
                path = f"{directory}/{name}"
                if _LEFT_OUT not in path:
                    tree[path] = _entry(path)
    return tree


def _entry(path: str) -> Entry:
    status = os.lstat(path)
    kind = stat.S_IFMT(status.st_mode)
    head = f"{_KINDS[kind]} {stat.S_IMODE(status.st_mode):04o}"
    if (status.st_uid, status.st_gid) != (0, 0):
        head += f" {status.st_uid}:{status.st_gid}"
    if kind in (stat.S_IFCHR, stat.S_IFBLK):
        head += f" {os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    if kind == stat.S_IFLNK:
        return Entry(f"link -> {os.readlink(path)}")
    if kind != stat.S_IFREG or any(part in path for part in _UNREAD):
        return Entry(head)
    with open(path, "rb") as file:
        return Entry(head, file.read())


def changes(before: Tree, after: Tree) -> str:
    """Return what was added, removed and changed between two states."""
    parts = []
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        if new is None:
            parts.append(f"-- {path}\n")
        elif old is None:
            parts.append(f"++ {path}: {new.head}\n{_shown(path, new.content)}")
        else:
            change = new.head if old.head == new.head else f"{old.head}, now {new.head}"
            difference = transcript.difference(old.content, new.content)
            if not transcript.is_text(new.content):
                difference = _shown(path, new.content)
            parts.append(f"!! {path}: {change}\n{difference}")
    return transcript.visible("".join(parts))


def _shown(path: str, content: bytes) -> str:
    if not content:
        return ""
    if loader_cache.is_cache(content):
        return loader_cache.text(content)
    if transcript.is_text(content):
        return transcript.document(content)
    return transcript.summary(content)
