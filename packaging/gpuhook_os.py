# SPDX-License-Identifier: Apache-2.0
"""The bundled hot path's `os` and `os.path`: thin wrappers of the system calls in `posix`.

`import os` takes 0.8 ms, most of it for abstract base classes that only os.environ uses. Here,
os.environ is a plain dict. Any other name is read from `posix` when it is first used, or from the
real `os`, which is then imported.
packaging/bundle.py writes this module's name into the bundled modules; their sources have
`import os`.
"""

import posix
import sys

path = sys.modules[__name__]
_ENCODING = sys.getfilesystemencoding()
_ERRORS = sys.getfilesystemencodeerrors()


def fsencode(text: str) -> bytes:
    """Return a file name as bytes."""
    return text.encode(_ENCODING, _ERRORS)


def fsdecode(data: bytes) -> str:
    """Return a file name as text."""
    return data.decode(_ENCODING, _ERRORS)


def _decoded(variables: dict[bytes, bytes]) -> dict[str, str]:
    return {fsdecode(key): fsdecode(value) for key, value in variables.items()}


environ = _decoded(posix.environ)


def join(first: str, *rest: str) -> str:
    """Return paths joined; an absolute one replaces the previous ones."""
    for part in rest:
        if part.startswith("/"):
            first = part
        else:
            first += part if not first or first.endswith("/") else "/" + part
    return first


def split(whole: str) -> tuple[str, str]:
    """Return the directory and the last component of a path."""
    cut = whole.rfind("/") + 1
    head = whole[:cut]
    return head.rstrip("/") or head, whole[cut:]


def dirname(whole: str) -> str:
    """Return the directory of a path."""
    return split(whole)[0]


def basename(whole: str) -> str:
    """Return the last component of a path."""
    return whole.rpartition("/")[2]


def normpath(whole: str) -> str:
    """Return a path without empty, `.` and `..` components; links are not read."""
    root = "//" if whole.startswith("//") and not whole.startswith("///") else "/"
    root = root if whole.startswith("/") else ""
    parts: list[str] = []
    for part in whole.split("/"):
        if part in ("", "."):
            continue
        if part != ".." or (not root and not parts) or (parts and parts[-1] == ".."):
            parts.append(part)
        elif parts:
            parts.pop()
    return (root + "/".join(parts)) or "."


def abspath(whole: str) -> str:
    """Return an absolute, normalised path."""
    return normpath(whole if whole.startswith("/") else join(posix.getcwd(), whole))


def _mode(whole: object) -> int:
    try:
        return posix.stat(whole).st_mode & 0o170000  # type: ignore[arg-type] # a path or descriptor
    except (OSError, ValueError):
        return 0


def exists(whole: object) -> bool:
    """Return whether a path exists, after links."""
    return _mode(whole) != 0


def isdir(whole: object) -> bool:
    """Return whether a path leads to a directory."""
    return _mode(whole) == 0o040000


def isfile(whole: object) -> bool:
    """Return whether a path leads to a regular file."""
    return _mode(whole) == 0o100000


def __getattr__(wanted: str) -> object:
    """Return other names from posix, or from the real os or os.path."""
    if wanted.startswith("__"):
        raise AttributeError(wanted)  # the import system asks every module for such names
    found: object = getattr(posix, wanted, None)
    if found is None:
        real = __import__("os")
        found = getattr(real, wanted, None) or getattr(real.path, wanted)
    globals()[wanted] = found
    return found
