# SPDX-License-Identifier: Apache-2.0
"""The rows of a table that a command printed."""

from __future__ import annotations

import itertools
import re


def printed_rows(text: str) -> list[dict[str, str]]:
    """Return the cells of each row by header."""
    header, *lines = text.splitlines()
    starts = [match.start() for match in re.finditer(r"(?<!\S)(?:\S+(?: (?=\S))?)+", header)]
    spans = list(itertools.pairwise([*starts, max(map(len, [header, *lines])) + 1]))
    return [{header[a:b].strip(): line[a:b].strip() for a, b in spans} for line in lines]
