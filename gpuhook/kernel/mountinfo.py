# SPDX-License-Identifier: Apache-2.0
"""/proc/PID/mountinfo: the mounts of a mount namespace. Source: proc(5)."""

from __future__ import annotations

import os

MAX_BYTES = 16 << 20
_ESCAPED = ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\"))
_DELETED = "//deleted"
_REMOTE = ("fuse", "fuseblk", "nfs", "nfs4")
_KEPT = 4  # two views of the host, and those of one or two containers


class Mount:
    """A mount: `root` is the directory or file of its file system that is visible at `target`.

    `device` is "major:minor" of the file system, `options` are the mount's own, `features` the file
    system's (a cgroup v1's controllers); `is_deleted` means that the source was removed. What is
    mounted below a mount appears at all mounts of its peer group `shared` and at their followers,
    which have the group as `master` (mount_namespaces(7)).
    """

    __slots__ = (
        "device",
        "features",
        "fstype",
        "id",
        "is_deleted",
        "master",
        "options",
        "root",
        "shared",
        "target",
    )

    def __init__(self, line: bytes) -> None:
        fields, _, kind = line.partition(b" - ")
        words, (fstype, _, features) = fields.split(b" "), kind.split(b" ", 2)
        root = _plain(words[3])
        self.id = int(words[0])
        self.device = os.fsdecode(words[2])
        self.is_deleted = root.endswith(_DELETED)
        self.root = root[: -len(_DELETED)] if self.is_deleted else root
        self.target = _plain(words[4])
        self.options = os.fsdecode(words[5])
        self.shared = self.master = ""
        for word in words[6:]:
            name, _, group = word.partition(b":")
            if name == b"shared":
                self.shared = os.fsdecode(group)
            elif name == b"master":
                self.master = os.fsdecode(group)
        self.fstype = os.fsdecode(fstype)
        self.features = os.fsdecode(features).split(",")

    @property
    def is_remote(self) -> bool:
        """Return whether a server (FUSE, NFS) answers for the file system, and may never do so."""
        return self.fstype in _REMOTE or self.fstype.startswith("fuse.")

    def is_over(self, path: str) -> bool:
        """Return whether a walk to an absolute path enters it, links left aside."""
        return (path + "/").startswith(self.target.rstrip("/") + "/")

    def is_below(self, path: str) -> bool:
        """Return whether it is at an absolute path, or below it."""
        return (self.target + "/").startswith(path.rstrip("/") + "/")


class _Recent:
    """The files that were parsed last, newest first, and their mounts, which no caller changes.

    A command that examines one container after another reads the host's table for each of them,
    perhaps a thousand lines, and the container's own several times.
    """

    parsed: tuple[tuple[bytes, list[Mount]], ...] = ()


def parse(content: bytes) -> list[Mount]:
    """Return the mounts of a mountinfo file, in the order in which they were made.

    Malformed lines are skipped.
    """
    known = _Recent.parsed
    found = next((mounts for text, mounts in known if text == content), None)
    if found is None:
        # At newlines only: a hostile path may have other characters that splitlines() splits at.
        found = [mount for line in content.split(b"\n") if line and (mount := _mount(line))]
    others = [one for one in known if one[1] is not found]
    _Recent.parsed = ((content, found), *others[: _KEPT - 1])
    return list(found)


def find(content: bytes, number: int) -> Mount | None:
    """Return the mount with this id in a mountinfo file, None without a well-formed one.

    Only its line is parsed: a hook runs within the container's CPU limit.
    """
    _, start, rest = (b"\n" + content).partition(b"\n%d " % number)
    if not start:
        return None
    return _mount(b"%d %s" % (number, rest.partition(b"\n")[0]))


def _mount(line: bytes) -> Mount | None:
    """Return the mount of a line, None for a line that the kernel does not write."""
    try:
        return Mount(line)
    except (ValueError, IndexError):
        return None


def _plain(field: bytes) -> str:
    if b"\\" in field:
        for code, character in _ESCAPED:
            field = field.replace(code, character)
    return os.fsdecode(field)
