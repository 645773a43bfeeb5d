# SPDX-License-Identifier: Apache-2.0
"""The contents of an ld.so.cache as text. Source: glibc, elf/dl-cache.h, struct cache_file_new."""

from __future__ import annotations

import struct

from tests.record import transcript

_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER, _ENTRY = struct.Struct("<20sIIB3xI12x"), struct.Struct("<iIIIQ")


def is_cache(content: bytes) -> bool:
    """Return whether this is a cache in the format that glibc 2.2 and newer read."""
    return _MAGIC in content[: 1 << 16]


def text(content: bytes) -> str:
    """Return the entries in their order, and the size and hash of the file."""
    start = content.index(_MAGIC)
    _, count, _, flags, extension = _HEADER.unpack_from(content, start)
    lines = [f"loader cache, old part {start}, flags {flags}, extension {extension}\n"]
    for index in range(count):
        at = start + _HEADER.size + index * _ENTRY.size
        kind, key, value, version, hwcap = _ENTRY.unpack_from(content, at)
        name, path = (_string(content, start + offset) for offset in (key, value))
        lines.append(f"{name} ({kind:#x}, {version:#x}, {hwcap:#x}) => {path}\n")
    return "".join([*lines, transcript.summary(content)])


def _string(content: bytes, offset: int) -> str:
    return content[offset : content.index(b"\0", offset)].decode("utf-8", "backslashreplace")
