# SPDX-License-Identifier: Apache-2.0
"""One device program of a cgroup, and changes of gpuhook's block in it."""

from __future__ import annotations

from gpuhook.kernel.bpf import bpf_syscall
from gpuhook.kernel.bpf.blinding import unblinded
from gpuhook.kernel.bpf.device_decode import decode
from gpuhook.kernel.bpf.device_filter import Rule, allows, by_device, rules_of, split
from gpuhook.kernel.bpf.instructions import UnknownCodeError, is_portable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    # From gpuhook's rules in a program and the program without them to the rules it shall have.
    Change = Callable[[list[Rule], bytes], list[Rule]]

_KINDS = {
    0: "none",
    bpf_syscall.BPF_F_ALLOW_OVERRIDE: "override",
    bpf_syscall.BPF_F_ALLOW_MULTI: "multi",
}


class Program:
    """An attached program: its cgroup, its instructions, and their rules.

    `code` is None if the kernel does not show them or they cannot be loaded again; `ours` are the
    rules of gpuhook's block in it; `rules` the others as far as they can be decoded, else None.
    """

    __slots__ = ("cgroup", "code", "flags", "id", "name", "ours", "own", "rest", "seen")

    def __init__(self, cgroup: str, info: bpf_syscall.Info, flags: int, *, own: bool) -> None:
        self.cgroup = cgroup
        self.id = info.id
        self.name = info.name
        self.flags = _KINDS.get(flags, str(flags))
        self.own = own
        self.seen = info.instructions
        self.code = _loadable(info)
        self.ours, self.rest = split(self.code) if self.code is not None else ([], b"")

    @property
    def rules(self) -> list[Rule] | None:
        """Return the rules of the program without gpuhook's block, None if it cannot be decoded."""
        return None if self.code is None else decode(self.rest)

    def allows(self, kind: str, access: str, major: int, minor: int) -> bool:
        """Return whether the program allows a request; raises UnknownCodeError."""
        if self.seen is None:
            raise UnknownCodeError("the kernel does not show its instructions")
        return allows(self.seen, kind, access, major, minor)

    def __str__(self) -> str:
        name = f" ({self.name})" if self.name else ""
        return f"program {self.id}{name} of {self.cgroup}"


def _loadable(info: bpf_syscall.Info) -> bytes | None:
    """Return a program's instructions in a form that can be loaded again, None if there is none."""
    if info.instructions is None or info.maps:
        return None
    try:
        code = unblinded(info.instructions)
        return code if is_portable(code) else None
    except UnknownCodeError:
        return None


def with_rules(allow: Iterable[Rule], deny: Iterable[Rule]) -> Change:
    """Return the change that applies `allow` and `deny` with as few rules of gpuhook as possible.

    An opposite rule of gpuhook is removed, which may be enough.
    """

    def change(ours: list[Rule], rest: bytes) -> list[Rule]:
        held = by_device(ours)
        for rule in [*allow, *deny]:
            allowed, denied = held.get(rule.device, (0, 0))
            if rule.allow:
                denied &= ~rule.bits
                allowed |= 0 if _says(rest, rule) else rule.bits
            else:
                allowed &= ~rule.bits
                denied |= 0 if _says(rest, rule) else rule.bits
            held[rule.device] = allowed, denied
        return rules_of(held)

    return change


def without_rules(rules: Iterable[Rule]) -> Change:
    """Return the change that removes rules of gpuhook."""

    def change(ours: list[Rule], _: bytes) -> list[Rule]:
        held = by_device(ours)
        for rule in rules:
            allowed, denied = held.get(rule.device, (0, 0))
            if rule.allow:
                allowed &= ~rule.bits
            else:
                denied &= ~rule.bits
            held[rule.device] = allowed, denied
        return rules_of(held)

    return change


def _says(rest: bytes, rule: Rule) -> bool:
    """Return whether a program decides as the rule does, for its whole access and for each part."""
    kind, major, minor = rule.device
    asked = (*rule.access, rule.access)
    try:
        verdicts = [allows(rest, kind, access, major, minor) for access in asked]
    except UnknownCodeError:
        return False
    return all(verdicts) if rule.allow else not any(verdicts)
