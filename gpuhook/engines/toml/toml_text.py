# SPDX-License-Identifier: Apache-2.0
"""TOML text that gpuhook writes: keys, values and tables, and the marks on them.

A line of gpuhook ends in `# gpuhook`. The line that it replaces is kept above it as a comment. New
tables are between two comments.
"""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

BEGIN = "# gpuhook: begin (gpuhook configure undo takes this out)"
END = "# gpuhook: end"
MARK = " # gpuhook"
WAS = "# gpuhook: was: "
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dotted(names: Sequence[str]) -> str:
    """Return a dotted key; each part is quoted if it has to be."""
    return ".".join(name if _BARE.fullmatch(name) else _string(name) for name in names)


def value_text(value: object) -> str:
    """Return a value on one line; a table becomes an inline table."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(value_text(one) for one in value)}]"
    if isinstance(value, dict):
        members = ", ".join(f"{dotted([name])} = {value_text(one)}" for name, one in value.items())
        return f"{{ {members} }}" if members else "{}"
    return str(value)  # numbers, and times: TOML writes them as Python does


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def table_lines(
    names: Sequence[str], members: Mapping[str, object], indent: str = ""
) -> Iterator[str]:
    """Yield the lines of a table: the header, the keys, then the tables in it."""
    yield f"{indent}[{dotted(names)}]"
    inner = f"{indent}  "
    for name, one in members.items():
        if not isinstance(one, dict):
            yield f"{inner}{dotted([name])} = {value_text(one)}"
    for name, one in members.items():
        if isinstance(one, dict):
            yield from table_lines((*names, name), one, inner)


def block(lines: list[str]) -> list[str]:
    """Return the lines between the two comments that mark them."""
    return [BEGIN, *lines, END]


def without_marks(content: bytes) -> bytes:
    """Return a file with the marked lines as ordinary lines: every mark is removed."""
    left: list[bytes] = []
    for line in content.splitlines(keepends=True):
        text = line.rstrip()
        if text.strip() in (BEGIN.encode(), END.encode()) or line.startswith(WAS.encode()):
            continue
        left.append(line.replace(MARK.encode(), b"") if text.endswith(MARK.encode()) else line)
    return b"".join(left)


def without_marked_lines(content: bytes) -> bytes:
    """Return a file without the marked lines, and with the lines that they replaced."""
    left: list[bytes] = []
    is_inside = False
    for line in content.splitlines(keepends=True):
        text = line.strip()
        if is_inside:
            is_inside = text != END.encode()
        elif text == BEGIN.encode():
            is_inside = True
        elif line.lstrip().startswith(WAS.encode()):
            left.append(line.partition(WAS.encode())[2])
        elif not text.endswith(MARK.encode()):
            left.append(line)
    return b"".join(left)
