# SPDX-License-Identifier: Apache-2.0
"""The bytes of /etc/ld.so.cache: read into a Table with every offset checked, and written.

Read are the format glibc-ld.so.cache1.1, the same behind the header of the old format ("compat"),
and the old format alone; written is glibc-ld.so.cache1.1 alone, which every glibc since 2.2 reads.
Source: glibc sysdeps/generic/dl-cache.h and elf/cache.c.
"""

from __future__ import annotations

from _struct import Struct

from gpuhook.errors import fault

MAX_BYTES = 16 << 20
MAX_ENTRIES = 1 << 16
MAX_NAME = 255  # a SONAME is a file's name
MAX_PATH = 4095

ENTRY = Struct("<iIIIQ")  # flags, key, value, osversion, hwcap
_OLD_ENTRY = Struct("<iII")
# nlibs, len_strings, flags, extension_offset
_HEADER = Struct("<20sIIB3xI12x")
_MAGIC = b"glibc-ld.so.cache1.1"
_OLD_HEADER = 16
_OLD_MAGIC = b"ld.so-1.7.0"
_ENDIAN_UNSET, _ENDIAN_LITTLE = 0, 2

_EXTENSION = Struct("<II")  # magic, count
_EXTENSION_MAGIC = 0xEAA42174
_MAX_SECTIONS = 64
_SECTION = Struct("<IIII")  # tag, flags, offset, size
_TAG_GENERATOR, _TAG_HWCAPS = 0, 1

_HWCAP_EXTENSION = 1 << 62
_HWCAP_ISA_LEVELS = 1023


class Table:
    """A cache in memory. Offsets minus `base` are indices of `strings`."""

    __slots__ = ("base", "entries", "fields", "hwcaps", "sections", "strings")

    def __init__(self, entries: bytes, strings: bytes, base: int) -> None:
        self.entries = entries  # ENTRY after ENTRY, as in the file
        self.strings = strings
        self.base = base
        # flags, keys, values, osversions, hwcaps: a column each
        self.fields: list[tuple[int, ...]] = list(zip(*ENTRY.iter_unpack(entries))) or [()] * 5
        self.hwcaps: list[int] = []  # offsets of the glibc-hwcaps names, in priority order
        self.sections: list[tuple[int, int, bytes]] = []  # other extensions: tag, flags, data

    def string(self, offset: int, limit: int) -> bytes:
        """Return the string at `offset`; a longer one than `limit` bytes is a fault."""
        start = offset - self.base
        end = self.strings.find(b"\0", start, start + limit + 1)
        if end < 0:
            raise broken(f"a name is longer than {limit} bytes")
        return self.strings[start:end]

    def hwcaps_name(self, hwcap: int) -> bytes | None:
        """Return the glibc-hwcaps directory of an entry's `hwcap` field, if any."""
        if (hwcap >> 32) & ~_HWCAP_ISA_LEVELS != _HWCAP_EXTENSION >> 32:
            return None
        index = hwcap & 0xFFFFFFFF
        if index >= len(self.hwcaps):
            return b""
        return self.string(self.hwcaps[index], MAX_NAME)


def broken(reason: str) -> Exception:
    """Return the fault of a cache that cannot be read."""
    return fault("GH1600", reason=reason)


def fresh() -> Table:
    """Return an empty table, for a root file system that has no cache."""
    table = Table(b"", b"", 0)
    table.sections = [(_TAG_GENERATOR, 0, b"gpuhook")]
    return table


def read(data: bytes) -> Table:
    """Return the table of the cache `data`; fault GH1600 or GH1601 if it is broken or huge."""
    if len(data) > MAX_BYTES:
        raise fault("GH1601", file="/etc/ld.so.cache", size=len(data), limit=MAX_BYTES)
    start = 0
    if data.startswith(_OLD_MAGIC):
        start = _behind_old(data)
        if start < 0:
            return _read_old(data)
    if not data.startswith(_MAGIC, start):
        raise broken("it has no glibc-ld.so.cache1.1 header")
    if len(data) < start + _HEADER.size:
        raise broken("it ends within its header")
    _, count, length, flags, extension = _HEADER.unpack_from(data, start)
    if flags & 3 not in (_ENDIAN_UNSET, _ENDIAN_LITTLE):
        raise broken("it was written for a big-endian machine")
    base = _HEADER.size + _checked(count) * ENTRY.size
    end = start + base + length
    if end > len(data):
        raise broken("it ends within its strings")
    table = Table(data[start + _HEADER.size : start + base], data[start + base : end], base)
    _check(table)
    if extension:
        _read_extension(table, data, extension)
    return table


def write(table: Table) -> bytes:
    """Return the file of `table`, whose offsets are relative to the start of that file."""
    count = len(table.entries) // ENTRY.size
    extension = 0
    body = table.entries + table.strings
    if table.hwcaps or table.sections:
        body += bytes(-len(body) % 4)
        extension = _HEADER.size + len(body)
        body += _extension(table, extension)
    head = _HEADER.pack(_MAGIC, count, len(table.strings), _ENDIAN_LITTLE, extension)
    return head + body


def base_of(count: int) -> int:
    """Return the offset of the first string in a file of `count` entries."""
    return _HEADER.size + count * ENTRY.size


def _checked(count: int) -> int:
    if count > MAX_ENTRIES:
        raise broken(f"it claims {count} entries, more than {MAX_ENTRIES}")
    return count


def _behind_old(data: bytes) -> int:
    """Return where the new header begins after the old format's entries, -1 without one."""
    if len(data) < _OLD_HEADER:
        raise broken("it ends within its header")
    end = _OLD_HEADER + _checked(int.from_bytes(data[12:16], "little")) * _OLD_ENTRY.size
    # ALIGN_CACHE: to 8 for a 64-bit ldconfig, to 4 on i386.
    for start in (end + -end % 8, end):
        if data.startswith(_MAGIC, start):
            return start
    return -1


def _read_old(data: bytes) -> Table:
    count = int.from_bytes(data[12:16], "little")
    end = _OLD_HEADER + count * _OLD_ENTRY.size
    if end > len(data):
        raise broken("it ends within its entries")
    # Here offsets are relative to the strings.
    entries = b"".join(
        ENTRY.pack(flags, key, value, 0, 0)
        for flags, key, value in _OLD_ENTRY.iter_unpack(data[_OLD_HEADER:end])
    )
    table = Table(entries, data[end:], 0)
    _check(table)
    return table


def _check(table: Table) -> None:
    """Raise the fault of a table with an offset outside its strings."""
    _, keys, values, _, _ = table.fields
    if not keys:
        return
    low, high = table.base, table.base + len(table.strings)
    if min(keys) < low or min(values) < low or max(keys) >= high or max(values) >= high:
        raise broken("an entry points outside its strings")
    if not table.strings.endswith(b"\0"):
        raise broken("its last string does not end")


def _read_extension(table: Table, data: bytes, at: int) -> None:
    # Relative to the file's start, also after an old header.
    if at % 4 or at + _EXTENSION.size > len(data):
        raise broken("its extension is outside the file")
    magic, count = _EXTENSION.unpack_from(data, at)
    at += _EXTENSION.size
    if magic != _EXTENSION_MAGIC or count > _MAX_SECTIONS or at + count * 16 > len(data):
        raise broken("its extension has no valid header")
    total = 0
    for tag, flags, offset, size in _SECTION.iter_unpack(data[at : at + count * _SECTION.size]):
        total += size
        # Sections that overlap could make a small file a huge one.
        if offset + size > len(data) or total > len(data):
            raise broken("a section of its extension is outside the file")
        content = data[offset : offset + size]
        if tag == _TAG_HWCAPS:
            _read_hwcaps(table, content)
        else:
            table.sections.append((tag, flags, content))


def _read_hwcaps(table: Table, content: bytes) -> None:
    if len(content) % 4 or len(content) > 4096 or table.hwcaps:
        raise broken("its list of glibc-hwcaps directories is not valid")
    table.hwcaps = [name for (name,) in Struct("<I").iter_unpack(content)]
    if not all(table.base <= at < table.base + len(table.strings) for at in table.hwcaps):
        raise broken("a glibc-hwcaps name is outside its strings")
    if table.hwcaps and not table.strings.endswith(b"\0"):
        raise broken("its last string does not end")


def _extension(table: Table, at: int) -> bytes:
    sections = list(table.sections)
    if table.hwcaps:
        names = b"".join(offset.to_bytes(4, "little") for offset in table.hwcaps)
        sections.insert(0, (_TAG_HWCAPS, 0, names))
    head = [_EXTENSION.pack(_EXTENSION_MAGIC, len(sections))]
    body = b""
    at += _EXTENSION.size + len(sections) * _SECTION.size
    for tag, flags, content in sections:
        body += bytes(-len(body) % 4)
        head.append(_SECTION.pack(tag, flags, at + len(body), len(content)))
        body += content
    return b"".join(head) + body
