# SPDX-License-Identifier: Apache-2.0
"""gpuhook and the TOML parsers of engines see the same values, before and after gpuhook's edit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from gpuhook.engines.read import toml_document
from gpuhook.engines.read.toml_document import UnreadableTomlError
from gpuhook.engines.toml.toml_edit import Setting, edited
from gpuhook.errors import GpuhookError
from tests.depth import depth
from tests.differential.go_programs import Answers, running
from tests.figures import Figures

pytestmark = pytest.mark.thorough
ROUNDS = depth(500, 5_000, 200_000)
PARSERS = ("go-toml 1", "go-toml 2", "BurntSushi")
KEYS = ["a", "b", "version", '"io.containerd.grpc.v1.cri"', "'q t'", "runtimes", "1", "x-y", "a.b"]
KEYS += ['"a"', "a . b", '"\\u0061"', "A", '""', "é", "runtimes.nvidia", "'a\"b'"]
VALUES = [
    "1", "+1", "-0", "0x1F", "0o17", "0b11", "1_000", "01", "9223372036854775807", "1.0", "1e3",
    "9223372036854775808", "true", "false", "True", '"x"', "'x'", '"\\u00e9\\n"', '"\\q"', "'\\q'",
    '"""\na\\\n   b"""', "'''\nc\n'''", '""""quoted""""', "[]", "[1, 2,]", "[1,\n# c\n2]", "{}",
    '["a", "b"]', '[1, "a"]', "{a = 1}", "{a = 1, b.c = 2}", "{a = 1,}", "{a = 1,\nb = 2}",
    "[[1], []]",
    '"a#b"', '"\t"', '"\x7f"', '"\\U0001F600"', '"\\ud800"', '"\\x41"', '"\\e"', "",
    "1 2", '"a" # c', "[{a = 1}, {}]", "'''a'''", '"]"', "1.", ".5", "1__0",
]  # fmt: skip
LINES = [
    "",
    "# note",
    "  # [a]",
    "\r",
    "[",
    "[[",
    "=",
    "a",
    "[a.]",
    "\x00",
    "\ufeff",
    "[a]]",
    "a = = 1",
]
SETTINGS = [
    ("a",),
    ("version",),
    ("runtimes", "nvidia", "path"),
    ("new", "b"),
    ("a", "b"),
    ("x-y",),
]


@pytest.fixture(scope="module")
def parsers() -> Iterator[Answers]:
    """Yield a program with the parsers."""
    with running("toml_values") as answers:
        yield answers


def document(random: Random) -> bytes:
    """Return the text of a document, of which most are TOML."""
    lines = []
    for _ in range(random.randrange(1, 9)):
        kind, key = random.random(), random.choice(KEYS)
        if kind < 0.3:
            lines.append(f"[{key}]" if random.random() < 0.8 else f"[[{key}]]")
        elif kind < 0.96:
            value = random.choice(VALUES if random.random() < 0.6 else VALUES[:1] + VALUES[12:18])
            lines.append(f"{'  ' * random.randrange(2)}{key} = {value}")
        else:
            lines.append(random.choice(LINES))
    newline = random.choice(("\n", "\n", "\n", "\r\n"))
    return newline.join([*lines, ""]).encode()


def seen_by(parsers: Answers, content: bytes) -> dict[str, Any]:
    """Return what each parser reads; those that refuse the document are left out."""
    answers = parsers.to(content, len(PARSERS))
    return {
        name: json.loads(text)
        for name, text in zip(PARSERS, answers, strict=True)
        if not text.startswith(b"!")
    }


def ours(content: bytes) -> Any:
    """Return what gpuhook reads, None if it refuses the document."""
    try:
        return toml_document.parsed(content)
    except UnreadableTomlError:
        return None


def escaped_header(content: bytes) -> bool:
    """Return whether a header has an escape, which go-toml 1 does not decode."""
    return any(b"\\" in line for line in content.split(b"\n") if line.startswith(b"["))


@pytest.mark.soak
def test_parsers_see_the_same_values_and_the_edit(parsers: Answers, figures: Figures) -> None:
    """A parser that accepts a document as gpuhook does accepts the edited one, with the setting."""
    random, counts = Random(6), Counter[str]()
    for _ in range(ROUNDS):
        content = document(random)
        read, seen = ours(content), seen_by(parsers, content)
        counts["documents"] += 1
        if escaped_header(content):
            seen.pop(PARSERS[0], None)
        if read is None:
            continue
        for name, values in seen.items():
            assert values == read, (name, content)
            counts[f"read as by {name}"] += 1
        setting = Setting(random.choice(SETTINGS), random.choice(("v", True, 5, ["a"], None)))
        try:
            after = edited("x", content, [setting])
        except GpuhookError:
            counts["not edited (GH2027)"] += 1
            continue
        wanted, found = ours(after), seen_by(parsers, after)
        for name in seen:
            assert found.get(name) == wanted, (name, content, setting, after)
        counts["edited"] += 1
    assert counts["edited"] > ROUNDS / 10, counts
    for what, count in counts.items():
        figures.record(f"TOML, gpuhook and the parsers of engines: {what}", str(count))


@pytest.mark.parametrize(
    "number", ["9223372036854775808", "-9223372036854775809", "0xFFFFFFFFFFFFFFFF"]
)
def test_integer_above_64_bits_is_refused(parsers: Answers, number: str) -> None:
    """So do the parsers of containerd 2, podman and CRI-O."""
    content = f"a = [{{b = {number}}}]\n".encode()
    assert not {"go-toml 2", "BurntSushi"} & set(seen_by(parsers, content))
    with pytest.raises(UnreadableTomlError, match="64 bits"):
        toml_document.parsed(content)
