# SPDX-License-Identifier: Apache-2.0
"""The figures that long tests measure, for the documentation."""

from __future__ import annotations

import fcntl
import json
from datetime import datetime, timezone
from pathlib import Path

from tests.depth import SHARE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pytest

SOAK = "make soak" if SHARE == 1 else f"GPUHOOK_SOAK_SHARE={SHARE:g} make soak"
PLACE = Path(__file__).parents[1] / "docs/reference/figures"


class Figures:
    """A file of figures. `make generate` puts them into the documentation."""

    def __init__(self, name: str, config: pytest.Config) -> None:
        """Write to the file of this name if pytest runs with --figures."""
        self._path = PLACE / f"{name}.json" if config.getoption("--figures") else None

    def record(self, what: str, value: str, limit: str = "", command: str = SOAK) -> None:
        """Print a figure with its unit and its limit, and write it if asked to."""
        print(f"{what}: {value}{f' (limit {limit})' if limit else ''}")
        if self._path is not None:
            write(self._path, what, value, limit, command)


def write(path: Path, what: str, value: str, limit: str, command: str) -> None:
    """Write one figure, in place of the previous one of its name. Processes may run at once."""
    path.parent.mkdir(exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        rows = json.loads(file.read() or "[]")
        row = {
            "what": what,
            "value": value,
            "limit": limit,
            "command": command,
            "measured": datetime.now(timezone.utc).date().isoformat(),
        }
        names = [one["what"] for one in rows]
        place = names.index(what) if what in names else len(names)
        rows[place : place + 1] = [row]
        file.truncate(0)
        file.write(json.dumps(rows, indent=2) + "\n")
