# SPDX-License-Identifier: Apache-2.0
"""Versions of engines, as their programs print them."""

from __future__ import annotations

import re

Version = tuple[int, ...]

_NUMBER = re.compile(r"\bv?(\d+(?:\.\d+)+)")


def parse_version(text: str) -> Version | None:
    """Return the first version in a text, such as (1, 7, 27) of "v1.7.27-rc1"; None without."""
    found = _NUMBER.search(text)
    return tuple(int(part) for part in found.group(1).split(".")) if found else None
