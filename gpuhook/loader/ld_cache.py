# SPDX-License-Identifier: Apache-2.0
"""/etc/ld.so.cache of a container: its entries, and the same cache with a driver's libraries.

This is part of a container's start. So strings and entries are moved as whole blocks, and only the
names that a binary search meets are read. No ldconfig is executed.
"""

from __future__ import annotations

from gpuhook.errors import fault
from gpuhook.loader import ld_cache_format
from gpuhook.loader.ld_cache_format import ENTRY, MAX_NAME, MAX_PATH, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
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

_MOST_EQUAL = 256  # directories with a library of one name
_DIGITS = b"0123456789"
_ONE, _MANY = 0xD0, 0xE0
_DIGITS_LAST = bytes(_ONE + c - 48 if c in _DIGITS else c for c in range(256))
_NUMBER = _DIGITS.translate(_DIGITS_LAST)
_SHAPE = bytes(48 if c in _DIGITS else 1 for c in range(256))


def flags_for(machine: str) -> int:
    """Return the flags of cache entries of `machine` (uname's name); fault GH1602 if unknown."""
    try:
        return _FLAGS[machine]
    except KeyError:
        raise fault("GH1602", machine=machine, known=", ".join(sorted(_FLAGS))) from None


def merged(
    data: bytes | None,
    add: list[tuple[bytes, bytes]],
    remove: Iterable[tuple[bytes, bytes]] = (),
    *,
    flags: int,
    was_merged: bool = False,
) -> bytes:
    """Return `Cache(data, flags).merged(add, remove)`."""
    return Cache(data, flags, was_merged=was_merged).merged(add, remove)


class Cache:
    """A cache that is read and then merged with entries that have `flags`.

    None is an image without a cache; with `was_merged`, it may have entries of an earlier merge.
    Raises GH1600, GH1601.
    """

    __slots__ = ("_flags", "_names", "_table", "_was_merged")

    def __init__(self, data: bytes | None, flags: int, *, was_merged: bool = False) -> None:
        self._flags = flags
        self._was_merged = was_merged
        self._table = ld_cache_format.fresh() if data is None else ld_cache_format.read(data)
        self._names = _Names(self._table, signed=flags in _SIGNED_CHAR)

    def has_directory(self, directory: bytes) -> bool:
        """Return whether an entry is in `directory`: ldconfig has searched it, by this path.

        ldconfig stores a path that is the end of another one inside that one. A directory whose
        paths are all stored like that is not found.
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
        """Return the paths of the entries with these flags by name; hwcaps entries are skipped."""
        wanted = frozenset(names)
        self._names.require(wanted)
        ranges = self._names.ranges(wanted)
        found: dict[bytes, list[bytes]] = {}
        if not ranges:
            return found
        flags, starts, values, _, hwcaps = self._table.fields
        for index in ranges:
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
        """Return the cache with each (name, path) of `add` before entries of an equal name.

        Those of `last` are after them. Entries of `remove` are gone, all others are kept, as are
        glibc-hwcaps and the extensions. Of equal names in `add` the first wins. Adding existing
        entries changes nothing. Raises GH1600.
        """
        front = dict.fromkeys(add)
        self._names.require([name for name, _ in (*add, *last)])
        behind = [pair for pair in dict.fromkeys(last) if pair not in front]
        stale = frozenset(remove).difference(front, behind)
        gone = {index for same in self._indices(stale).values() for index in same} if stale else ()
        if not gone:
            return self._joined(list(front), behind)
        # Strings of an older driver would pile up with every upgrade, so the rest is packed.
        kept = [i for i in range(self._names.count) if i not in gone]
        from gpuhook.loader import ld_cache_entries  # seldom, at a restart with another driver

        packed = ld_cache_format.write(ld_cache_entries.packed(self._table, kept))
        return Cache(packed, self._flags, was_merged=True).merged(add, last=behind)

    def _indices(
        self, pairs: frozenset[tuple[bytes, bytes]], *, is_sorted: bool = False
    ) -> dict[tuple[bytes, bytes], list[int]]:
        """Return the existing entries for each pair of a name and a path that has any.

        With `is_sorted`, only those that a binary search finds, in less time. An image may have
        65,536 equal entries and as many names in its drop-in: each entry is read once, not once for
        every pair.
        """
        found: dict[tuple[bytes, bytes], list[int]] = {}
        _, starts, values, _, _ = self._table.fields
        names = {name for name, _ in pairs}
        for index in self._names.ranges(names) if is_sorted else range(self._names.count):
            # The name as well: libcmp equals lib01 and lib1.
            name = self._table.string(starts[index], MAX_NAME)
            if name in names:
                pair = name, self._table.string(values[index], MAX_PATH)
                if pair in pairs:
                    found.setdefault(pair, []).append(index)
        return found

    def _joined(self, add: list[tuple[bytes, bytes]], last: list[tuple[bytes, bytes]]) -> bytes:
        """Return the file with `add` before equal names, `last` after them, each entry once."""
        table = self._table
        pairs = frozenset(add).union(last)
        known = self._indices(pairs, is_sorted=True)
        if self._was_merged:
            # An image's cache may not be sorted: what a search does not find stays where it is.
            every = self._indices(pairs)
            hidden = {pair for pair, same in every.items() if same != known.get(pair)}
            add, last = ([pair for pair in some if pair not in hidden] for some in (add, last))
            known = {pair: same for pair, same in known.items() if pair not in hidden}
        dropped = {index for same in known.values() for index in same}
        # Among equal names those of `add` come before those of `last`: the sort is stable.
        placed = [(*self._names.place(pair[0]), False, pair) for pair in add]
        placed += [(*self._names.place(pair[0]), True, pair) for pair in last]
        placed.sort(key=_by_key, reverse=True)
        end = base = ld_cache_format.base_of(len(placed) + self._names.count - len(dropped))
        delta = base - table.base
        end += len(table.strings)
        strings = [table.strings]
        _, starts, values, _, _ = table.fields
        # (index, dropped, record): what comes before the entry `index`, or takes its place.
        changes = [(index, True, b"") for index in dropped]
        for _, start, stop, is_last, pair in placed:
            if pair in known:
                same = known[pair][0]
                name, value = starts[same] + delta, values[same] + delta
            else:
                soname, path = pair
                text = path + b"\0" if path.endswith(soname) else path + b"\0" + soname + b"\0"
                strings.append(text)
                end += len(text)
                name, value = end - len(soname) - 1, end - len(text)
            record = ENTRY.pack(self._flags, name, value, 0, 0)
            changes.append((stop if is_last else start, False, record))
        changes.sort(key=lambda change: change[:2])
        table.entries = _spliced(_shifted(table.entries, delta), changes)
        table.strings = b"".join(strings)
        table.hwcaps = [offset + delta for offset in table.hwcaps]
        return ld_cache_format.write(table)


def _by_key(placed: tuple[_Key, int, int, bool, tuple[bytes, bytes]]) -> _Key:
    return placed[0]


def _is_direct(strings: bytes, path: bytes, at: int) -> bool:
    """Return whether the string at `at` is `path` and a name, not one of a directory below."""
    end = strings.find(b"\0", at + len(path))
    return strings.startswith(path, at) and strings.find(b"/", at + len(path), end) < 0


class _Names:
    """The names of a table in the order of _dl_cache_libcmp, each read when it is needed."""

    __slots__ = ("_by_key", "_by_name", "_keys", "_of", "_signed", "_starts", "_table", "count")

    def __init__(self, table: Table, *, signed: bool) -> None:
        self._signed = signed
        self._of = _key if table.strings.isascii() else self._wide()
        self._keys: dict[int, _Key] = {}
        self._by_name: dict[bytes, tuple[_Key, int, int]] = {}
        self._by_key: dict[_Key, tuple[_Key, int, int]] = {}
        self._starts = table.fields[1]
        self._table = table
        self.count = len(self._starts)

    def _wide(self) -> Callable[[bytes], tuple[int, ...]]:
        return _signed_key if self._signed else _unsigned_key

    def require(self, names: Iterable[bytes]) -> None:
        """Compare as glibc does with bytes outside of ASCII, if one of `names` has any."""
        if self._of is _key and not all(name.isascii() for name in names):
            self._of = self._wide()
            for known in (self._keys, self._by_name, self._by_key):
                known.clear()

    def place(self, name: bytes) -> tuple[_Key, int, int]:
        """Return (key, start, end): the entries of names that equal `name` are [start, end)."""
        place = self._by_name.get(name)
        if place is None:
            key = self._of(name)
            place = self._by_key.get(key)
            if place is None:
                start = self._start(key)
                place = self._by_key[key] = key, start, self._end(key, start)
            self._by_name[name] = place
        return place

    def ranges(self, names: Iterable[bytes]) -> list[int]:
        """Return the entries whose names equal one of `names`, each once."""
        found = {self.place(name)[1:] for name in names}
        return [index for start, end in found for index in range(start, end)]

    def key(self, index: int) -> _Key:
        """Return the sort key of the name of entry `index`."""
        key = self._keys.get(index)
        if key is None:
            key = self._keys[index] = self._of(self._table.string(self._starts[index], MAX_NAME))
        return key

    def _start(self, key: _Key) -> int:
        """Return the index of the first entry that is not above `key`.

        Entries descend: glibc searches them in this order, so in an unsorted cache glibc finds as
        little as this search.
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
        """Return the index after the entries that equal `key`, of which `start` is the first.

        GH1600 for more than _MOST_EQUAL: an image can make a start slow with them.
        """
        end = start
        while end < self.count and self.key(end) == key:
            end += 1
            if end - start > _MOST_EQUAL:
                raise ld_cache_format.broken(f"more than {_MOST_EQUAL} entries have one name")
        return end


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

    Numbers compare as numbers and sort after any other character: one digit is a byte above the
    letters, more are a still higher byte, their number, and the digits.
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
    """Return the sort key of any `name` for an unsigned char; a number n sorts as 256 + n."""
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

    All of them at once, as one long number: no sum exceeds its 32 bits, since the result is an
    offset again. It is ten times as fast as packing them one by one.
    """
    if not delta or not entries:
        return entries
    count = len(entries) // ENTRY.size
    pattern = int.from_bytes(ENTRY.pack(0, abs(delta), abs(delta), 0, 0) * count, "little")
    whole = int.from_bytes(entries, "little") + (pattern if delta > 0 else -pattern)
    return whole.to_bytes(len(entries), "little")
