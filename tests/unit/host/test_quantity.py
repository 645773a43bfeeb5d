# SPDX-License-Identifier: Apache-2.0
"""Quantities and amounts of memory as Kubernetes writes them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gpuhook.host.quantity import likely_unit, memory_bytes, quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", Fraction(1)),
        ("-500m", Fraction(-1, 2)),
        ("2Gi", Fraction(2 << 30)),
        ("1e3", Fraction(1000)),
        ("1E", Fraction(10**18)),
        (".5", Fraction(1, 2)),
        ("1e", None),
        ("1e99", None),
        ("1GiB", None),
        ("", None),
    ],
)
def test_quantity(text: str, number: Fraction | None) -> None:
    assert quantity(text) == number


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (0, 0),
        (4096, 4096),
        ("512Mi", 512 << 20),
        ("0.5", 1),
        ("1e-3", 1),
        (True, None),
        (-1, None),
        (1.5, None),
        (2**63, None),
        ("8Ei", None),
        ("512m", None),
        ("+1Gi", None),
        (" 1Gi", None),
        (None, None),
        ([], None),
    ],
)
def test_memory_bytes(value: object, number: int | None) -> None:
    """Parts of a byte round up; signs, suffixes below one and more than 63 bits are refused."""
    assert memory_bytes(value) == number


def test_likely_unit() -> None:
    assert [likely_unit(number) for number in (1, 255, 256)] == ["Gi", "Gi", "Mi"]
