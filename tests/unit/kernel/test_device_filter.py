# SPDX-License-Identifier: Apache-2.0
"""Device rules in all their spellings, and unusual BPF programs."""

from __future__ import annotations

import pytest

from gpuhook.kernel.bpf import instructions
from gpuhook.kernel.bpf.blinding import unblinded
from gpuhook.kernel.bpf.device_decode import decode
from gpuhook.kernel.bpf.device_filter import ALLOW_ALL, Rule, evaluate, prepend, program, split
from gpuhook.kernel.bpf.instructions import (
    CALL,
    EXIT,
    JA,
    LD_IMM64,
    LDX_W,
    MOV64_IMM,
    UnknownCodeError,
    encoded,
    is_portable,
    result,
)

WIDE = encoded(LD_IMM64, 0, imm=1) + encoded(0)
DENY = encoded(MOV64_IMM, 0) + encoded(EXIT)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"allow": False, "access": "rwm"}, Rule(False, "a", None, None)),
        ({"allow": True, "type": "c", "major": 195, "minor": -1, "access": "wr"}, "c 195:* rw"),
        ({"allow": True, "type": "u", "major": 1, "minor": 3, "access": "r"}, "c 1:3 r"),
        ({"allow": True, "type": "b", "major": 8, "minor": None, "access": "m"}, "b 8:* m"),
        ({"allow": False, "type": "c", "major": 1, "minor": 3}, Rule(False, "c", 1, 3)),
        ({"allow": True, "type": "c", "major": 1, "minor": 3}, Rule(True, "c", 1, 3, "")),
    ],
)
def test_rules_of_a_config_json(entry: dict[str, object], expected: Rule | str) -> None:
    """An entry of linux.resources.devices is read as runtimes read it."""
    rule = Rule.of_oci(entry)
    assert rule == (Rule.of_line(expected) if isinstance(expected, str) else expected)
    assert evaluate([rule], "c", "r", 1, 3, default=False) == (expected == "c 1:3 r")


def test_rules_of_cgroup_v1() -> None:
    """A line is parsed to a rule and printed; rules are compared, sorted and hashed."""
    lines = ["a *:* rwm", "b *:* m", "c 1:3 rwm", "c 195:* rw"]
    rules = [Rule.of_line(line) for line in lines]
    assert [rule.line for rule in sorted({*rules})] == lines
    assert len({*rules, *(Rule.of_line(line) for line in lines)}) == len(lines)
    assert rules[2] != Rule.of_line("c 1:3 rwm", allow=False)
    with pytest.raises(ValueError, match="unpack"):
        Rule.of_line("c 1:3")


def test_rule_with_wildcards_is_not_added() -> None:
    """Without rules there is no block of instructions."""
    for line in ("c 195:* rw", "c *:0 rw", "a 195:0 rw"):
        with pytest.raises(ValueError, match="names one device"):
            prepend([Rule.of_line(line)], ALLOW_ALL)
    assert prepend([Rule(True, "c", 195, 0, "")], DENY) == DENY
    assert split(DENY) == ([], DENY)


def test_out_of_range_numbers_are_ignored() -> None:
    """A rule with a number that does not fit an instruction has no effect."""
    code = program([Rule(True, "c", 1 << 40, 0)], default=False)
    assert decode(code) == [Rule(False, "a", None, None)]


@pytest.mark.parametrize(
    "code",
    [
        encoded(EXIT)[:5],
        encoded(CALL, imm=5) + DENY,
        encoded(0x7A, 10, off=-8) + DENY,
        encoded(LDX_W, 0, 1, 12) + DENY,
        encoded(JA, off=-1),
        encoded(JA, off=9),
        encoded(0x97, 0, imm=2) + DENY,
        encoded(0x65, 0, imm=2) + DENY,
    ],
    ids=["cut", "call", "store", "outside", "endless", "away", "modulo", "signed"],
)
def test_unknown_instructions_are_an_error(code: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says that only the kernel can run them; they are not decoded."""
    monkeypatch.setattr(instructions, "_MOST_STEPS", 100)
    with pytest.raises(UnknownCodeError):
        result(code, bytes(12))
    assert decode(code) is None


def test_programs_that_can_be_loaded_again() -> None:
    """Those with constants of any size; not those with calls, maps or the hidden register."""
    assert is_portable(WIDE + encoded(EXIT))
    assert result(WIDE + encoded(EXIT), bytes(12)) == 1
    assert not is_portable(encoded(CALL, imm=5) + DENY)
    assert not is_portable(encoded(LD_IMM64, 1, 1) + encoded(0) + DENY)
    assert not is_portable(encoded(MOV64_IMM, 11) + DENY)


def test_hidden_constants_that_cannot_be_resolved() -> None:
    """A jump into the middle of one is an error; a single use of the register is kept."""
    hidden = encoded(MOV64_IMM, 11, imm=5) + encoded(0xA7, 11, imm=4) + encoded(0xBF, 0, 11)
    assert unblinded(hidden + encoded(EXIT)) == encoded(MOV64_IMM, 0, imm=1) + encoded(EXIT)
    with pytest.raises(UnknownCodeError):
        unblinded(encoded(JA, off=1) + hidden + encoded(EXIT))
    alone = encoded(MOV64_IMM, 11, imm=5) + DENY
    assert unblinded(alone) == alone
