# SPDX-License-Identifier: Apache-2.0
"""Which rules our block in a device program shall have, after a change.

Pure.
"""

from __future__ import annotations

from gpuhook.kernel.bpf.device_filter import Rule, allows, by_device, rules_of
from gpuhook.kernel.bpf.instructions import UnknownCodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    # Takes our rules in a program and the program without them, returns the rules it shall have.
    Change = Callable[[list[Rule], bytes], list[Rule]]


def with_rules(allow: Iterable[Rule], deny: Iterable[Rule]) -> Change:
    """Return the change that makes `allow` and `deny` hold, with as few rules of ours as it takes.

    A rule of ours that says the contrary is taken back, and that may be enough.
    """

    def wanted(ours: list[Rule], rest: bytes) -> list[Rule]:
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

    return wanted


def without_rules(rules: Iterable[Rule]) -> Change:
    """Return the change that takes back rules of ours."""

    def wanted(ours: list[Rule], _: bytes) -> list[Rule]:
        held = by_device(ours)
        for rule in rules:
            allowed, denied = held.get(rule.device, (0, 0))
            if rule.allow:
                allowed &= ~rule.bits
            else:
                denied &= ~rule.bits
            held[rule.device] = allowed, denied
        return rules_of(held)

    return wanted


def _says(rest: bytes, rule: Rule) -> bool:
    """Return whether a program by itself says what the rule does, for all it asks and for parts."""
    kind, major, minor = rule.device
    asked = (*rule.access, rule.access)
    try:
        verdicts = [allows(rest, kind, access, major, minor) for access in asked]
    except UnknownCodeError:
        return False
    return all(verdicts) if rule.allow else not any(verdicts)
