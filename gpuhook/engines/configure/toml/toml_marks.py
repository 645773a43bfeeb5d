# SPDX-License-Identifier: Apache-2.0
"""What gpuhook writes into TOML files of others, marked so that it can be told apart again.

A line of ours ends in `# gpuhook`; a line that ours takes the place of is kept above it as a
comment; whole tables of ours stand between two comments.
"""

from __future__ import annotations

BEGIN = "# gpuhook: begin (gpuhook configure undo takes this out)"
END = "# gpuhook: end"
OURS = "# gpuhook"
WAS = "# gpuhook: was: "


def line(text: str) -> str:
    """Return a line of ours."""
    return f"{text} {OURS}"


def was(text: str) -> str:
    """Return a line of others as the comment that keeps it."""
    return f"{WAS}{text}"


def block(lines: list[str]) -> list[str]:
    """Return lines of ours between their two comments."""
    return [BEGIN, *lines, END]


def has_any(content: bytes) -> bool:
    """Return whether something in a file is marked as ours."""
    return OURS.encode() in content


def settled(content: bytes) -> bytes:
    """Return a file in which what is marked as ours is the file's own, and no mark is left."""
    kept: list[bytes] = []
    for each in content.splitlines(keepends=True):
        text = each.rstrip()
        if text.strip() in (BEGIN.encode(), END.encode()) or text.startswith(WAS.encode()):
            continue
        mark = b" " + OURS.encode()
        kept.append(each.replace(mark, b"") if text.endswith(mark) else each)
    return b"".join(kept)


def without(content: bytes) -> bytes:
    """Return a file less all that is marked as ours, and with what that took the place of."""
    kept: list[bytes] = []
    is_inside = False
    for each in content.splitlines(keepends=True):
        text = each.strip()
        if is_inside:
            is_inside = text != END.encode()
        elif text == BEGIN.encode():
            is_inside = True
        elif text.startswith(WAS.encode()):
            before, _, after = each.partition(WAS.encode())
            kept.append(after if not before.strip() else each)
        elif not text.endswith(b" " + OURS.encode()):
            kept.append(each)
    return b"".join(kept)
