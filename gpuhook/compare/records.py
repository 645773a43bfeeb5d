# SPDX-License-Identifier: Apache-2.0
"""Comparisons collected over days: a line of JSON for each container that was started.

A line is appended whole under a lock, so that several writers and a crash leave no more than one
line that cannot be read, which is passed over. A container is noted once for each life, however
many write: under the lock, each reads what the others have added.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from contextlib import contextmanager
from datetime import datetime, timezone

from gpuhook.errors import fault
from gpuhook.host.hot import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

SCHEMA = "gpuhook/compare-record/v1"
_MAX_LINE = 4 << 20
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def line(compared: dict[str, Any], started: int | None) -> dict[str, Any]:
    """Return the record of a comparison's document; `started` says which life it is of.

    It is in clock ticks since boot. Of the items only the differences are kept.
    """
    wrong = [one for one in compared["items"] if one["verdict"] != "same" and not one["reason"]]
    kept = ("container", "pod", "namespace", "name", "givenBy", "counts")
    return {
        "schema": SCHEMA,
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "boot": _boot(),
        "started": started,
        **{key: compared[key] for key in kept},
        "items": wrong,
    }


def life(record: dict[str, Any]) -> tuple[str, str, int | None]:
    """Return what tells one start of a container from all others."""
    return str(record.get("container")), str(record.get("boot")), record.get("started")


def life_of(identity: str, started: int | None) -> tuple[str, str, int | None]:
    """Return the same of a container that runs now."""
    return identity, _boot(), started


class Record:
    """A file of records that is added to, and the lives that are in it."""

    def __init__(self, path: str) -> None:
        """Read what is there; raises OSError, and GH1940 for a file of something else."""
        self.path = path
        with self._opened():
            found, _ = read(path)
        self.lives = {life(record) for record in found}
        self._read = 0  # bytes of the file of which the lives are known

    def add(self, record: dict[str, Any]) -> bool:
        """Append a record, and return whether it was not there yet.

        Raises OSError, and then the file is as it was.
        """
        data = json.dumps(record, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
        with self._opened() as fd:
            fcntl.flock(fd, fcntl.LOCK_EX)
            self._catch_up()
            if life(record) in self.lives:
                return False
            size = os.fstat(fd).st_size
            # What a writer that was killed has left is a line of its own.
            torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
            try:
                files.write_whole(fd, (b"\n" if torn else b"") + data)
            except OSError as error:
                os.ftruncate(fd, size)
                error.filename = self.path
                raise
            self._read = os.fstat(fd).st_size
        self.lives.add(life(record))
        return True

    def _catch_up(self) -> None:
        """Learn the lives that others have added."""
        with open(self.path, "rb") as file:
            is_shorter = os.fstat(file.fileno()).st_size < self._read  # somebody began it anew
            file.seek(0 if is_shorter else self._read)
            while text := file.readline(_MAX_LINE):
                found = _parsed(text)
                if found is not None:
                    self.lives.add(life(found))
            self._read = file.tell()

    @contextmanager
    def _opened(self) -> Iterator[int]:
        fd = os.open(self.path, _FLAGS, 0o644)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise fault("GH1940", path=self.path, reason="it is no regular file")
            if found.st_uid not in (0, os.geteuid()):
                raise fault("GH1940", path=self.path, reason="it belongs to somebody else")
            yield fd
        finally:
            os.close(fd)


def read(path: str) -> tuple[list[dict[str, Any]], int]:
    """Return the records of a file, and how many of its lines are none.

    Raises OSError, and GH1940 for a file in which no line is one.
    """
    found, broken = [], 0
    with open(path, "rb", opener=_readable) as file:
        while text := file.readline(_MAX_LINE):
            record = _parsed(text)
            if record is not None:
                found.append(record)
            elif text.strip():
                broken += 1
    if broken and not found:
        raise fault("GH1940", path=path, reason="none of its lines is a record")
    return found, broken


def _readable(path: str, flags: int) -> int:
    """Return a descriptor of a file; GH1940 for anything else, which may keep us waiting."""
    fd = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise fault("GH1940", path=path, reason="it is no regular file")
    return fd


def _parsed(text: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        return None
    counts, items = record.get("counts"), record.get("items")
    sound = isinstance(counts, dict) and isinstance(counts.get("differences"), int)
    sound = sound and isinstance(items, list) and all(isinstance(one, dict) for one in items)
    sound = sound and isinstance(record.get("started"), (int, type(None)))
    return record if sound and isinstance(record.get("at"), str) else None


def _boot() -> str:
    """Return the id of this boot of the machine, "" where nobody tells it."""
    try:
        return files.read("/proc/sys/kernel/random/boot_id", 64).decode("ascii").strip()
    except (OSError, ValueError):
        return ""
