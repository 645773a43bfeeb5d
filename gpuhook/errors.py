# SPDX-License-Identifier: Apache-2.0
"""Every fault a person can meet: its code, its sentence and the way out, in one table.

HOT. Code raises with ``raise fault("GH1001", name=..., have=...)``; only a program turns the
exception into words. System calls raise plain OSError with the file name.

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


# Code blocks: GH10 request, GH11 CDI specs, GH12 driver and inventory, GH13 container and
# config.json, GH14 runtime and state, GH15 settings and command line, GH16 hook and loader files.
TEXTS: dict[str, tuple[type[GpuhookError], str, str]] = {
    "GH1106": (
        FileError,
        "{path}: {pointer}: {reason}",
        "correct the CDI spec; `gpuhook cdi validate {path}` checks it",
    ),
    "GH1107": (
        FileError,
        "{path}: cdiVersion {version} is newer than {newest}, the newest that gpuhook knows",
        "write the spec in an older version of CDI, or install a newer gpuhook",
    ),
    "GH1108": (
        FileError,
        "{path}: cdiVersion is {version}, but {reason} needs {needed}",
        "declare cdiVersion {needed}",
    ),
    "GH1109": (
        FileError,
        "{path}: {place}: {reason}",
        "correct the syntax of the CDI spec, or generate it anew",
    ),
    "GH1110": (
        FileError,
        "{path}: the CDI spec cannot be read: {reason}",
        "make it a readable regular file, or remove it",
    ),
    "GH1111": (
        HostError,
        "{path}: the CDI spec cannot be written: {reason}",
        "name a path on a writable file system with space left; nothing was changed",
    ),
    "GH1510": (
        RequestError,
        "--{option} {value}: not a {option} name of CDI",
        "it starts with a letter, ends with a letter or digit, and holds letters, digits, _ - .",
    ),
    "GH1511": (
        RequestError,
        "--device-id {value}: this node has no such GPU; it has {have}",
        "name a GPU by its index, UUID or PCI bus id, or `all`",
    ),
    "GH1512": (
        RequestError,
        "--device-id {value}: this GPU cannot be used: {reason}",
        "choose another GPU, or leave --device-id out: such a GPU is skipped then",
    ),
    "GH1513": (
        DriverError,
        "this node has no GPU that a CDI spec could describe{reasons}",
        "`gpuhook inventory` shows what was found",
    ),
    "GH1514": (
        RequestError,
        "--output {path}: {reason}",
        "name the file *.yaml or *.json, as its format is: container engines read nothing else",
    ),
    "GH1515": (
        RequestError,
        "--hook-path {path}: not an absolute path",
        "give the path of gpuhook-hook on the host, as container engines see it",
    ),
}


def fault(code: str, **facts: object) -> GpuhookError:
    """Return the exception for `code`, its sentence and hint filled in with `facts`.

    Facts that come from a container or a file are printed with control characters escaped, so
    that a log line stays one line.
    """
    kind, message, hint = TEXTS[code]
    shown = {name: printable(value) for name, value in facts.items()}
    return kind(code, message.format_map(shown), hint.format_map(shown))


def printable(value: object, limit: int = 400) -> str:
    """Return `value` as text on one line: control characters escaped, long text cut."""
    text = value if isinstance(value, str) else str(value)
    if not text.isprintable():
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[: limit + 1])
    return text if len(text) <= limit else text[:limit] + "..."
