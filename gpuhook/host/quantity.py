# SPDX-License-Identifier: Apache-2.0
"""Quantities of Kubernetes as exact numbers ("1", "500m", "2Gi", "1e3"), and amounts of memory.

Source: the grammar in k8s.io/apimachinery/pkg/api/resource.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fractions import Fraction

MALFORMED = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
MEMORY = r"(\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:([KMGTPE]i|[kMGTPE])|[eE]([+-]?\d{1,2}))?"
MEMORY_HINT = "write it like 512Mi or 2Gi"
_FORM = re.compile(r"([+-]?)([0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})([A-Za-z]*)([+-]?[0-9]*)")
_SCALES: dict[str, tuple[int, int]] = {  # numerator and denominator
    **{f"{suffix}i": (1024**n, 1) for n, suffix in enumerate("KMGTPE", 1)},
    **{suffix: (1000**n, 1) for n, suffix in enumerate("kMGTPE", 1)},
    **{suffix: (1, 1000**n) for n, suffix in enumerate("mun", 1)},
    "": (1, 1),
}
_LARGEST_EXPONENT = 40
_TOO_LARGE = 2**63
_LIKELY_GIB = 256  # a smaller number without a unit is probably an amount in GiB


def quantity(text: str) -> Fraction | None:
    """Return the number that a quantity stands for, None if the text is not a quantity.

    >>> quantity("1500m")
    Fraction(3, 2)
    """
    from fractions import Fraction  # with decimal: 5 ms, which few commands need

    match = _FORM.fullmatch(text.strip())
    if match is None:
        return None
    sign, digits, suffix, exponent = match.groups()
    if exponent or suffix == "e":
        if suffix not in ("e", "E") or exponent in ("", "+", "-"):
            return None
        power = int(exponent[:4])
        if abs(power) > _LARGEST_EXPONENT:
            return None
        scale = Fraction(10) ** power
    elif suffix in _SCALES:
        scale = Fraction(*_SCALES[suffix])
    else:
        return None
    number = Fraction(digits) * scale
    return -number if sign == "-" else number


def memory_bytes(value: object) -> int | None:
    """Return an amount of memory in bytes, None if the value is not one.

    A value is a number of bytes or a quantity without a sign. Parts of a byte round up, as in
    Kubernetes; the suffixes m, u and n are refused, since no one means a part of a byte.

    >>> memory_bytes("512Mi"), memory_bytes("512m")
    (536870912, None)
    """
    number: object = value
    if isinstance(value, str):
        exact = quantity(value) if re.fullmatch(MEMORY, value) else None
        number = None if exact is None else -(-exact // 1)
    is_amount = isinstance(number, int) and not isinstance(number, bool)
    return number if is_amount and 0 <= number < _TOO_LARGE else None  # type: ignore[operator,return-value]


def likely_unit(number: int) -> str:
    """Return the unit that a bare number of memory probably lacks.

    >>> likely_unit(4), likely_unit(4096)
    ('Gi', 'Mi')
    """
    return "Gi" if number < _LIKELY_GIB else "Mi"
