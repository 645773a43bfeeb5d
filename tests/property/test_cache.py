# SPDX-License-Identifier: Apache-2.0
"""Properties of the merged loader cache."""

from functools import cmp_to_key, partial
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gpuhook.loader import ld_cache, ld_cache_entries

ascii_names = st.text("ab19.0-_A", min_size=1, max_size=12).map(str.encode)
any_names = st.binary(min_size=1, max_size=12).filter(lambda n: b"/" not in n and b"\0" not in n)
FLAGS = st.sampled_from([0x0303, 0x0A03])


def pairs(names: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[tuple[bytes, bytes]]]:
    folders = st.sampled_from([b"/", b"/usr/lib/", b"/opt/x/"])
    one = st.tuples(names, st.tuples(folders, names).map(b"".join))
    return st.lists(one, max_size=12)


def libcmp(left: bytes, right: bytes, *, signed: bool) -> int:
    """Return the comparison of glibc's _dl_cache_libcmp in elf/dl-cache.c."""

    def char(text: bytes, at: int) -> int:
        c = text[at]
        return c - 256 if signed and c > 127 else c

    left, right = left + b"\0", right + b"\0"
    p = q = 0
    while left[p]:
        if 48 <= left[p] <= 57:
            if not 48 <= right[q] <= 57:
                return 1
            first = second = 0
            while 48 <= left[p] <= 57:
                first, p = first * 10 + left[p] - 48, p + 1
            while 48 <= right[q] <= 57:
                second, q = second * 10 + right[q] - 48, q + 1
            if first != second:
                return first - second
        elif 48 <= right[q] <= 57:
            return -1
        elif left[p] != right[q]:
            return char(left, p) - char(right, q)
        else:
            p, q = p + 1, q + 1
    return char(left, p) - char(right, q)


@given(pairs(ascii_names) | pairs(any_names), pairs(ascii_names) | pairs(any_names), FLAGS)
def test_merged_cache_is_sorted_and_complete(
    image: list[tuple[bytes, bytes]], add: list[tuple[bytes, bytes]], flags: int
) -> None:
    """Entries are in glibc's order, added ones first; a second merge changes nothing."""
    data = ld_cache.merged(None, image, flags=flags)
    merged = ld_cache.merged(data, add, flags=flags)
    entries = [(e.soname, e.path) for e in ld_cache_entries.parse(merged)]
    assert sorted(entries) == sorted(set(image) | set(add))
    for (higher, _), (lower, _) in pairwise(entries):
        assert libcmp(higher, lower, signed=flags == 0x0303) >= 0
    first: dict[bytes, bytes] = {}
    for soname, path in add:
        first.setdefault(soname, path)
    for soname, path in first.items():
        equals = [e for e in entries if libcmp(e[0], soname, signed=False) == 0]
        assert [e for e in equals if e in add] == equals[: len(set(add) & set(equals))]
        assert next(e for e in entries if e[0] == soname) == (soname, path)
    assert ld_cache.merged(merged, add, flags=flags) == merged


@given(pairs(ascii_names), pairs(ascii_names), FLAGS)
def test_removal_restores_the_entries_of_the_image(
    image: list[tuple[bytes, bytes]], add: list[tuple[bytes, bytes]], flags: int
) -> None:
    """The entries have their original order."""
    data = ld_cache.merged(None, image, flags=flags)
    new = [pair for pair in add if pair not in image]
    removed = ld_cache.merged(ld_cache.merged(data, new, flags=flags), [], new, flags=flags)
    assert [(e.soname, e.path) for e in ld_cache_entries.parse(removed)] == [
        (e.soname, e.path) for e in ld_cache_entries.parse(data)
    ]


@given(st.lists(ascii_names, min_size=2, max_size=30))
def test_byte_order_equals_libcmp_for_ascii_names(names: list[bytes]) -> None:
    exact = sorted(names, key=cmp_to_key(partial(libcmp, signed=True)))
    assert sorted(names, key=ld_cache._key) == exact
    assert sorted(names, key=ld_cache._unsigned_key) == exact
