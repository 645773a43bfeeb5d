# SPDX-License-Identifier: Apache-2.0
"""What a fault's code means, at length."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from gpuhook.errors import fault
from gpuhook.fault_texts import explained

SCHEMA = "gpuhook/explain-code/v1"
_CODE = re.compile(r"GH\d{1,6}", re.IGNORECASE)
_NEAREST = 3


def is_one(text: str) -> bool:
    """Return whether a text is written as codes are, whatever its case and its digits."""
    return _CODE.fullmatch(text) is not None


def document(code: str) -> dict[str, Any]:
    """Return the explanation of a fault as gpuhook/explain-code/v1; GH1914 for no code of ours."""
    name = code.upper()
    try:
        found = explained.explanation(name)
    except KeyError as error:
        raise fault("GH1914", name=name, nearest=", ".join(_nearest(name))) from error
    return {"schema": SCHEMA, **asdict(found)}


def _nearest(name: str) -> list[str]:
    known = [one.code for one in explained.all_of_them()]
    return sorted(sorted(known, key=lambda code: abs(_number(code) - _number(name)))[:_NEAREST])


def _number(code: str) -> int:
    return int(code[2:].ljust(4, "0"))
