# SPDX-License-Identifier: Apache-2.0
"""Device rules, and the BPF programs of cgroup v2 that are made of them.

Pure: nothing here is loaded, see bpf_syscall.py. A rule list has the semantics of
linux.resources.devices in the OCI runtime specification and of the files of cgroup v1: **the last
rule that names a kind of access (read, write, mknod) and the device decides that kind; a request
for several kinds is allowed if each of them is.** A program's context and its constants are those
of BPF_PROG_TYPE_CGROUP_DEVICE in linux/bpf.h.

gpuhook adds a block in front of another tool's program, between two marks. The block decides what
its rules name, and leaves everything else to the old program, whose context register R1 it does not
change.
"""

from __future__ import annotations

import struct

from gpuhook.kernel.bpf.instructions import (
    AND32_IMM,
    AND64_IMM,
    EXIT,
    JEQ_IMM,
    JNE_IMM,
    LDX_W,
    MOV64_IMM,
    MOV64_REG,
    RSH32_IMM,
    SIZE,
    encoded,
    instructions,
    result,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from gpuhook.kernel.bpf.instructions import Instruction

ALLOW_ALL = encoded(MOV64_IMM, 0, imm=1) + encoded(EXIT)
BITS = {"m": 1, "r": 2, "w": 4}
TYPES = {"b": 1, "c": 2}

# Both are constants that no other program is likely to put into R0 before anything else.
_BEGIN = encoded(MOV64_IMM, 0, imm=0x67707568)
_END = encoded(MOV64_IMM, 0, imm=0x6B6F6F68)
# R2 type, R3 access, R4 major, R5 minor.
_PROLOGUE = b"".join(
    [
        encoded(LDX_W, 2, 1),
        encoded(MOV64_REG, 3, 2),
        encoded(AND32_IMM, 2, imm=0xFFFF),
        encoded(RSH32_IMM, 3, imm=16),
        encoded(LDX_W, 4, 1, 4),
        encoded(LDX_W, 5, 1, 8),
    ]
)
_ALL_BITS = 7


class Rule:
    """One rule: which access to which devices is allowed or denied.

    `type` is "c", "b" or "a" for both; a number that is None matches every number; `access` is a
    part of "rwm", in that order.
    """

    __slots__ = ("access", "allow", "major", "minor", "type")

    def __init__(
        self,
        allow: bool,
        type: str,  # noqa: A002  # the word of the specification
        major: int | None,
        minor: int | None,
        access: str = "rwm",
    ) -> None:
        self.allow = allow
        self.type = type
        self.major = major
        self.minor = minor
        self.access = "".join(letter for letter in "rwm" if letter in access)

    @classmethod
    def of_oci(cls, entry: Mapping[str, Any]) -> Rule:
        """Return the rule of an entry of linux.resources.devices.

        Negative numbers are wildcards, as in runtimes; a rule without an access denies every kind,
        or allows none.
        """
        allow = entry.get("allow") is True
        numbers = [entry.get(key) for key in ("major", "minor")]
        major, minor = (n if isinstance(n, int) and n >= 0 else None for n in numbers)
        access = entry.get("access") or ("" if allow else "rwm")
        kind = entry.get("type") or "a"
        return cls(allow, "c" if kind == "u" else str(kind), major, minor, str(access))

    @classmethod
    def of_line(cls, line: str, *, allow: bool = True) -> Rule:
        """Return the rule of a line of cgroup v1's devices.list; raises ValueError."""
        kind, numbers, access = line.split()
        major, minor = (None if n == "*" else int(n) for n in numbers.split(":"))
        return cls(allow, kind, major, minor, access)

    @property
    def line(self) -> str:
        """Return the rule in the form of cgroup v1's files: "c 195:* rw"."""
        major, minor = ("*" if n is None else n for n in (self.major, self.minor))
        return f"{self.type} {major}:{minor} {self.access}"

    @property
    def bits(self) -> int:
        """Return the access as the bits of linux/bpf.h."""
        return bits_of(self.access)

    @property
    def device(self) -> tuple[str, int, int]:
        """Return type, major and minor of a rule for one device; ValueError for other rules."""
        if self.type not in TYPES or self.major is None or self.minor is None:
            raise ValueError(f"{self.line}: a rule of gpuhook's names one device")
        return self.type, self.major, self.minor

    @property
    def is_everything(self) -> bool:
        """Return whether the rule decides every request."""
        anything = self.type == "a" and self.major is None and self.minor is None
        return anything and self.bits == _ALL_BITS

    def names(self, kind: str, major: int, minor: int) -> bool:
        """Return whether the rule names a device."""
        return (
            self.type in ("a", kind) and self.major in (None, major) and self.minor in (None, minor)
        )

    def _key(self) -> tuple[str, int, int, int, bool]:
        major = -1 if self.major is None else self.major
        minor = -1 if self.minor is None else self.minor
        return self.type, major, minor, self.bits, self.allow

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rule) and self._key() == other._key()

    def __lt__(self, other: Rule) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"<{'allow' if self.allow else 'deny'} {self.line}>"


def bits_of(access: str) -> int:
    """Return letters of "rwm" as the bits of linux/bpf.h."""
    return sum(bit for letter, bit in BITS.items() if letter in access)


def evaluate(
    rules: Iterable[Rule], kind: str, access: str, major: int, minor: int, *, default: bool
) -> bool:
    """Return whether `rules` allow a request; `default` applies if no rule names the device."""
    verdicts = dict.fromkeys(access, default)
    for rule in rules:
        if rule.names(kind, major, minor):
            verdicts.update((letter, rule.allow) for letter in access if letter in rule.access)
    return all(verdicts.values())


def allows(code: bytes, kind: str, access: str, major: int, minor: int) -> bool:
    """Return whether a program allows a request, by executing it.

    Raises UnknownCodeError for an instruction that only the kernel can execute.
    """
    what = bits_of(access) << 16 | TYPES[kind]
    return result(code, struct.pack("<III", what, major, minor)) != 0


def program(rules: Iterable[Rule], *, default: bool) -> bytes:
    """Return a whole program that allows what evaluate() allows for these rules.

    It checks the rules from the last to the first; R3 holds the kinds of access that are not
    decided yet.
    """
    parts = [_PROLOGUE]
    for rule in reversed([rule for rule in rules if _has_devices(rule)]):
        parts.append(_section(rule, _verdict_of(rule)))
        if rule.is_everything:
            return b"".join(parts)  # the verifier takes no instruction that cannot be reached
    return b"".join([*parts, encoded(MOV64_IMM, 0, imm=int(default)), encoded(EXIT)])


def prepend(rules: Iterable[Rule], old: bytes) -> bytes:
    """Return a program that decides what `rules` name and leaves the rest to the program `old`.

    Each rule names one device. A denial applies to every request that includes one of its kinds of
    access, an allowance to a request that includes no other kind; denials come before allowances.
    Without rules the result is `old`. Raises ValueError for a rule with wildcards.
    """
    held = by_device(rules)
    if not held:
        return old
    parts = [_BEGIN, _PROLOGUE]
    for device in sorted(held):
        allowed, denied = held[device]
        denial = _unless(denied, JEQ_IMM, 0) if denied else b""
        allowance = _unless(~allowed, JNE_IMM, 1) if allowed else b""
        parts.append(_section(Rule(True, *device), denial + allowance))
    return b"".join([*parts, _END, old])


def split(code: bytes) -> tuple[list[Rule], bytes]:
    """Return the rules of gpuhook's block in a program, and the program without it.

    Works for programs that were read back from the kernel, too. Without a block: no rules, and all
    of it.
    """
    end = code.find(_END)
    if not code.startswith(_BEGIN) or end < 0 or end % SIZE:
        return [], code
    block = instructions(code[len(_BEGIN + _PROLOGUE) : end])
    return sorted(_rules_of(block)), code[end + SIZE :]


def by_device(rules: Iterable[Rule]) -> dict[tuple[str, int, int], tuple[int, int]]:
    """Return type, major, minor -> the bits that are allowed, and those that are denied.

    Raises ValueError for a rule with wildcards.
    """
    held: dict[tuple[str, int, int], tuple[int, int]] = {}
    for rule in rules:
        allowed, denied = held.get(rule.device, (0, 0))
        if rule.allow:
            allowed |= rule.bits
        else:
            denied |= rule.bits
        held[rule.device] = (allowed & ~denied, denied)
    return {device: bits for device, bits in held.items() if any(bits)}


def rules_of(held: Mapping[tuple[str, int, int], tuple[int, int]]) -> list[Rule]:
    """Return the rules for the result of by_device(), one for each verdict on a device."""
    return sorted(
        Rule(allow, *device, "".join(letter for letter in BITS if bits & BITS[letter]))
        for device, (allowed, denied) in held.items()
        for allow, bits in ((True, allowed), (False, denied))
        if bits
    )


def _section(rule: Rule, verdict: bytes) -> bytes:
    """Return instructions that return `verdict` for the rule's devices, else jump past it."""
    tests = [(2, TYPES.get(rule.type)), (4, rule.major), (5, rule.minor)]
    made = verdict
    for register, number in reversed(tests):
        if number is not None:
            made = encoded(JNE_IMM, register, off=len(made) // SIZE, imm=number) + made
    return made


def _has_devices(rule: Rule) -> bool:
    """Return whether a rule can match anything: device numbers are never that large."""
    numbers = [n for n in (rule.major, rule.minor) if n is not None]
    return bool(rule.bits) and rule.type in ("a", *TYPES) and all(n < 1 << 31 for n in numbers)


def _verdict_of(rule: Rule) -> bytes:
    """Return the verdict of one rule of a list, which may leave some kinds of access undecided."""
    if rule.bits == _ALL_BITS:
        return encoded(MOV64_IMM, 0, imm=int(rule.allow)) + encoded(EXIT)
    if not rule.allow:
        return _unless(rule.bits, JEQ_IMM, 0)
    decided = encoded(AND64_IMM, 3, imm=~rule.bits)
    return decided + encoded(JNE_IMM, 3, off=2) + encoded(MOV64_IMM, 0, imm=1) + encoded(EXIT)


def _unless(mask: int, jump: int, verdict: int) -> bytes:
    """Return the verdict, which is skipped if `jump` is true for access & mask against 0."""
    return b"".join(
        [
            encoded(MOV64_REG, 0, 3),
            encoded(AND64_IMM, 0, imm=mask),
            encoded(jump, 0, off=2),
            encoded(MOV64_IMM, 0, imm=verdict),
            encoded(EXIT),
        ]
    )


def _rules_of(block: list[Instruction]) -> list[Rule]:
    """Return the rules of a block's sections.

    Each section contains the three numbers of a device, then masks.
    """
    held: dict[tuple[str, int, int], tuple[int, int]] = {}
    letters = {number: letter for letter, number in TYPES.items()}
    numbers: dict[int, int] = {}
    for one, following in zip(block, block[1:]):
        if one.code == JNE_IMM and one.dst in (2, 4, 5):
            numbers[one.dst] = one.imm
        elif one.code == AND64_IMM:
            device = (letters[numbers[2]], numbers[4], numbers[5])
            allowed, denied = held.get(device, (0, 0))
            if following.code == JEQ_IMM:
                held[device] = (allowed, one.imm & _ALL_BITS)
            else:
                held[device] = (~one.imm & _ALL_BITS, denied)
    return rules_of(held)
