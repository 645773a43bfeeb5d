# SPDX-License-Identifier: Apache-2.0
"""A link or a file in a root file system as it is or is to be, and as the ledger notes it.

A note is JSON: [] for nothing, ["link", target], ["file", what], where what is the checksum of what
was made and the content of what was there before, in base 64; ["large"] for a file that was not
kept. Entries of the ledger must stay small, whatever an image holds.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64, crc32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_KEPT = 65536  # bytes of a file that was written anew: the loader's cache and what it reads
MOST_UNDER_LINK = 4096  # of a file that a link takes the place of: there may be many


class FileChange:
    """A path and what is there, or is to be: a link to `target`, a file that holds `data`.

    Where both are None, nothing is there, or a file that `is_large`, which is not read.
    """

    __slots__ = ("data", "is_large", "path", "target")

    def __init__(
        self,
        path: str,
        target: str | None = None,
        data: bytes | None = None,
        *,
        is_large: bool = False,
    ) -> None:
        self.path = path
        self.target = target
        self.data = data
        self.is_large = is_large

    @property
    def is_something(self) -> bool:
        """Return whether anything is there."""
        return self.target is not None or self.data is not None or self.is_large

    def describe(self) -> str:
        """Return it in words."""
        if self.target is not None:
            return f"link {self.path} -> {self.target}"
        return f"file {self.path} ({len(self.data or b'')} bytes)"

    def summary(self) -> list[Any]:
        """Return the note by which it is known again."""
        if self.target is not None:
            return ["link", self.target]
        if self.data is not None:
            return ["file", crc32(self.data)]
        return ["large"] if self.is_large else []

    def _whole(self) -> list[Any]:
        """Return the note from which it can be made again."""
        if self.data is None:
            return self.summary()
        if len(self.data) > MOST_KEPT:
            return ["large"]
        return ["file", b2a_base64(self.data, newline=False).decode()]

    def noted(self, before: FileChange) -> list[Any]:
        """Return [path, what is made, what was there before] for the ledger."""
        return [self.path, self.summary(), before._whole()]


def of_note(path: str, note: list[Any]) -> FileChange | None:
    """Return what was there before, by its note; None if it was not kept."""
    kind = note[0] if note else ""
    if kind == "link":
        return FileChange(path, target=str(note[1]))
    if kind == "file":
        return FileChange(path, data=a2b_base64(note[1]))
    return None if note else FileChange(path)
