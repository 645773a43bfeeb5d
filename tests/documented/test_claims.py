# SPDX-License-Identifier: Apache-2.0
"""Each command line of the documentation is run by one scenario, or is in NOT_RUN."""

from __future__ import annotations

import re

import pytest

from tests.documented import claims
from tests.documented.claims import NOT_RUN, SCENARIOS
from tests.documented.command_lines import PAGES, lines_in, other_blocks
from tests.documented.running import missing_lines

LINES = claims.own_lines()
PROGRAMS = {re.sub(r"^sudo ", "", line.words).split()[0] for line in LINES} - {"cd", "[", "{"}
TEXT = """
```sh
cd /etc                            # comment
for one in a; do
    echo "$one" |
        cat
done
a \\
    b   # comment
```
```console
$ first --x
output

more
$ second
```
"""


def test_each_line_is_claimed_once() -> None:
    """claims.py says how to claim one."""
    assert [
        f"{line}: {claims.claims(line)}" for line in LINES if len(claims.claims(line)) != 1
    ] == []


@pytest.mark.parametrize("name", [*SCENARIOS, *NOT_RUN])
def test_each_pattern_claims_a_line(name: str) -> None:
    used = {
        (line.page, pattern)
        for line in LINES
        for one, pattern in claims.claims(line)
        if one == name
    }
    table = SCENARIOS.get(name) or NOT_RUN[name]
    assert {(page, one) for page, patterns in table.items() for one in patterns} == used


@pytest.mark.parametrize("page", PAGES)
def test_command_lines_are_in_blocks_of_their_kind(page: str) -> None:
    """A command in a block without a language, or an indented one, would not be found."""
    for block in other_blocks(page):
        first = {line.split()[0] for line in block.splitlines() if line.strip()}
        assert not first & (PROGRAMS | {"$", "sudo"}), block


def test_lines_of_blocks() -> None:
    found = list(lines_in(TEXT, "page"))
    assert [line.words for line in found] == [
        "cd /etc", 'for one in a; do echo "$one" | cat done', "a b", "first --x", "second"
    ]  # fmt: skip
    assert [line.number for line in found] == [3, 4, 8, 12, 16]
    assert found[2].state == tuple(line.text for line in found[:2])
    assert found[3].shown == ("output", "", "more")


@pytest.mark.parametrize(
    ("shown", "missing"),
    [
        (["a 12 b-3f/x", "...", "end"], []),
        (["end", "a 12 b-3f/x"], ["a 12 b-3f/x"]),
        (["a ... b-3f/x"], []),
        (["other 12 b"], ["other 12 b"]),
        (["a 12 b-3f"], ["a 12 b-3f"]),
    ],
)
def test_output_is_compared(shown: list[str], missing: list[str]) -> None:
    assert missing_lines(shown, "first\n  a   7  b-04c/x\nend\n") == missing
