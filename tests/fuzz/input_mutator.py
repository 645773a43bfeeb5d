# SPDX-License-Identifier: Apache-2.0
"""Changed inputs without atheris: the same ones in each run."""

from __future__ import annotations

import random
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_ODD = (
    b"", b"\0", b"\xff", b"\xed\xa0\x80", b"\n", b" ", b"\t", b'"', b"'", b"\\", b"/", b"..", b"-1",
    b"0", b"18446744073709551616", b"9" * 50, b"1e999", b"NaN", b"null", b"true", b"[]", b"{}",
    b"[" * 60, b"{", b"}", b"]", b":", b",", b"=", b"&a", b"*a", b"!!int ", b"---\n", b"${A}",
    b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\xc2\xb2", b"\xe2\x80\xa8",
)  # fmt: skip
_WORD = re.compile(rb"[A-Za-z0-9_.-]{2,40}")


def words(inputs: Sequence[bytes], most: int = 400) -> list[bytes]:
    """Return words of inputs, for the dictionary of a fuzzer."""
    return list(dict.fromkeys(word for one in inputs for word in _WORD.findall(one)))[:most]


def changed(inputs: Sequence[bytes], count: int, seed: int, size: int) -> Iterator[bytes]:
    """Yield `count` inputs of at most `size` bytes that differ from those given."""
    chance = random.Random(seed)
    known = [*words(inputs), *_ODD]
    changes = (_cut, _replaced, _inserted, _doubled, _byte, _bit)
    for _ in range(count):
        data = chance.choice(inputs) if inputs else b""
        for _ in range(chance.choice((1, 1, 2, 4))):
            data = chance.choice(changes)(data, chance, known)
        if inputs and chance.random() < 0.1:
            other = chance.choice(inputs)
            data = data[: _at(data, chance)] + other[_at(other, chance) :]
        yield data[:size]


def smaller(data: bytes, is_same: Callable[[bytes], bool], most: int = 400) -> bytes:
    """Return a part of an input that is the same to `is_same`, after at most `most` calls."""
    step = len(data) // 2
    while step and most:
        at = 0
        while at < len(data) and most:
            most -= 1
            shorter = data[:at] + data[at + step :]
            if is_same(shorter):
                data = shorter
            else:
                at += step
        step //= 2
    return data


def _at(data: bytes, chance: random.Random) -> int:
    return chance.randrange(len(data) + 1)


def _cut(data: bytes, chance: random.Random, _known: list[bytes]) -> bytes:
    first = _at(data, chance)
    return data[:first] + data[first + chance.randrange(1, 20) :]


def _replaced(data: bytes, chance: random.Random, known: list[bytes]) -> bytes:
    """Replace a word by another one, or by an odd value."""
    places = list(_WORD.finditer(data))
    if not places:
        return _inserted(data, chance, known)
    place = chance.choice(places)
    return data[: place.start()] + chance.choice(known) + data[place.end() :]


def _inserted(data: bytes, chance: random.Random, known: list[bytes]) -> bytes:
    at = _at(data, chance)
    return data[:at] + chance.choice(known) + data[at:]


def _doubled(data: bytes, chance: random.Random, _known: list[bytes]) -> bytes:
    first, last = sorted((_at(data, chance), _at(data, chance)))
    return data[:last] + data[first:last] * chance.choice((1, 1, 8)) + data[last:]


def _byte(data: bytes, chance: random.Random, _known: list[bytes]) -> bytes:
    at = _at(data, chance)
    return data[:at] + bytes((chance.randrange(256),)) + data[at + 1 :]


def _bit(data: bytes, chance: random.Random, _known: list[bytes]) -> bytes:
    at = _at(data, chance)
    if at == len(data):
        return data
    return data[:at] + bytes((data[at] ^ (1 << chance.randrange(8)),)) + data[at + 1 :]
