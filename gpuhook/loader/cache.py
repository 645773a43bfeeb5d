# SPDX-License-Identifier: Apache-2.0
"""/etc/ld.so.cache of a container: what is in it, and the same with a driver's libraries.

HOT: a container start pays for it. So strings and entries are moved as whole blocks, and only
the names that a binary search meets are looked at. No ldconfig is executed.
"""

from __future__ import annotations

from gpuhook.errors import fault
from gpuhook.loader import cache_format
from gpuhook.loader.cache_format import ENTRY, MAX_NAME, MAX_PATH, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Union

    _Key = Union[bytes, tuple[int, ...]]

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
    remove: Iterable[tuple[bytes, bytes]] = (),
    *,
    flags: int,
) -> bytes:
    """Return `Cache(data, flags).merged(add, remove)`."""
    return Cache(data, flags).merged(add, remove)


class Cache:
    """A cache that is looked at and then merged with entries that have `flags`.

    None stands for an image without a cache. Raises GH1600, GH1601.
    """

    __slots__ = ("_flags", "_names", "_table")

    def __init__(self, data: bytes | None, flags: int) -> None:
        self._flags = flags
        self._table = cache_format.fresh() if data is None else cache_format.read(data)
        self._names = _Names(self._table, signed=flags in _SIGNED_CHAR)

    def has_directory(self, directory: bytes) -> bool:
        """Return whether an entry is in `directory`: ldconfig has searched it, by this path.

        ldconfig stores a path that is the end of another one inside that one. A directory of which
        every path is stored like that is not found.
        """
        strings, path = self._table.strings, b"\0" + directory + b"/"
        if _is_direct(strings, path[1:], 0):
            return True
        at = strings.find(path)
        while at >= 0 and not _is_direct(strings, path, at):
            at = strings.find(path, at + len(path))
        return at >= 0

    def is_empty(self) -> bool:
        """Return whether it has no entry."""
        return not self._names.count

    def paths(self, names: Iterable[bytes]) -> dict[bytes, list[bytes]]:
        """Return the paths of the entries with these flags by name; hwcaps entries are left out."""
        flags, starts, values, _, hwcaps = self._table.fields or [()] * 5
        wanted = frozenset(names)
        self._names.require(wanted)
        found: dict[bytes, list[bytes]] = {}
        for start, end in self._ranges(wanted):
            for index in range(start, end):
                name = self._table.string(starts[index], MAX_NAME)
                if name in wanted and flags[index] == self._flags and not hwcaps[index]:
                    path = self._table.string(values[index], MAX_PATH)
                    found.setdefault(name, []).append(path)
        return found

    def merged(
        self,
        add: list[tuple[bytes, bytes]],
        remove: Iterable[tuple[bytes, bytes]] = (),
        last: Iterable[tuple[bytes, bytes]] = (),
    ) -> bytes:
        """Return the cache in which each (name, path) of `add` is in front of its equals.

        Those of `last` are behind their equals. Entries of `remove` are gone, all others are kept,
        as are glibc-hwcaps and the extensions. Of equal names in `add` the first wins. To add what
        is there changes nothing. Raises GH1600.
        """
        front = dict.fromkeys(add)
        self._names.require([name for name, _ in (*add, *last)])
        behind = [pair for pair in dict.fromkeys(last) if pair not in front]
        stale = {pair for pair in remove if pair not in front}.difference(behind)
        gone = {index for same in self._indices(stale).values() for index in same}
        if not gone:
            return self._joined(list(front), behind)
        # Strings of an older driver would pile up with every upgrade, so the rest is packed.
        kept = [i for i in range(self._names.count) if i not in gone]
        return Cache(cache_format.write(_packed(self._table, kept)), self._flags).merged(
            add, last=behind
        )

    def _ranges(self, names: Iterable[bytes]) -> set[tuple[int, int]]:
        """Return the ranges of entries whose names equal one of `names`."""
        found = {(place.start, place.end) for place in map(self._names.place, names)}
        return {(start, end) for start, end in found if start < end}

    def _indices(
        self, pairs: Collection[tuple[bytes, bytes]]
    ) -> dict[tuple[bytes, bytes], list[int]]:
        """Return the entries that lead a name to a path already, for each pair that has any.

        An image may have 65,536 equal entries and as many names in its drop-in: each entry is
        looked at once, not once for every pair.
        """
        if not pairs:
            return {}
        wanted = frozenset(pairs)
        _, starts, values, _, _ = self._table.fields
        found: dict[tuple[bytes, bytes], list[int]] = {}
        for start, end in self._ranges({name for name, _ in wanted}):
            for index in range(start, end):
                # The name as well: libcmp equals lib01 and lib1.
                name = self._table.string(starts[index], MAX_NAME)
                pair = name, self._table.string(values[index], MAX_PATH)
                if pair in wanted:
                    found.setdefault(pair, []).append(index)
        return found

    def _joined(self, add: list[tuple[bytes, bytes]], last: list[tuple[bytes, bytes]]) -> bytes:
        """Return the file with `add` in front of their equals, `last` behind, each entry once."""
        table, place = self._table, self._names.place
        indices = self._indices([*add, *last])
        dropped = {index for same in indices.values() for index in same}
        base = cache_format.base_of(len(add) + len(last) + self._names.count - len(dropped))
        delta = base - table.base
        strings = _Strings(table, base, indices)
        # (index, dropped, record): what comes before the entry `index`, or takes its place.
        changes = [(index, True, b"") for index in dropped]
        # Among equal names those of `add` come before those of `last`: the sort is stable.
        placed = [(place(pair[0]), False, pair) for pair in add]
        placed += [(place(pair[0]), True, pair) for pair in last]
        placed.sort(key=lambda item: item[0].key, reverse=True)
        for where, is_last, pair in placed:
            record = strings.record(pair, self._flags)
            changes.append((where.end if is_last else where.start, False, record))
        changes.sort(key=lambda change: change[:2])
        table.entries = _spliced(_shifted(table.entries, delta), changes)
        table.strings = b"".join(strings.pieces)
        table.hwcaps = [offset + delta for offset in table.hwcaps]
        return cache_format.write(table)


def _is_direct(strings: bytes, path: bytes, at: int) -> bool:
    """Return whether the string at `at` is `path` and a name, not one of a directory below."""
    end = strings.find(b"\0", at + len(path))
    return strings.startswith(path, at) and strings.find(b"/", at + len(path), end) < 0


class _Place:
    """Where a name is among the entries: those of an equal name are [start, end)."""

    __slots__ = ("end", "key", "start")

    def __init__(self, key: _Key, start: int, end: int) -> None:
        self.key = key
        self.start = start
        self.end = end


class _Strings:
    """The strings of a table that grows; `base` is their offset in the new file."""

    __slots__ = ("_delta", "_end", "_fields", "_indices", "pieces")

    def __init__(
        self, table: Table, base: int, indices: dict[tuple[bytes, bytes], list[int]]
    ) -> None:
        self.pieces = [table.strings]
        self._end = base + len(table.strings)
        self._delta = base - table.base
        self._fields = table.fields
        self._indices = indices

    def record(self, pair: tuple[bytes, bytes], flags: int) -> bytes:
        """Return the entry of a (name, path), with the strings that it has already or with new."""
        same = self._indices.get(pair)
        if same:
            _, starts, values, _, _ = self._fields
            name, value = starts[same[0]] + self._delta, values[same[0]] + self._delta
        else:
            soname, path = pair
            text = path + b"\0" if path.endswith(soname) else path + b"\0" + soname + b"\0"
            self.pieces.append(text)
            self._end += len(text)
            name, value = self._end - len(soname) - 1, self._end - len(text)
        return ENTRY.pack(flags, name, value, 0, 0)


class _Names:
    """The names of a table in the order of _dl_cache_libcmp, each read when it is needed."""

    __slots__ = ("_keys", "_of", "_places", "_ranges", "_signed", "_starts", "_table", "count")

    def __init__(self, table: Table, *, signed: bool) -> None:
        self._signed = signed
        self._of = _key if table.strings.isascii() else self._wide()
        self._keys: dict[int, _Key] = {}
        self._places: dict[bytes, _Place] = {}
        self._ranges: dict[_Key, _Place] = {}
        self._starts = table.fields[1]
        self._table = table
        self.count = len(self._starts)

    def _wide(self) -> Callable[[bytes], tuple[int, ...]]:
        return _signed_key if self._signed else _unsigned_key

    def require(self, names: Iterable[bytes]) -> None:
        """Compare as glibc does with bytes outside of ASCII, if one of `names` has any."""
        if self._of is _key and not all(name.isascii() for name in names):
            self._of = self._wide()
            for known in (self._keys, self._places, self._ranges):
                known.clear()

    def place(self, name: bytes) -> _Place:
        """Return where `name` is, or would be."""
        place = self._places.get(name)
        if place is None:
            key = self._of(name)
            place = self._ranges.get(key)
            if place is None:
                start = self._start(key)
                place = self._ranges[key] = _Place(key, start, self._end(key, start))
            self._places[name] = place
        return place

    def key(self, index: int) -> _Key:
        """Return what orders the name of entry `index` among the others."""
        key = self._keys.get(index)
        if key is None:
            key = self._keys[index] = self._of(self._table.string(self._starts[index], MAX_NAME))
        return key

    def _start(self, key: _Key) -> int:
        """Return the index of the first entry that is not above `key`.

        Entries descend: glibc searches them in this order, and so a cache that is not sorted is
        one in which glibc finds as little as we do.
        """
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self.key(middle) > key:  # type: ignore[operator]  # all bytes, or all tuples
                low = middle + 1
            else:
                high = middle
        return low

    def _end(self, key: _Key, start: int) -> int:
        """Return the index behind the entries that equal `key`, of which `start` is the first."""
        while start < self.count and self.key(start) == key:
            start += 1
        return start


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


def _signed_key(name: bytes) -> tuple[int, ...]:
    return tuple([c - 256 if 127 < c < 256 else c for c in _unsigned_key(name)])


def _unsigned_key(name: bytes) -> tuple[int, ...]:
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
    return tuple(made)


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
