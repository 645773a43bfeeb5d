# SPDX-License-Identifier: Apache-2.0
"""Constructors of errors, by code.

Code raises with ``raise fault("GH1003", name=...)``; only an entry point prints the exception.
System calls raise plain OSError with the file name. The first error loads the texts: a create
without an error does not load them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.errors.gpuhook_error import GpuhookError


def fault(code: str, **facts: object) -> GpuhookError:
    """Return the exception for `code`, its sentence and hint filled in with `facts`.

    Control characters in facts, which may come from a container or a file, are escaped, so that a
    log entry remains one line.
    """
    kind, message, hint = _text(code)
    shown = {name: printable(value) for name, value in facts.items()}
    return kind(code, message.format_map(shown), hint.format_map(shown))


def rebuild(code: str, message: str, hint: str) -> GpuhookError:
    """Return the exception of another process; KeyError for an unknown code."""
    return _text(code)[0](code, message, hint)


def printable(value: object, limit: int = 400) -> str:
    """Return `value` as text on one line: control characters escaped, long text cut."""
    text = value if isinstance(value, str) else str(value)
    if not text.isprintable():
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[: limit + 1])
    return text if len(text) <= limit else text[:limit] + "..."


def _text(code: str) -> tuple[type[GpuhookError], str, str]:
    """Return kind, sentence and hint of a code; KeyError for an unknown one."""
    from gpuhook.errors import kinds
    from gpuhook.errors.messages import TEXTS

    _, found, rest = TEXTS.partition(f"\n{code} ")
    if not found:
        raise KeyError(code)
    kind, message, hint, _ = rest.split("\n", 3)
    return getattr(kinds, kind), message, hint
