# SPDX-License-Identifier: Apache-2.0
"""Short forms of device names, compared with the rules of docs/reference/requests.md."""

from __future__ import annotations

import re

from hypothesis import event, given
from hypothesis import strategies as st

from gpuhook.vendors.nvidia.hot.device_names import short_names
from tests.refusal import refused

DIGITS = "0123456789abcdef"
# Two of the UUIDs begin alike.
HEAD = st.sampled_from(["00000000", "0a1b2c3d", "ffffffff"])
TAIL = st.text(DIGITS, min_size=12, max_size=12)
UUID = st.tuples(st.sampled_from(["GPU-", "MIG-"]), HEAD, st.just("-0000-4000-8000-"), TAIL).map(
    "".join
)
UUIDS = st.lists(UUID, unique=True, max_size=5)
PIECES = st.sampled_from([*"0123789afAF-:.;, ", "GPU-", "gpu-", "MIG-", "0a1b2c3d", "00000000"])
NAMES = st.lists(PIECES, max_size=6).map("".join) | st.text(max_size=12)


def oracle(name: str, uuids: list[str]) -> list[str] | None:
    """Return the full names of a name by the rules; None if it is ambiguous."""
    if re.fullmatch("0+[0-9]+", name):
        return [re.sub("^0+(?=.)", "", name)]
    if found := re.fullmatch("(0|[1-9][0-9]*)-([1-9][0-9]*)", name):
        first, last = map(int, found.groups())
        return [str(n) for n in range(first, last + 1)] if first < last <= first + 4095 else []
    if re.fullmatch("[0-9a-f]{2}:[0-9a-f]{2}[.][0-7]", name, re.IGNORECASE | re.ASCII):
        return ["0000:" + name.lower()]
    if re.match("(gpu|mig)-[0-9a-f]{8}", name, re.IGNORECASE | re.ASCII):
        matches = [one for one in uuids if one.lower().startswith(name.lower())]
        return matches if len(matches) < 2 else None
    return []


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, list[str]]:
    uuids = draw(UUIDS)
    beginnings = [one[:size] for one in uuids for size in range(4, len(one) + 1)]
    name = draw(st.sampled_from(beginnings) | NAMES if beginnings else NAMES)
    return draw(st.sampled_from([name, name.upper(), name.lower()])), uuids


@given(requests())
def test_full_names_follow_the_rules(request: tuple[str, list[str]]) -> None:
    name, uuids = request
    # The known names also have the UUIDs in lower case.
    known = [*map(str.lower, uuids), "0", "gpu0", "0000:1a:00.0", *uuids]
    expected = oracle(name, uuids)
    event("several" if expected is None else "none" if not expected else "found")
    if expected is not None:
        assert short_names.full_names(name, lambda: known) == expected
        return
    with refused("GH1060") as caught:
        short_names.full_names(name, lambda: known)
    matches = [one for one in uuids if one.lower().startswith(name.lower())]
    assert all(one in caught.value.message for one in matches)


@given(st.integers(0, 9999), st.integers(0, 9999))
def test_range_is_expanded_to_its_indices(first: int, last: int) -> None:
    found = short_names.full_names(f"{first}-{last}", list)
    assert len(found) <= 4096
    assert found == (list(map(str, range(first, last + 1))) if 0 < last - first < 4096 else [])


@given(st.text() | NAMES)
def test_advice_is_printable(name: str) -> None:
    assert short_names.advice(name, "a variable", ["0", "all"]).isprintable()
