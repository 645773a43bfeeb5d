# SPDX-License-Identifier: Apache-2.0
"""A BoltDB in memory: buckets of keys with values, and of buckets.

Source: go.etcd.io/bbolt, internal/common (page.go, meta.go, bucket.go, inode.go). Its writer does
not change the pages below the newest of the two meta pages. A page with another number was written
while the file was read.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGIC, _VERSION = 0xED0CDAED, 2
_BRANCH, _LEAF = 0x01, 0x02
_PAGE = struct.Struct("<QHHI")  # number, flags, count, overflow
_META = struct.Struct("<IIIIQQQQQ")  # magic, version, page size, flags, root, ..., transaction
_ELEMENT = struct.Struct("<IIII")  # of a leaf: flags, position, sizes of key and value
_BRANCH_ELEMENT = struct.Struct("<IIQ")  # position, size of the key, page
_BUCKET = struct.Struct("<QQ")  # page, sequence
_IS_BUCKET = 1


class BrokenBoltError(ValueError):
    """The content is not a BoltDB, or was written while it was read."""


@dataclass(frozen=True)
class Bucket:
    """A bucket; `page` is 0 for one whose page is in the value `inline`."""

    content: bytes
    page_size: int
    page: int
    inline: bytes = b""

    def entries(self) -> Iterator[tuple[bytes, bytes | Bucket]]:
        """Yield the keys with their values or buckets. Raises BrokenBoltError."""
        try:
            yield from self._entries(self.page, set())
        except (struct.error, RecursionError) as error:
            raise BrokenBoltError(str(error)) from error

    def bucket(self, *keys: bytes) -> Bucket | None:
        """Return the bucket of a key in the bucket of the key before, None without one."""
        found: Bucket | None = self
        for key in keys:
            inner = dict(found.entries()).get(key) if found else None
            found = inner if isinstance(inner, Bucket) else None
        return found

    def _entries(self, number: int, seen: set[int]) -> Iterator[tuple[bytes, bytes | Bucket]]:
        data = memoryview(self.inline if number == 0 else self.content)
        data = data[number * self.page_size :]
        page, flags, count, _ = _PAGE.unpack_from(data)
        if page != number or number in seen:
            raise BrokenBoltError(f"page {number}")
        seen.add(number)
        for at in range(_PAGE.size, _PAGE.size + count * _ELEMENT.size, _ELEMENT.size):
            if flags == _BRANCH:
                _, _, below = _BRANCH_ELEMENT.unpack_from(data, at)
                yield from self._entries(below or -1, seen)
            elif flags == _LEAF:
                yield self._element(data, at)

    def _element(self, data: memoryview, at: int) -> tuple[bytes, bytes | Bucket]:
        kind, position, key_size, size = _ELEMENT.unpack_from(data, at)
        begin = at + position
        key, value = bytes(data[begin : begin + key_size]), data[begin + key_size :][:size]
        if kind != _IS_BUCKET:
            return key, bytes(value)
        page, _ = _BUCKET.unpack_from(value)
        inline = b"" if page else bytes(value[_BUCKET.size :])
        return key, Bucket(self.content, self.page_size, page, inline)


def root(content: bytes) -> Bucket:
    """Return the bucket of all buckets. Raises BrokenBoltError."""
    found = [one for one in (_meta(content, 0), _meta(content, _page_size(content))) if one]
    if not found:
        raise BrokenBoltError("it has no meta page")
    _, page_size, page = max(found)
    return Bucket(content, page_size, page)


def _page_size(content: bytes) -> int:
    meta = _meta(content, 0)
    return meta[1] if meta else 4096


def _meta(content: bytes, at: int) -> tuple[int, int, int] | None:
    """Return (transaction, page size, page of the root) of a meta page, None if it is not one."""
    try:
        found = _META.unpack_from(content, at + _PAGE.size)
    except struct.error:
        return None
    magic, version, page_size, _, page, *_, transaction = found
    if (magic, version) != (_MAGIC, _VERSION) or not page or page_size < _PAGE.size:
        return None
    return transaction, page_size, page
