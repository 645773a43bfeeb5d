# SPDX-License-Identifier: Apache-2.0
"""Quantities and semantic versions of Kubernetes in CEL, and the functions on them.

Source: k8s.io/apiserver/pkg/cel/library. A CEL library has no values of other types: here both are
maps with one key, which no attribute can have.
"""

from __future__ import annotations

import re

from gpuhook.host.quantity import MALFORMED
from gpuhook.host.quantity import quantity as parsed_quantity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from fractions import Fraction

    CelValue = dict[str, str]

_QUANTITY, _SEMVER = "kubernetes.Quantity", "kubernetes.Semver"
_NUMBER = r"0|[1-9]\d{0,18}"
_PART = rf"(?:{_NUMBER}|\d*[A-Za-z-][0-9A-Za-z-]*)"
_FORM = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-({_PART}(?:\.{_PART})*))?(?:\+[0-9A-Za-z.-]+)?"
)
_LEADING_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")
_LARGEST = 2**63 - 1


def quantity(text: str) -> CelValue:
    """Return the value for "40Gi"; raises ValueError."""
    number = parsed_quantity(text)
    if number is None:
        raise ValueError(MALFORMED)
    return {_QUANTITY: str(number)}


def is_quantity(text: str) -> bool:
    return parsed_quantity(text) is not None


def semver(text: str, normalize: bool = False) -> CelValue:  # as in CEL
    """Return the value for a version, without its build; raises ValueError.

    `normalize` accepts a first "v", less than three numbers, and zeros in front of them.
    """
    given = _normal(text) if normalize else text
    found = _FORM.fullmatch(given)
    if found is None:
        raise ValueError(f"{text!r} is not a semantic version")
    return {_SEMVER: given.partition("+")[0]}


def _normal(text: str) -> str:
    end = next((n for n, letter in enumerate(text) if letter in "+-"), len(text))
    numbers = [_LEADING_ZEROS.sub("", one) for one in text[:end].removeprefix("v").split(".")]
    return ".".join([*numbers, "0", "0"][: max(3, len(numbers))]) + text[end:]


def is_semver(text: str, normalize: bool = False) -> bool:  # as in CEL
    try:
        return bool(semver(text, normalize))
    except ValueError:
        return False


def compare(one: Mapping[str, str], other: Mapping[str, str]) -> int:
    """Return -1, 0 or 1: of two quantities, or of two versions by their precedence."""
    if _QUANTITY in one:
        first, second = _number(one), _number(other)
        return (first > second) - (first < second)
    ours, theirs = _precedence(one), _precedence(other)
    return (ours > theirs) - (ours < theirs)


def _precedence(value: Mapping[str, str]) -> tuple[object, ...]:
    numbers, dash, rest = _of_kind(value, _SEMVER).partition("-")
    parts = rest.split(".") if dash else []
    words = [(0, int(one), "") if one.isdecimal() else (1, 0, one) for one in parts]
    return (*map(int, numbers.split(".")), not words, words)


def _number(value: Mapping[str, str]) -> Fraction:
    from fractions import Fraction

    return Fraction(_of_kind(value, _QUANTITY))


def _of_kind(value: Mapping[str, str], kind: str) -> str:
    if kind not in value:
        raise ValueError(f"no such overload: the value is not a {kind}")
    return value[kind]


def _sum(value: Mapping[str, str], other: Mapping[str, str] | int, sign: int) -> CelValue:
    more = other if isinstance(other, int) else _number(other)
    return {_QUANTITY: str(_number(value) + sign * more)}


def _is_integer(value: Mapping[str, str]) -> bool:
    number = _number(value)
    return number.denominator == 1 and abs(number) <= _LARGEST


def _integer(value: Mapping[str, str]) -> int:
    if not _is_integer(value):
        raise ValueError("cannot convert value to integer")
    return int(_number(value))


def _part(index: int) -> Callable[[Mapping[str, str]], int]:
    return lambda value: int(re.split(r"[.-]", _of_kind(value, _SEMVER))[index])


# Name -> [(types of the parameters, type of the result, function)]; the first parameter of MEMBERS
# is in front of the dot. "map" is a quantity or a version.
FUNCTIONS: dict[str, list[tuple[str, str, Callable[..., object]]]] = {
    "quantity": [("string", "map", quantity)],
    "isQuantity": [("string", "bool", is_quantity)],
    "semver": [("string", "map", semver), ("string bool", "map", semver)],
    "isSemver": [("string", "bool", is_semver), ("string bool", "bool", is_semver)],
}
MEMBERS: dict[str, list[tuple[str, str, Callable[..., object]]]] = {
    "compareTo": [("map map", "int", compare)],
    "isGreaterThan": [("map map", "bool", lambda one, other: compare(one, other) > 0)],
    "isLessThan": [("map map", "bool", lambda one, other: compare(one, other) < 0)],
    "add": [(form, "map", lambda a, b: _sum(a, b, 1)) for form in ("map map", "map int")],
    "sub": [(form, "map", lambda a, b: _sum(a, b, -1)) for form in ("map map", "map int")],
    "sign": [("map", "int", lambda one: (_number(one) > 0) - (_number(one) < 0))],
    "isInteger": [("map", "bool", _is_integer)],
    "asInteger": [("map", "int", _integer)],
    "asApproximateFloat": [("map", "double", lambda one: float(_number(one)))],
    "major": [("map", "int", _part(0))],
    "minor": [("map", "int", _part(1))],
    "patch": [("map", "int", _part(2))],
}
