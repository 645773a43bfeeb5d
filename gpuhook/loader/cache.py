# SPDX-License-Identifier: Apache-2.0
"""/etc/ld.so.cache of a container: what is in it, and the same with a driver's libraries.

HOT: a container start pays for it. So strings and entries are moved as whole blocks, and only
the names that a binary search meets are looked at. No ldconfig is executed.
"""

from __future__ import annotations

from gpuhook.errors import fault
from gpuhook.loader import cache_format
from gpuhook.loader.cache_format import ENTRY, MAX_NAME, MAX_PATH, Table

# FLAG_*_LIB* | FLAG_ELF_LIBC6, from glibc sysdeps/generic/ldconfig.h
_FLAGS = {
    "aarch64": 0x0A03,
    "arm64": 0x0A03,
    "i386": 0x0003,
    "i686": 0x0003,
    "ppc64le": 0x0503,
    "s390x": 0x0403,
    "x86_64": 0x0303,
}
_SIGNED_CHAR = (0x0003, 0x0303, 0x0803)  # i386, x86-64, x32

_DIGITS = b"0123456789"
_ONE, _MANY = 0xD0, 0xE0
_DIGITS_LAST = bytes(_ONE + c - 48 if c in _DIGITS else c for c in range(256))
_NUMBER = _DIGITS.translate(_DIGITS_LAST)
_SHAPE = bytes(48 if c in _DIGITS else 1 for c in range(256))


class Entry:
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


def flags_for(machine: str) -> int:
    """Return the flags of cache entries of `machine` (uname's name); fault GH1602 if unknown."""
    try:
        return _FLAGS[machine]
    except KeyError:
        raise fault("GH1602", machine=machine, known=", ".join(sorted(_FLAGS))) from None


def parse(data: bytes) -> list[Entry]:
    """Return the entries of the cache `data` in their order; faults GH1600, GH1601."""
    table = cache_format.read(data)
    return [
        Entry(
            table.string(key, MAX_NAME),
            table.string(value, MAX_PATH),
            flags,
            hwcap,
            table.hwcaps_name(hwcap),
        )
        for flags, key, value, _, hwcap in zip(*table.fields)
    ]


def merged(
    data: bytes | None,
    add: list[tuple[bytes, bytes]],
    remove: list[tuple[bytes, bytes]] | None = None,
    *,
    flags: int,
) -> bytes:
    """Return the cache `data` in which every (soname, path) of `add` is found first.

    Entries of `remove` are gone, all others are kept, as are glibc-hwcaps and the extensions.
    Among equal sonames in `add` the first wins. None stands for an image without a cache. Adding
    again what is there changes nothing. Faults GH1600, GH1601.
    """
    table = cache_format.fresh() if data is None else cache_format.read(data)
    names = _Names(table, add, signed=flags in _SIGNED_CHAR)
    wanted = dict.fromkeys(add)
    stale = {
        i
        for soname, path in remove or ()
        if (soname, path) not in wanted
        for i in _places(table, names, soname, path)[1]
    }
    if stale:
        # Strings of an older driver would pile up with every upgrade, so what is left is packed.
        kept = [i for i in range(names.count) if i not in stale]
        return merged(cache_format.write(_packed(table, kept)), add, flags=flags)
    return _joined(table, names, list(wanted), flags)


class _Names:
    """The names of a table in the order of _dl_cache_libcmp, each looked at when asked for."""

    __slots__ = ("_keys", "_of", "_starts", "_table", "count")

    def __init__(self, table: Table, add: list[tuple[bytes, bytes]], *, signed: bool) -> None:
        plain = table.strings.isascii() and all(soname.isascii() for soname, _ in add)
        self._of = _key if plain else _signed_key if signed else _unsigned_key
        self._keys: dict[int, bytes | list[int]] = {}
        self._starts = table.fields[1]
        self._table = table
        self.count = len(self._starts)

    def key(self, index: int) -> bytes | list[int]:
        """Return what orders the name of entry `index` among the others."""
        key = self._keys.get(index)
        if key is None:
            key = self._keys[index] = self._of(self._table.string(self._starts[index], MAX_NAME))
        return key

    def find(self, name: bytes) -> tuple[bytes | list[int], int]:
        """Return the key of `name`, and the index of the first entry that isn't above it.

        Entries descend: glibc searches them in this order, and so a cache that is not sorted is
        one in which glibc finds as little as we do.
        """
        key = self._of(name)
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self.key(middle) > key:  # type: ignore[operator]  # all bytes, or all lists
                low = middle + 1
            else:
                high = middle
        return key, low


def _places(
    table: Table, names: _Names, soname: bytes, path: bytes
) -> tuple[tuple[bytes | list[int], int], list[int]]:
    """Return where `soname` is sorted in, and the entries that lead it to `path` already."""
    found = names.find(soname)
    key, at = found
    same = []
    _, starts, values, _, _ = table.fields
    while at < names.count and names.key(at) == key:
        # The name as well: libcmp equals lib01 and lib1.
        pair = table.string(starts[at], MAX_NAME), table.string(values[at], MAX_PATH)
        if pair == (soname, path):
            same.append(at)
        at += 1
    return found, same


def _joined(table: Table, names: _Names, add: list[tuple[bytes, bytes]], flags: int) -> bytes:
    """Return the file of `table` with `add` in front of their equals, each entry once."""
    placed = []
    dropped: set[int] = set()
    for soname, path in add:
        (key, at), same = _places(table, names, soname, path)
        dropped.update(same)
        placed.append((key, at, soname, path, same))
    placed.sort(key=lambda item: item[0], reverse=True)
    base = cache_format.base_of(len(add) + names.count - len(dropped))
    delta = base - table.base
    _, starts, values, _, _ = table.fields
    strings = [table.strings]
    end = base + len(table.strings)
    # (index, dropped, record): what comes before the entry `index`, or takes its place.
    changes: list[tuple[int, bool, bytes]] = [(i, True, b"") for i in dropped]
    for _, at, soname, path, same in placed:
        if same:
            name, value = starts[same[0]] + delta, values[same[0]] + delta
        else:
            text = path + b"\0" if path.endswith(soname) else path + b"\0" + soname + b"\0"
            strings.append(text)
            end += len(text)
            name, value = end - len(soname) - 1, end - len(text)
        changes.append((at, False, ENTRY.pack(flags, name, value, 0, 0)))
    changes.sort(key=lambda change: change[:2])
    table.entries = _spliced(_shifted(table.entries, delta), changes)
    table.strings = b"".join(strings)
    table.hwcaps = [offset + delta for offset in table.hwcaps]
    return cache_format.write(table)


def _spliced(entries: bytes, changes: list[tuple[int, bool, bytes]]) -> bytes:
    pieces: list[bytes] = []
    at = 0
    for index, dropped, record in changes:
        pieces += (entries[at : index * ENTRY.size], record)
        at = (index + dropped) * ENTRY.size
    pieces.append(entries[at:])
    return b"".join(pieces)


def _key(name: bytes) -> bytes:
    """Return bytes that sort as libcmp sorts the ASCII `name`.

    Numbers compare as numbers and sort behind any other character: one digit is a byte above
    the letters, more are a still higher byte, their count, and the digits.
    """
    text = name.translate(_DIGITS_LAST)
    shape = name.translate(_SHAPE)
    at = 0
    made: list[bytes] = []
    while (start := shape.find(b"00", at)) >= 0:
        rest = text[start:].lstrip(_NUMBER)
        number = text[start : len(text) - len(rest)].lstrip(_NUMBER[:1]) or _NUMBER[:1]
        made += (text[at:start], bytes((_MANY, len(number))) if len(number) > 1 else b"", number)
        at = len(text) - len(rest)
    return b"".join(made) + text[at:] if at else text


def _signed_key(name: bytes) -> list[int]:
    return [c - 256 if 127 < c < 256 else c for c in _unsigned_key(name)]


def _unsigned_key(name: bytes) -> list[int]:
    """Return what orders any `name`, where char is unsigned; a number n counts as 256 + n."""
    made: list[int] = []
    number = -1
    for c in name + b"\0":
        if 48 <= c <= 57:
            number = max(number, 0) * 10 + c - 48
            continue
        if number >= 0:
            made.append(256 + number)
            number = -1
        made.append(c)
    return made


def _shifted(entries: bytes, delta: int) -> bytes:
    """Return `entries` with `delta` added to each key and value.

    All of them at once, as one long number: no sum leaves its 32 bits, since the result is an
    offset again. It is ten times as quick as packing them one by one.
    """
    if not delta or not entries:
        return entries
    count = len(entries) // ENTRY.size
    pattern = int.from_bytes(ENTRY.pack(0, abs(delta), abs(delta), 0, 0) * count, "little")
    whole = int.from_bytes(entries, "little") + (pattern if delta > 0 else -pattern)
    return whole.to_bytes(len(entries), "little")


def _packed(table: Table, kept: list[int]) -> Table:
    """Return `table` with the entries `kept` and no other strings than they need."""
    base = cache_format.base_of(len(kept))
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
