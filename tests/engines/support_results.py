# SPDX-License-Identifier: Apache-2.0
"""What the tests of the matrix have seen: docs/support/tested.json, which docs/support.md shows.

A test reports a row with the fixture `covers`. A run of the whole matrix without a failure writes
the file. It has versions and integrations only: the same engines give the same file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.contract.build_cache import CHECKOUT

FILE = CHECKOUT / "docs/support/tested.json"
PROPERTY = "covers"


@dataclass(frozen=True, order=True)
class Row:
    """An engine or runtime of a version, and the integration with it that a test has seen work.

    `engine` is its name as documentation has it (Docker, containerd, podman), `with_` a
    further program with its version (crun 1.21), or the cgroup version.
    """

    engine: str
    version: str
    integration: str
    with_: str = ""

    def text(self) -> str:
        """Return it as a property of a test: JSON."""
        return json.dumps(asdict(self))


def row(text: str) -> Row:
    """Return the row of a test's property."""
    return Row(**json.loads(text))


def write(rows: Iterable[Row], file: Path = FILE) -> None:
    """Write the rows, sorted, without duplicates."""
    file.parent.mkdir(parents=True, exist_ok=True)
    documents = [asdict(one) for one in sorted(set(rows))]
    file.write_text(json.dumps(documents, indent=1) + "\n", encoding="utf-8")


def versions(rows: Iterable[Row]) -> list[str]:
    """Return a line for each engine with its versions, the oldest first."""
    found: dict[str, set[str]] = {}
    for one in sorted(rows):
        found.setdefault(one.engine, set()).add(one.version)
    return [f"{name}: {', '.join(sorted(seen, key=_order))}" for name, seen in found.items()]


def _order(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
