# SPDX-License-Identifier: Apache-2.0
"""Every fault a person can meet has a code, a sentence and a way out: fault_texts has them.

Code raises with ``raise fault("GH1003", name=...)``; only a program turns the exception into words.
System calls raise plain OSError with the file name.

The kinds are named by who must act: the request is wrong, a file is wrong, the driver is missing
or mismatched, policy refused it, this host cannot do it.
"""

from __future__ import annotations


class GpuhookError(Exception):
    """A fault with a stable code, one sentence and one hint."""

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        """Return how a pickle makes it again: the base class keeps the message alone."""
        return type(self), (self.code, self.message, self.hint)


class RequestError(GpuhookError):
    """The container asked for what is not there, or asked in words nobody understands."""


class FileError(GpuhookError):
    """A file (CDI spec, config.json, loader cache, dump) is missing, broken or contradictory."""


class DriverError(GpuhookError):
    """The NVIDIA driver is missing, incomplete, or of another version than expected."""


class RefusedError(GpuhookError):
    """A policy, or the safety of the host, forbids what was asked."""


class HostError(GpuhookError):
    """The host lacks something gpuhook needs: a runtime, a writable directory, a program."""


def fault(code: str, **facts: object) -> GpuhookError:
    """Return the exception for `code`, its sentence and hint filled in with `facts`.

    Facts that come from a container or a file are printed with control characters escaped, so
    that a log line stays one line.
    """
    from gpuhook.fault_texts import text_of  # a create that goes well does without

    kind, message, hint = text_of(code)
    shown = {name: printable(value) for name, value in facts.items()}
    return kind(code, message.format_map(shown), hint.format_map(shown))


def printable(value: object, limit: int = 400) -> str:
    """Return `value` as text on one line: control characters escaped, long text cut."""
    text = value if isinstance(value, str) else str(value)
    if not text.isprintable():
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[: limit + 1])
    return text if len(text) <= limit else text[:limit] + "..."
