# SPDX-License-Identifier: Apache-2.0
"""Device programs decoded into rules, for people; only programs of the usual form.

Pure. runc, crun, systemd and program() write one section for each rule: tests that jump past it
when they fail, then the verdict. A program of another form is not decoded, only executed.
"""

from __future__ import annotations

from gpuhook.kernel.bpf.device_filter import BITS, TYPES, Rule
from gpuhook.kernel.bpf.instructions import (
    ALU,
    ALU64,
    AND32_IMM,
    AND64_IMM,
    EXIT,
    JA,
    JEQ_IMM,
    JNE_IMM,
    JNE_REG,
    LDX_H,
    LDX_W,
    MOV32_REG,
    MOV64_IMM,
    MOV64_REG,
    RSH32_IMM,
    UnknownCodeError,
    instructions,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.kernel.bpf.instructions import Instruction

_MOV32_IMM = 0xB4
_RSH64_IMM = 0x77
_LOADS = {
    (LDX_W, 0): "both",
    (LDX_H, 0): "type",
    (LDX_H, 2): "access",
    (LDX_W, 4): "major",
    (LDX_W, 8): "minor",
}


class _Section:
    """The rule that is being read: its tests so far, and the target of failed tests."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.access = 7
        self.past: int | None = None

    def test(self, at: int, one: Instruction) -> None:
        """Record that a failed test jumps past the section."""
        target = at + 1 + one.off
        if self.past not in (None, target) or target <= at:
            raise UnknownCodeError("the tests of one rule lead to several places")
        self.past = target

    def rule(self, allow: int) -> Rule:
        """Return the rule; raises UnknownCodeError for a type that devices do not have."""
        types = {number: letter for letter, number in TYPES.items()}
        kind = self.numbers.get("type")
        if kind is not None and kind not in types:
            raise UnknownCodeError("no such type of device")
        access = "".join(letter for letter, bit in BITS.items() if self.access & bit)
        numbers = self.numbers.get("major"), self.numbers.get("minor")
        return Rule(bool(allow), "a" if kind is None else types[kind], *numbers, access)


def decode(code: bytes) -> list[Rule] | None:
    """Return the rules of a program, in the order in which the last matching rule wins.

    The first rule is the default. None if the program has another form.
    """
    try:
        return _decode(instructions(code))
    except (UnknownCodeError, IndexError):
        return None


def _decode(program: list[Instruction]) -> list[Rule]:
    registers: dict[int, tuple[str, int]] = {}
    rules: list[Rule] = []
    section = _Section()
    at = 0
    while at < len(program):
        one = program[at]
        if one.code in (JNE_IMM, JEQ_IMM, JNE_REG):
            section.test(at, one)
            _test(one, registers, section)
            at += 1
            continue
        if one.code == JA or _is_verdict(one, program, at):
            rules.append(section.rule(_verdict(program, at)))
            if section.past is None:
                return rules[::-1]
            at, section = section.past, _Section()
            continue
        _follow(one, registers)
        at += 1
    raise UnknownCodeError("no verdict at the end")


def _is_verdict(one: Instruction, program: list[Instruction], at: int) -> bool:
    is_constant = one.code in (MOV64_IMM, _MOV32_IMM) and one.dst == 0
    return is_constant and program[at + 1].code in (EXIT, JA)


def _verdict(program: list[Instruction], at: int) -> int:
    """Return the constant that the program returns from here on."""
    value: int | None = None
    for _ in program:
        one = program[at]
        if one.code == EXIT and value is not None:
            return value
        if one.code in (MOV64_IMM, _MOV32_IMM) and one.dst == 0:
            value = one.imm
        elif one.code != JA:
            break
        at += 1 + (one.off if one.code == JA else 0)
    raise UnknownCodeError("a verdict that is no constant")


def _follow(one: Instruction, registers: dict[int, tuple[str, int]]) -> None:
    """Track what a register holds: a part of the context, and a mask over it."""
    held = registers.get(one.dst)
    if one.code & 7 == 1 and one.src == 1 and (one.code, one.off) in _LOADS:
        registers[one.dst] = (_LOADS[one.code, one.off], -1)
    elif one.code in (MOV32_REG, MOV64_REG) and one.src in registers:
        registers[one.dst] = registers[one.src]
    elif one.code in (AND32_IMM, AND64_IMM) and held == ("both", -1) and one.imm == 0xFFFF:
        registers[one.dst] = ("type", -1)
    elif one.code in (RSH32_IMM, _RSH64_IMM) and held == ("both", -1) and one.imm == 16:
        registers[one.dst] = ("access", -1)
    elif one.code in (AND32_IMM, AND64_IMM) and held is not None and held[0] == "access":
        # Bits that a rule has decided (R3 of program()) are tested and forgotten.
        registers[one.dst] = ("access", one.imm)
    elif one.code & 7 in (ALU, ALU64):
        raise UnknownCodeError("arithmetic of another kind")
    else:
        raise UnknownCodeError("an instruction of another kind")


def _test(one: Instruction, registers: dict[int, tuple[str, int]], section: _Section) -> None:
    """Record what a test requires of the device or the access."""
    field, mask = registers.get(one.dst, ("", -1))
    if one.code == JNE_REG:
        if field != "access" or registers.get(one.src) != ("access", -1):
            raise UnknownCodeError("a comparison of another kind")
        section.access = mask & 7
    elif field == "access" and one.imm == 0:
        section.access = (~mask if one.code == JNE_IMM else mask) & 7
        registers[one.dst] = ("access", -1)
    elif one.code == JNE_IMM and field in ("type", "major", "minor"):
        section.numbers[field] = one.imm
    else:
        raise UnknownCodeError("a test of another kind")
