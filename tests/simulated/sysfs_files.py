# SPDX-License-Identifier: Apache-2.0
"""Files and links of a simulated /sys."""

from __future__ import annotations

import os
from pathlib import Path


def write(path: Path, content: object) -> None:
    """Write a file of one line, and its directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{content}\n", encoding="ascii")


def link(path: Path, target: Path) -> None:
    """Make a relative symbolic link, and its directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))
