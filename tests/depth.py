# SPDX-License-Identifier: Apache-2.0
"""What the everyday suite leaves to `make test-all`: combinations, kill points, random examples.

`make test` runs each test with representative cases; GPUHOOK_TESTS=all in the environment asks for
all of them, more rounds and random examples. What is asserted of a case is the same in both.

A case that is skipped has the marker `thorough`. Three ways lead there:
- `representative()`: of a test's combinations, those whose values occur in the module already;
- `cases()`: the values of a parameter that are not named as everyday ones;
- `@pytest.mark.thorough` at a test whose faults others would find as well.

`make soak` (GPUHOOK_TESTS=soak) runs the tests with the marker `soak` for as many rounds as the
third number of `depth()` has, or for the share GPUHOOK_SOAK_SHARE of them (0.1: a tenth).
"""

from __future__ import annotations

import os
import zlib
from collections import defaultdict
from dataclasses import dataclass

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

IS_SOAK = os.environ.get("GPUHOOK_TESTS") == "soak"
IS_ALL = IS_SOAK or os.environ.get("GPUHOOK_TESTS") == "all"
SHARE = float(os.environ.get("GPUHOOK_SOAK_SHARE", "1"))
THOROUGH = pytest.mark.thorough


@dataclass(frozen=True)
class Part:
    """Part K of N of the tests that `make test-all` runs, or runs further: "K/N"."""

    text: str

    def __post_init__(self) -> None:
        """Raise ValueError for what is not the number of a part."""
        number, count = map(int, self.text.split("/"))
        if not 1 <= number <= count:
            raise ValueError(self.text)

    def __contains__(self, item: pytest.Item) -> bool:
        """Return whether a test is in the part: a test's name decides."""
        number, count = map(int, self.text.split("/"))
        return goes_further(item) and zlib.crc32(item.nodeid.encode()) % count == number - 1


def below(folder: Path, items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests of a folder."""
    start = f"{folder}/"
    return [item for item in items if str(item.path).startswith(start)]


def goes_further(item: pytest.Item) -> bool:
    """Return whether `make test-all` runs more of this test than the everyday suite does."""
    function = getattr(item, "function", None)
    has_depth = getattr(getattr(item, "module", None), "depth", None) is depth
    is_random = getattr(function, "is_hypothesis_test", False)
    return has_depth or is_random or item.get_closest_marker("thorough") is not None


def depth(everyday: int, whole: int, soak: int | None = None) -> int:
    """Return the number of rounds or examples, or the stride, of this run."""
    if IS_SOAK and soak is not None:
        return max(round(soak * SHARE), 1)
    return whole if IS_ALL else everyday


def cases(values: Iterable[object], everyday: Collection[object]) -> list[object]:
    """Return the values for parametrize(); those that are not in `everyday` are thorough."""
    return [value if value in everyday else _thorough(value) for value in values]


def every(stride: int, values: Iterable[object]) -> list[object]:
    """Return the values for parametrize(): the first of each `stride` is an everyday one."""
    return [_thorough(v) if index % stride else v for index, v in enumerate(values)]


def representative(items: Iterable[pytest.Item], most: int) -> None:
    """Mark as thorough the cases that the everyday suite does not need.

    In the cases of a module that are left, each value of each parameter occurs at least once: a
    test has a second case only for values that no test before it has, and at most `most` cases.
    A test with the marker `every_case` keeps one for each of its values.
    """
    modules: dict[str, dict[str, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        if hasattr(item, "callspec") and item.get_closest_marker("thorough") is None:
            function = item.nodeid.partition("[")[0]
            modules[function.partition("::")[0]][function].append(item)
    for functions in modules.values():
        covered: set[tuple[str, str]] = set()
        for group in functions.values():
            is_whole = group[0].get_closest_marker("every_case") is not None
            kept = _cover(group, set() if is_whole else covered, len(group) if is_whole else most)
            covered |= set().union(*(_values(item) for item in kept))
            for item in group:
                if item not in kept:
                    item.add_marker(THOROUGH)


def _cover(items: list[pytest.Item], covered: set[tuple[str, str]], most: int) -> list[pytest.Item]:
    """Return one to `most` cases with values that are not covered; of equals, names decide."""
    left = {item: _values(item) for item in sorted(items, key=_shuffled)}
    missing = set().union(*left.values()) - covered
    chosen: list[pytest.Item] = []
    while not chosen or (missing and len(chosen) < most):
        best = max(left, key=lambda item: len(left[item] & missing))
        missing -= left.pop(best)
        chosen.append(best)
    return chosen


def _shuffled(item: pytest.Item) -> int:
    return zlib.crc32(item.nodeid.encode())


def _values(item: pytest.Item) -> set[tuple[str, str]]:
    parameters = item.callspec.params  # type: ignore[attr-defined] # a parametrized test's
    return {(name, repr(value)) for name, value in parameters.items()}


def _thorough(value: object) -> object:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=THOROUGH)
