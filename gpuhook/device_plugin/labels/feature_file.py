# SPDX-License-Identifier: Apache-2.0
"""The file in which Node Feature Discovery finds a node's labels: features.d/gfd.

One `name=value` per line, put in place atomically: NFD's worker reads the directory at any moment.
"""

from __future__ import annotations

import os
import sys

from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files

STANDARD_OUTPUT = ("", "-")  # names that mean it
_MODE = 0o644
_MAX_SIZE = 1 << 20


def text(labels: dict[str, str]) -> str:
    """Return the labels as NFD reads them, sorted by name."""
    return "".join(f"{name}={value}\n" for name, value in sorted(labels.items()))


def write(path: str, labels: dict[str, str]) -> bool:
    """Write the labels to `path`, or to standard output; returns whether anything was written.

    A file that says so already is left as it is. Missing directories are made: NFD may come later.
    Raises OSError.
    """
    content = text(labels)
    if path in STANDARD_OUTPUT:
        sys.stdout.write(content)
        sys.stdout.flush()
        return True
    data = content.encode()
    if _is_already(path, data):
        return False
    try:
        os.makedirs(os.path.dirname(path) or ".", 0o755, exist_ok=True)
        files.replace(path, data, mode=_MODE)
    except OSError as error:  # whoever reads of it knows this path, not a temporary one
        raise OSError(error.errno, error.strerror, path) from error
    return True


def remove(path: str) -> bool:
    """Remove the file, so that NFD drops its labels; returns whether there was one."""
    if path in STANDARD_OUTPUT:
        return False
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def _is_already(path: str, data: bytes) -> bool:
    try:
        return files.read(path, _MAX_SIZE) == data and os.stat(path).st_mode & 0o777 == _MODE
    except (OSError, GpuhookError):
        return False
