# SPDX-License-Identifier: Apache-2.0
"""Files and links of a simulated /sys."""

from __future__ import annotations

import os
from pathlib import Path

_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


def write(path: Path, content: object) -> None:
    """Write a file of one line, and its directories."""
    name = os.fspath(path)
    try:
        file = os.open(name, _WRITE, 0o644)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(name), exist_ok=True)
        file = os.open(name, _WRITE, 0o644)
    os.write(file, f"{content}\n".encode("ascii"))
    os.close(file)


def link(path: Path, target: Path) -> None:
    """Make a relative symbolic link, and its directories."""
    name, place = os.fspath(path), os.path.dirname(path)
    value = os.path.relpath(target, place)
    try:
        os.symlink(value, name)
    except FileNotFoundError:
        os.makedirs(place, exist_ok=True)
        os.symlink(value, name)
