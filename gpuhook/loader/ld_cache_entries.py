# SPDX-License-Identifier: Apache-2.0
"""The entries of /etc/ld.so.cache one by one, as `ldconfig -p` lists them.

A container start needs it only after a change of the driver.
"""

from __future__ import annotations

from gpuhook.loader import ld_cache_format
from gpuhook.loader.ld_cache_format import ENTRY, MAX_NAME, MAX_PATH, Table


class CacheEntry:
    """One line of `ldconfig -p`."""

    __slots__ = ("flags", "hwcap", "hwcaps", "path", "soname")

    def __init__(
        self, soname: bytes, path: bytes, flags: int, hwcap: int, hwcaps: bytes | None
    ) -> None:
        self.soname = soname
        self.path = path
        self.flags = flags  # glibc's FLAG_*: 0x0303 is an x86-64 library
        self.hwcap = hwcap
        self.hwcaps = hwcaps  # glibc-hwcaps directory, b"x86-64-v3", None for the usual entry


def parse(data: bytes) -> list[CacheEntry]:
    """Return the entries of the cache `data` in their order; faults GH1600, GH1601."""
    table = ld_cache_format.read(data)
    return [
        CacheEntry(
            table.string(key, MAX_NAME),
            table.string(value, MAX_PATH),
            flags,
            hwcap,
            table.hwcaps_name(hwcap),
        )
        for flags, key, value, _, hwcap in zip(*table.fields)
    ]


def packed(table: Table, kept: list[int]) -> Table:
    """Return `table` with the entries `kept` and no other strings than they need."""
    base = ld_cache_format.base_of(len(kept))
    strings = bytearray()
    where: dict[bytes, int] = {}

    def place(text: bytes) -> int:
        if text not in where:
            where[text] = base + len(strings)
            strings.extend(text + b"\0")
        return where[text]

    entries = []
    rows = list(zip(*table.fields))
    for flags, key, value, version, hwcap in (rows[i] for i in kept):
        name, path = table.string(key, MAX_NAME), table.string(value, MAX_PATH)
        at = place(path)
        at_name = at + len(path) - len(name) if path.endswith(name) else place(name)
        entries.append(ENTRY.pack(flags, at_name, at, version, hwcap))
    hwcaps = [place(table.string(at, MAX_NAME)) for at in table.hwcaps]
    packed = Table(b"".join(entries), bytes(strings), base)
    packed.hwcaps, packed.sections = hwcaps, table.sections
    return packed
