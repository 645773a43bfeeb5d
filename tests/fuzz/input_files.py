# SPDX-License-Identifier: Apache-2.0
"""Inputs of a target in a file: a Python literal of bytes in each line."""

from __future__ import annotations

import ast
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

HERE = Path(__file__).parent
MOST_INPUTS, MOST_BYTES = 40, 16 << 10  # of a corpus


def corpus(name: str) -> Path:
    """Return the file with inputs of a target that reach different parts of the code."""
    return HERE / "corpus" / f"{name}.txt"


def findings(name: str) -> Path:
    """Return the file with inputs that a target once did not handle."""
    return HERE / "findings" / f"{name}.txt"


def read(path: Path) -> list[bytes]:
    """Return the inputs in a file, [] without one."""
    if not path.exists():
        return []
    return [ast.literal_eval(line) for line in path.read_text("ascii").splitlines() if line]


def add(path: Path, inputs: Iterable[bytes]) -> None:
    """Add inputs to a file."""
    write(path, {*read(path), *inputs})


def write(path: Path, inputs: Iterable[bytes]) -> None:
    """Write inputs, shortest first; no file without any."""
    ordered = sorted(set(inputs), key=lambda one: (len(one), one))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if ordered:
        path.write_text("".join(f"{one!r}\n" for one in ordered), "ascii")


def small(inputs: Iterable[bytes]) -> list[bytes]:
    """Return the shortest inputs that a corpus has space for."""
    chosen: list[bytes] = []
    size = 0
    for one in sorted(set(inputs), key=len)[:MOST_INPUTS]:
        size += len(one)
        if size > MOST_BYTES:
            break
        chosen.append(one)
    return chosen
