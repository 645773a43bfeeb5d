# SPDX-License-Identifier: Apache-2.0
"""BPF instructions whose constants the kernel has blinded, restored as they were loaded.

Pure. With net.core.bpf_jit_harden, the kernel stores each constant as two values that the program
combines at run time, in a register that no program may use, and shows the program in that form.
Source: bpf_jit_blind_insn() in kernel/bpf/core.c.
"""

from __future__ import annotations

from gpuhook.kernel.bpf.instructions import (
    ALU,
    ALU64,
    CALL,
    EXIT,
    JMP,
    JMP32,
    MOV64_IMM,
    REGISTER,
    UnknownCodeError,
    encoded,
    instructions,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.kernel.bpf.instructions import Instruction

_HIDDEN = 11  # BPF_REG_AX
_MOV = 0xB0
_XOR = 0xA0


def unblinded(code: bytes) -> bytes:
    """Return a program with its constants restored; unchanged if none is blinded.

    Instructions of an unknown form are kept: the program then still names the hidden register.
    """
    shown = instructions(code)
    if not any(_HIDDEN in (one.dst, one.src) for one in shown):
        return code
    starts: dict[int, int] = {}
    made: list[tuple[int, Instruction]] = []
    at = 0
    while at < len(shown):
        starts[at] = len(made)
        length, one = _plain(shown, at)
        made.append((at + length, one))
        at += length
    starts[at] = len(made)
    for number, (end, one) in enumerate(made):
        if one.code & 7 in (JMP, JMP32) and one.code not in (CALL, EXIT):
            if end + one.off not in starts:
                raise UnknownCodeError("a jump into the middle of a hidden constant")
            one.off = starts[end + one.off] - number - 1
    return b"".join(encoded(o.code, o.dst, o.src, o.off, o.imm) for _, o in made)


def _plain(shown: list[Instruction], at: int) -> tuple[int, Instruction]:
    """Return how many instructions at `at` represent one instruction, and that instruction."""
    one = shown[at]
    if one.code & 7 in (ALU, ALU64) and one.code & 0xF8 == _XOR | REGISTER and one.dst == one.src:
        # The kernel's way to write 0: loaded again, it would read an uninitialised register.
        one.code, one.src = MOV64_IMM, 0
        return 1, one
    if len(shown) - at < 3:
        return 1, one
    mixed, user = shown[at + 1 : at + 3]
    is_hidden = (one.dst, mixed.dst, user.src) == (_HIDDEN,) * 3 and user.code & REGISTER
    if is_hidden and (one.code & 0xF8, mixed.code & 0xF8) == (_MOV, _XOR):
        user.code &= ~REGISTER
        user.src, user.imm = 0, one.imm ^ mixed.imm
        return 3, user
    return 1, one
