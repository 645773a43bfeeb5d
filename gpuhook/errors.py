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
    "GH1230": (
        DriverError,
        "no NVIDIA driver below {root}: no libcuda.so.<version> in {searched}",
        "install the driver there, or name its place with --driver-root or --library-search-path",
    ),
    "GH1231": (
        DriverError,
        "the driver below {root} is of two versions: libcuda is {libcuda}, libnvidia-ml is {ml}",
        "finish or repeat the driver's installation, so that both are of one version",
    ),
    "GH1232": (
        DriverError,
        "the driver is {version}, but the libcuda below {root} is {have} (searched {searched})",
        "install the libraries of {version} there, or reboot into the installed driver",
    ),
    "GH1233": (
        DriverError,
        "several drivers below {root} ({have}), and no libcuda.so.1 says which one counts",
        "remove the old ones, or run ldconfig there to make the link",
    ),
    "GH1234": (
        DriverError,
        "{path} is not a readable 64-bit shared library",
        "repeat the driver's installation",
    ),
    "GH1235": (
        DriverError,
        "the driver root {root} is not a directory",
        "name the directory that the driver is installed in with --driver-root",
    ),
    "GH1236": (
        RequestError,
        "the search path {path} is not absolute",
        "give the directory from / on",
    ),
    "GH1600": (
        FileError,
        "the image's /etc/ld.so.cache cannot be read: {reason}",
        "run ldconfig in the image, or delete the file there",
    ),
    "GH1601": (
        FileError,
        "the image's /etc/ld.so.cache is {size} bytes long, more than {limit}",
        "run ldconfig in the image, or delete the file there",
    ),
    "GH1602": (
        HostError,
        "machine {machine} has no loader cache flags here",
        "known machines: {known}",
    ),
    "GH1603": (
        FileError,
        "the image's musl path file is {size} bytes long, more than {limit}",
        "shorten /etc/ld-musl-*.path in the image",
    ),
    "GH1604": (
        FileError,
        "the directory {directory} cannot be written in {file}",
        "keep the driver's libraries in an absolute path without white space, '#', '=' and ':'",
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
