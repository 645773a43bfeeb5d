# SPDX-License-Identifier: Apache-2.0
"""Documents as lines of text for comparison, without what varies from run to run.

A JSON document on one line is cut into lines, with a note: joined again, they are its bytes.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import platform
import re
import sys
from pathlib import Path

from tests.record import surface

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+|\s+', re.DOTALL)
_WIDTH = 110  # a value that is longer is cut into lines
_STYLES = {"compact": (",", ":"), "spaced": (", ", ": ")}


def document(data: bytes) -> str:
    """Return the text of a file or of a program's output."""
    return "".join(_lines(data))


def difference(old: bytes, new: bytes) -> str:
    """Return the changes of a document, without equal lines."""
    if old == new:
        return ""
    before, after = _lines(old), _lines(new)
    lines = difflib.unified_diff(before, after, n=1)
    return "".join(line for line in lines if not line.startswith(("--- ", "+++ ")))


def is_text(data: bytes) -> bool:
    """Return whether `data` can be printed as text."""
    return b"\0" not in data and len(data) < 1 << 19


def summary(data: bytes) -> str:
    """Return the size and the hash of `data`."""
    return f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()[:16]}\n"


def visible(text: str) -> str:
    """Return `text` with control characters escaped."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def _lines(data: bytes) -> list[str]:
    text = visible(data.decode("utf-8", "backslashreplace"))
    if text[:1] in ("{", "[") and "\n" not in text.rstrip("\n"):
        for style, (comma, colon) in _STYLES.items():
            cut = _cut(text.rstrip("\n"), comma, colon)
            if cut is not None:
                end = "" if text.endswith("\n") else ", no newline at the end"
                return [f"(JSON, {style}{end})\n", *cut]
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines += ["\n", "(no newline at the end)\n"]
    return lines


def _cut(text: str, comma: str, colon: str) -> list[str] | None:
    """Return the lines of a JSON document of this style, None for one of another style."""
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != text:
        return None
    words = [token for token in tokens if not token.isspace()]
    joined = "".join({",": comma, ":": colon}.get(word, word) for word in words)
    if joined != text:
        return None
    lines: list[str] = []
    _value(words, 0, "", lines, "")
    return lines


def _value(words: list[str], at: int, indent: str, lines: list[str], head: str) -> int:
    """Add the lines of the value at `at` after `head`; return where the next one begins."""
    end = _end(words, at)
    whole = "".join(words[at:end])
    tail = "," if words[end : end + 1] == [","] else ""
    if words[at] not in "[{" or len(whole) <= _WIDTH:
        lines.append(f"{indent}{head}{whole}{tail}\n")
        return end + bool(tail)
    lines.append(f"{indent}{head}{words[at]}\n")
    position = at + 1
    while position < end - 1:
        name = ""
        if words[at] == "{":
            name = f"{words[position]}: "
            position += 2
        position = _value(words, position, indent + " ", lines, name)
    lines.append(f"{indent}{words[end - 1]}{tail}\n")
    return end + bool(tail)


def _end(words: list[str], at: int) -> int:
    depth = 0
    for index in range(at, len(words)):
        depth += (words[index] in ("[", "{")) - (words[index] in ("]", "}"))
        if depth == 0:
            return index + 1
    return len(words)


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
_VARYING = [
    (re.escape(str(surface.CHECKOUT)), "@CHECKOUT@"),
    (re.escape(sys.executable), "@PYTHON@"),
    (re.escape(os.uname().release), "@KERNEL@"),
    (re.escape(_BOOT_ID), "@BOOT@"),
    (rf"\b{re.escape(platform.python_version())}\b", "@PYTHON-VERSION@"),
    (rf"(?<![\d.]){re.escape(surface.VERSION)}(?![\d.])", "@VERSION@"),
    (r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?", "@TIME@"),
    (r"\btree=\d+-\d+-\d+", "tree=@TREE@"),
    (r"\bgpus=(\d+)-[0-9a-f]+", r"gpus=\1-@GPUS@"),
    (r'"(milliseconds|pid|since|started)": ?[\d.]+', r'"\1": @NUMBER@'),
    (r'"init": \[\d+,\d+\]', '"init": @PROCESS@'),
    (r'(\["/[^"]+",)\d+,\d+\]', r"\1@MOUNT@]"),
    (r"\b\d+-\d{19}-\d+\b", "@IDENTITY@"),
    (r'"checksum": ?"[0-9a-f]{8}"', '"checksum": "@CHECKSUM@"'),
    (r"\b\d+[smhd] ago\b", "@AGO@"),
    (r'"bytes": \d+,\n  "members"', '"bytes": @NUMBER@,\n  "members"'),
    (r"GH2101: \S+ is not a runtime tree", "GH2101: @TREE@ is not a runtime tree"),
    (r"\b\d+ KiB(?=[;\n] ?values)", "@NUMBER@ KiB"),
    (r"(?m)^\d+\.\d{3,9} (?=\S)", "@CLOCK@ "),
]
_PATTERNS = [(re.compile(pattern), text) for pattern, text in _VARYING]


def normal(text: str) -> str:
    """Return `text` without what differs from run to run and from machine to machine."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text
