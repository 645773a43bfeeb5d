# SPDX-License-Identifier: Apache-2.0
"""BPF instructions: encoding, decoding and executing them.

Pure. Knows the instructions of device programs: arithmetic, jumps and loads from the context; no
maps, no helper functions. Source: linux/bpf.h, the kernel's
Documentation/bpf/standardization/instruction-set.rst.
"""

from __future__ import annotations

import struct

SIZE = 8

LDX_W = 0x61
LDX_H = 0x69
LDX_B = 0x71
LD_IMM64 = 0x18
ALU = 0x04
JMP = 0x05
JMP32 = 0x06
ALU64 = 0x07
REGISTER = 0x08
MOV64_IMM = 0xB7
MOV64_REG = 0xBF
MOV32_REG = 0xBC
AND32_IMM = 0x54
AND64_IMM = 0x57
RSH32_IMM = 0x74
JA = 0x05
JEQ_IMM = 0x15
JNE_IMM = 0x55
JNE_REG = 0x5D
CALL = 0x85
EXIT = 0x95

_LAYOUT = struct.Struct("<BBhi")
_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF
_LOADS = {LDX_W: 4, LDX_H: 2, LDX_B: 1}
_MOST_STEPS = 1 << 16
_LAST_REGISTER = 10


class UnknownCodeError(ValueError):
    """A program has an instruction that only the kernel can execute or relocate."""


class Instruction:
    """One instruction, its parts named as in linux/bpf.h."""

    __slots__ = ("code", "dst", "imm", "off", "src")

    def __init__(self, code: int, dst: int, src: int, off: int, imm: int) -> None:
        self.code = code
        self.dst = dst
        self.src = src
        self.off = off
        self.imm = imm


def encoded(code: int, dst: int = 0, src: int = 0, off: int = 0, imm: int = 0) -> bytes:
    """Return one instruction as bytes."""
    return _LAYOUT.pack(code, dst | src << 4, off, imm)


def instructions(code: bytes) -> list[Instruction]:
    """Return the instructions of a program; raises UnknownCodeError if it is truncated."""
    if len(code) % SIZE:
        raise UnknownCodeError("the program ends in the middle of an instruction")
    return [
        Instruction(op, registers & 15, registers >> 4, off, imm)
        for op, registers, off, imm in _LAYOUT.iter_unpack(code)
    ]


def is_portable(code: bytes) -> bool:
    """Return whether a program that the kernel showed can be loaded again unchanged.

    A program with maps or calls cannot, since the kernel shows its own addresses in their place. A
    blinded one cannot, since it uses a register that programs may not use.
    """
    skip = False
    for one in instructions(code):
        if skip:
            skip = False
        elif one.code == LD_IMM64:
            skip = True
            if one.src:
                return False
        elif one.code == CALL or one.dst > _LAST_REGISTER or one.src > _LAST_REGISTER:
            return False
    return True


def result(code: bytes, context: bytes) -> int:
    """Return what a program returns for `context`, the bytes that R1 points to.

    Raises UnknownCodeError for an instruction that is not one of a device program.
    """
    program = instructions(code)
    registers = [0] * 16  # as many as an instruction can name
    at = 0
    for _ in range(_MOST_STEPS):
        if not 0 <= at < len(program):
            raise UnknownCodeError(f"the program leaves itself at instruction {at}")
        one = program[at]
        if one.code == EXIT:
            return registers[0] & _MASK32
        at += 1 + _step(one, program[at + 1 : at + 2], registers, context)
    raise UnknownCodeError("the program does not end")


def _step(
    one: Instruction, following: list[Instruction], registers: list[int], context: bytes
) -> int:
    """Execute an instruction, and return how many to skip."""
    kind = one.code & 7
    if one.code in _LOADS:
        # R1 is the address of the context, which is 0 here.
        start = registers[one.src] + one.off
        if not 0 <= start <= len(context) - _LOADS[one.code]:
            raise UnknownCodeError(f"a load from {start}, outside of the context")
        field = context[start : start + _LOADS[one.code]]
        registers[one.dst] = int.from_bytes(field, "little")
        return 0
    if one.code == LD_IMM64 and one.src == 0 and following:
        registers[one.dst] = (one.imm & _MASK32) | (following[0].imm & _MASK32) << 32
        return 1
    if kind in (ALU, ALU64):
        registers[one.dst] = _arithmetic(one, registers)
        return 0
    if kind in (JMP, JMP32):
        return one.off if one.code == JA or _jumps(one, registers) else 0
    raise UnknownCodeError(f"instruction {one.code:#04x} is not one of a device program")


def _operands(one: Instruction, registers: list[int], *, wide: bool) -> tuple[int, int]:
    mask = _MASK64 if wide else _MASK32
    other = registers[one.src] if one.code & REGISTER else one.imm
    return registers[one.dst] & mask, other & mask


def _arithmetic(one: Instruction, registers: list[int]) -> int:
    wide = one.code & 7 == ALU64
    bits = 64 if wide else 32
    left, right = _operands(one, registers, wide=wide)
    results = {
        0: left + right,
        1: left - right,
        2: left * right,
        4: left | right,
        5: left & right,
        6: left << (right % bits),
        7: left >> (right % bits),
        10: left ^ right,
    }
    if one.off == 0:
        results[11] = right
    if one.code >> 4 not in results:
        raise UnknownCodeError(f"arithmetic {one.code:#04x} is not one of a device program")
    return results[one.code >> 4] & ((1 << bits) - 1)


def _jumps(one: Instruction, registers: list[int]) -> bool:
    left, right = _operands(one, registers, wide=one.code & 7 == JMP)
    outcomes = {
        1: left == right,
        2: left > right,
        3: left >= right,
        4: left & right != 0,
        5: left != right,
        10: left < right,
        11: left <= right,
    }
    if one.code >> 4 not in outcomes:
        raise UnknownCodeError(f"jump {one.code:#04x} is not one of a device program")
    return outcomes[one.code >> 4]
