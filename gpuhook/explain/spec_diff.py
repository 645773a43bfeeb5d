# SPDX-License-Identifier: Apache-2.0
"""config.json before and after, as a unified diff."""

from __future__ import annotations

import difflib
import json

from gpuhook.errors import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.explain.simulate import SimulatedAnswer

_MAX_LINE = 1 << 16


def lines(answer: SimulatedAnswer) -> Iterator[str]:
    """Yield the lines of the difference, none where nothing changes."""
    name = answer.question.where
    for line in difflib.unified_diff(
        _pretty(answer.before),
        _pretty(answer.after),
        f"{name} (before)",
        f"{name} (after)",
        lineterm="",
    ):
        yield printable(line, _MAX_LINE)


def _pretty(spec: object) -> list[str]:
    return json.dumps(spec, indent=2).splitlines()
