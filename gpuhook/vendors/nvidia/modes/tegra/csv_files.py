# SPDX-License-Identifier: Apache-2.0
"""The CSV files that list the parts of a Tegra system for containers: `kind, path` in each line.

The vendor ships them, and sites add to them, so a malformed line is skipped with a warning.
Source: NVIDIA's container toolkit, host-files-for-container.d.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

DIRECTORY = "/etc/nvidia-container-runtime/host-files-for-container.d"
NAMES = ("devices.csv", "drivers.csv", "l4t.csv")
KINDS = ("dev", "dir", "lib", "sym")
_WHOLE = ("/", "/dev", "/proc", "/sys")  # a mount there would take the place of a container's
_MAX_SIZE = 4 << 20
_MAX_PATH = 4096
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Line:
    """One entry: its kind, one of KINDS, and its path, which may be a pattern."""

    kind: str
    path: str  # absolute, for a library maybe only a name


def read(path: str) -> tuple[list[Line], list[str]]:
    """Return (the lines of the file at `path`, a sentence for each omitted one).

    Raises OSError.
    """
    # A pipe in a tree other than the host's must not block the reader.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", path)
        return parse(file.read(_MAX_SIZE + 1), path)


def parse(content: bytes, name: str) -> tuple[list[Line], list[str]]:
    """Return (the lines of `content`, a sentence for each omitted line of the file `name`).

    Empty lines and comments (#) are ignored.
    """
    lines: list[Line] = []
    wrong = []
    if len(content) > _MAX_SIZE:
        content = content[:_MAX_SIZE].rpartition(b"\n")[0]
        wrong.append(f"{name}: only its first {_MAX_SIZE >> 20} MiB were read")
    for number, raw in enumerate(content.splitlines(), 1):
        line, reason = _line(raw)
        if reason:
            wrong.append(f"{name}, line {number}: {reason}; it is skipped")
        elif line is not None and line not in lines[-1:]:
            lines.append(line)
    return list(dict.fromkeys(lines)), _bounded(wrong, name)


def _line(raw: bytes) -> tuple[Line | None, str]:
    """Return (the line, why it is not usable)."""
    try:
        text = raw.decode("utf-8").strip()
    except UnicodeDecodeError:
        return None, "it is not UTF-8"
    if not text or text.startswith("#"):
        return None, ""
    kind, comma, path = (part.strip() for part in text.partition(","))
    reason = ""
    if not comma:
        reason = f"{_cut(text)} is not `kind, path`"
    elif kind not in KINDS:
        reason = f"{_cut(kind)} is not one of {', '.join(KINDS)}"
    elif not path:
        reason = "it has no path"
    elif not path.isprintable() or len(path) > _MAX_PATH:
        reason = "its path is too long, or has unprintable characters"
    elif path.startswith("/"):
        path = "/" + posixpath.normpath(path).lstrip("/")
    elif kind not in ("lib", "sym") or ".." in path.split("/"):
        reason = f"{_cut(path)} is not an absolute path"
    if not reason:
        reason = misplaced(kind, path)
    return (None, reason) if reason else (Line(kind, path), "")


def misplaced(kind: str, path: str) -> str:
    """Return why containers must not get a file at a path, "" if they may."""
    if kind == "dev":
        return "" if path.startswith("/dev/") else f"{_cut(path)} is not below /dev"
    if path in _WHOLE or path.startswith("/proc/"):
        return f"{_cut(path)} belongs to each container itself"
    return ""


def _cut(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _bounded(sentences: Iterable[str], name: str) -> list[str]:
    """Return the first of `sentences`, and the number of the others."""
    found = list(sentences)
    rest = len(found) - _SHOWN
    return [*found[:_SHOWN], f"{name}: {rest} more lines are skipped"] if rest > 0 else found
