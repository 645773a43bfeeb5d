# SPDX-License-Identifier: Apache-2.0
"""Properties of device programs (BPF): they decide as the rules, before and after the kernel."""

from __future__ import annotations

import os
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuhook.kernel.bpf import bpf_syscall
from gpuhook.kernel.bpf.device_decode import decode
from gpuhook.kernel.bpf.device_filter import Rule, allows, evaluate, prepend, program, split

MAJORS = [0, 1, 195, 4095]
MINORS = [0, 3, 255, (1 << 20) - 1]
ACCESS = ["r", "w", "m", "rw", "rm", "wm", "rwm"]
REQUESTS = list(product("bc", ACCESS, MAJORS, MINORS))
KERNEL = pytest.mark.skipif(os.geteuid() != 0, reason="loading a program needs root")

RULE = st.builds(
    Rule,
    st.booleans(),
    st.sampled_from("abc"),
    st.one_of(st.none(), st.sampled_from(MAJORS)),
    st.one_of(st.none(), st.sampled_from(MINORS)),
    st.sampled_from(ACCESS),
)
DEFINITE = st.builds(
    Rule,
    st.booleans(),
    st.sampled_from("bc"),
    st.sampled_from(MAJORS),
    st.sampled_from(MINORS),
    st.sampled_from(ACCESS),
)
RULES = st.lists(RULE, max_size=6)
OURS = st.lists(DEFINITE, max_size=4)


def verdict_of_block(
    rules: list[Rule], kind: str, access: str, major: int, minor: int
) -> bool | None:
    """Return the decision of gpuhook's rules: deny, allow, or None."""
    named = [rule for rule in rules if (rule.type, rule.major, rule.minor) == (kind, major, minor)]
    denied = {letter for rule in named if not rule.allow for letter in rule.access}
    allowed = {letter for rule in named if rule.allow for letter in rule.access} - denied
    if denied & set(access):
        return False
    return True if allowed and set(access) <= allowed else None


def read_back(code: bytes) -> bytes:
    """Load a program into the kernel, and return the kernel's instructions."""
    fd = bpf_syscall.prog_load(code, "gpuhook_test")
    try:
        shown = bpf_syscall.prog_info(fd).instructions
    finally:
        os.close(fd)
    assert shown is not None
    return shown


@given(RULES, st.booleans())
def test_program_decides_as_the_rules(rules: list[Rule], default: bool) -> None:
    code = program(rules, default=default)
    for request in REQUESTS:
        assert allows(code, *request) == evaluate(rules, *request, default=default), request


@given(RULES, OURS, st.booleans())
def test_prepended_block_takes_precedence(
    rules: list[Rule], ours: list[Rule], default: bool
) -> None:
    """The old program decides the other requests."""
    old = program(rules, default=default)
    code = prepend(ours, old)
    for request in REQUESTS:
        expected = verdict_of_block(ours, *request)
        if expected is None:
            expected = allows(old, *request)
        assert allows(code, *request) == expected, request


@given(RULES, OURS)
def test_prepended_block_is_removed(rules: list[Rule], ours: list[Rule]) -> None:
    """The old program is unchanged."""
    old = program(rules, default=False)
    found, rest = split(prepend(ours, old))
    assert rest == old
    assert prepend(found, rest) == prepend(ours, old)
    assert split(old) == ([], old)


@given(RULES, st.booleans())
def test_decoded_rules_decide_as_the_program(rules: list[Rule], default: bool) -> None:
    decoded = decode(program(rules, default=default))
    assert decoded is not None
    for request in REQUESTS:
        expected = evaluate(rules, *request, default=default)
        assert evaluate(decoded, *request, default=False) == expected, request


@KERNEL
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(RULES, OURS, st.booleans())
def test_kernel_accepts_every_program(rules: list[Rule], ours: list[Rule], default: bool) -> None:
    """gpuhook recognizes the program and its block in the kernel's instructions."""
    old = read_back(program(rules, default=default))
    shown = read_back(prepend(ours, old))
    found, rest = split(shown)
    assert (rest, prepend(found, rest)) == (old, prepend(ours, old))
    for request in REQUESTS:
        assert allows(old, *request) == evaluate(rules, *request, default=default), request
