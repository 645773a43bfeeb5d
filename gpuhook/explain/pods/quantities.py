# SPDX-License-Identifier: Apache-2.0
"""Quantities of Kubernetes: "1", "500m", "2Gi", "1e3", as exact numbers.

Source: the grammar in k8s.io/apimachinery/pkg/api/resource.
"""

from __future__ import annotations

import re
from fractions import Fraction

MALFORMED = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_FORM = re.compile(r"([+-]?)([0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})([A-Za-z]*)([+-]?[0-9]*)")
_SCALES: dict[str, Fraction] = {
    **{f"{suffix}i": Fraction(1024) ** n for n, suffix in enumerate("KMGTPE", 1)},
    **{suffix: Fraction(1000) ** n for n, suffix in enumerate("kMGTPE", 1)},
    **{suffix: Fraction(1, 1000) ** n for n, suffix in enumerate("mun", 1)},
    "": Fraction(1),
}
_LARGEST_EXPONENT = 40


def quantity(text: str) -> Fraction | None:
    """Return the number that a quantity stands for, None for what is none.

    >>> quantity("1500m")
    Fraction(3, 2)
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        return None
    sign, digits, suffix, exponent = found.groups()
    if exponent or suffix == "e":
        if suffix not in ("e", "E") or exponent in ("", "+", "-"):
            return None
        power = int(exponent[:4])
        if abs(power) > _LARGEST_EXPONENT:
            return None
        scale = Fraction(10) ** power
    elif suffix in _SCALES:
        scale = _SCALES[suffix]
    else:
        return None
    number = Fraction(digits) * scale
    return -number if sign == "-" else number
