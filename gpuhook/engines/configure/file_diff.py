# SPDX-License-Identifier: Apache-2.0
"""Files before and after as a unified diff, which patch(1) takes."""

from __future__ import annotations

import difflib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.engines.configure.changeset import Write

_NO_END = "\\ No newline at end of file"


def text(writes: Iterable[Write]) -> str:
    """Return the diff of all files, "" where none changes its content."""
    return "".join(file_diff(one) for one in writes)


def file_diff(write: Write) -> str:
    """Return the diff of one file, "" where its content stays. Bytes that are no UTF-8 stay too."""
    before, after = _lines(write.before), _lines(write.after)
    old = "/dev/null" if write.before is None else f"a{write.path}"
    new = "/dev/null" if write.after is None else f"b{write.path}"
    lines = list(difflib.unified_diff(before, after, old, new))
    if not lines and (write.before is None) != (write.after is None):
        lines = [f"--- {old}\n", f"+++ {new}\n"]  # of a file with nothing in it
    return "".join(one if one.endswith("\n") else f"{one}\n{_NO_END}\n" for one in lines)


def _lines(content: bytes | None) -> list[str]:
    text = (content or b"").decode("utf-8", "surrogateescape")
    # splitlines() would break lines at a form feed, too.
    lines = [f"{one}\n" for one in text.split("\n")]
    return [*lines[:-1], *([lines[-1][:-1]] if lines[-1] != "\n" else [])]
