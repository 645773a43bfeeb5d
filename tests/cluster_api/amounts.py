# SPDX-License-Identifier: Apache-2.0
"""Quantities as the API server stores them."""

from __future__ import annotations

import math
from typing import Any

from gpuhook.host.quantity import quantity

BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
DECIMAL = ("", "k", "M", "G", "T", "P", "E")


def amount(value: Any) -> int:
    """Return a quantity as an integer, rounded up; raises ValueError for another value."""
    number = quantity(value) if isinstance(value, str) else value
    if number is None or isinstance(number, bool) or not hasattr(number, "numerator"):
        raise ValueError(f"quantities must match the regular expression, not {value!r}")
    return math.ceil(number)


def canonical(value: Any) -> str:
    """Return the form in which the API server returns a quantity: "1Gi" for "1024Mi"."""
    number = amount(value)
    is_binary = isinstance(value, str) and value.endswith("i")
    suffixes, base = (BINARY, 1024) if is_binary and number >= 1024 else (DECIMAL, 1000)
    power = 0
    while number and number % base == 0 and power < len(suffixes) - 1:
        number, power = number // base, power + 1
    return f"{number}{suffixes[power]}"
