# SPDX-License-Identifier: Apache-2.0
"""Large inputs: a part of a small one, again and again. Code whose time grows with the square of
an input's size takes seconds for them.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LARGE = 1 << 16  # bytes
_PARTS = (
    re.compile(rb"(?m)^[^\n]*\n"),  # a line; elsewhere, a last one without an end takes long
    re.compile(rb'"[^"\n]*"[ ]*:[ ]*("[^"\n]*"|[\w.-]+),?'),  # a member of an object
    re.compile(rb'("[^"\n]*"|[\w.-]+),[ ]*'),  # an element
    re.compile(rb"\{[^{}\n]*\},?[ ]*"),  # an object
    re.compile(rb"[\[{(]"),  # a nested value
    re.compile(rb"(?<![^\0])[^\0]+\0"),
    re.compile(rb"[/:=;., \\\"'#&*-]+\w*"),
)
_SCALAR = re.compile(rb'":\s*("[^"]*"|[\d.]+|true|false)')
_NUMBER = re.compile(rb"\d+")
_WORD = re.compile(rb"[A-Za-z]{2,}")


class SlowInputError(Exception):
    """An input took too much CPU time."""


def large(inputs: Sequence[bytes], size: int = LARGE) -> Iterator[bytes]:
    """Yield inputs of about `size` bytes; each repeats a part, as it is or with a counter in it."""
    for one in inputs:
        seen: set[bytes] = set()
        for pattern in _PARTS:
            for found in list(pattern.finditer(one))[:12]:
                part = found[0]
                if part and part not in seen:
                    seen.add(part)
                    before, after = one[: found.start()], one[found.end() :]
                    yield before + part * (size // len(part)) + after
                    yield before + _counted(part, size) + after


def pairs(inputs: Sequence[bytes], size: int = LARGE) -> Iterator[tuple[bytes, bytes]]:
    """Yield large inputs of `size` bytes, each after one of the same parts and a quarter of it."""
    return zip(large(inputs, size // 4), large(inputs, size), strict=True)


def _counted(part: bytes, size: int) -> bytes:
    """Return a part again and again with its own number, in the place of one or of a word."""
    place = _NUMBER.search(part) or _WORD.search(part)
    first = part[: place.start()] if place else part
    last = part[place.end() :] if place else b""
    word = b"" if place is None or place[0].isdigit() else place[0]
    return b"".join(
        b"%s%s%d%s" % (first, word, number, last) for number in range(size // (len(part) + 5))
    )


def deep(inputs: Sequence[bytes]) -> Iterator[bytes]:
    """Yield JSON inputs with a value that is nested, up to about as deeply as Python reads it.

    Code that walks through a value may need several frames for a level.
    """
    for one in inputs:
        start = one.find(b"{")
        if 0 <= start < 40:
            for levels in (60, 150, 300, 450, 900):
                for begin, end in ((b"[", b"]"), (b'{"x":', b"}")):
                    value = begin * levels + b"1.5" + end * levels
                    head, tail = one[: start + 1], one[start + 1 :]
                    yield head + b'"x-deep":' + value + b"," + tail
            for member in list(_SCALAR.finditer(one))[:12]:
                for levels in (300, 900):
                    value = b"[" * levels + b"]" * levels
                    yield one[: member.start(1)] + value + one[member.end(1) :]
