# SPDX-License-Identifier: Apache-2.0
"""The file from which Node Feature Discovery reads a node's labels: features.d/gfd.

It has one `name=value` per line, and is replaced atomically: NFD may read it at any moment.
"""

from __future__ import annotations

import os
import sys

from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files

STANDARD_OUTPUT = ("", "-")  # paths that mean standard output
_MODE = 0o644
_MAX_SIZE = 1 << 20


def text(labels: dict[str, str]) -> str:
    """Return the labels in NFD's format, sorted by name."""
    return "".join(f"{name}={value}\n" for name, value in sorted(labels.items()))


def write(path: str, labels: dict[str, str]) -> bool:
    """Write the labels to `path` or standard output; returns whether anything was written.

    An unchanged file is not written. Missing directories are created, since NFD may be installed
    later. Raises OSError.
    """
    content = text(labels)
    if path in STANDARD_OUTPUT:
        sys.stdout.write(content)
        sys.stdout.flush()
        return True
    data = content.encode()
    if _is_current(path, data):
        return False
    try:
        os.makedirs(os.path.dirname(path) or ".", 0o755, exist_ok=True)
        files.replace(path, data, mode=_MODE)
    except OSError as error:  # name this path in the message, not the temporary one
        raise OSError(error.errno, error.strerror, path) from error
    return True


def remove(path: str) -> bool:
    """Remove the file, so that NFD removes its labels; returns whether it existed."""
    if path in STANDARD_OUTPUT:
        return False
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def _is_current(path: str, data: bytes) -> bool:
    try:
        return files.read(path, _MAX_SIZE) == data and os.stat(path).st_mode & 0o777 == _MODE
    except (OSError, GpuhookError):
        return False
