# SPDX-License-Identifier: Apache-2.0
"""Containers in a systemd scope: the unit gets the device, so that a daemon-reload keeps it.

No systemd runs here: `systemctl` is a program that records its calls and stores the property, and
the unit's device program has the form of systemd's.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from gpuhook.kernel.bpf import bpf_syscall
from gpuhook.kernel.bpf.device_decode import decode
from gpuhook.kernel.bpf.instructions import (
    AND32_IMM,
    EXIT,
    JA,
    JNE_IMM,
    JNE_REG,
    LDX_H,
    LDX_W,
    MOV32_REG,
    MOV64_IMM,
    RSH32_IMM,
    encoded,
)
from tests.contract.bundles import CGROUP
from tests.contract.device_side import evaluate_for_pid
from tests.contract.runtimes import RuntimeEnvironment, runtime_environment
from tests.contract.test_device_programs import V2

SYSTEMCTL = """#!/bin/sh
echo "$@" >>{place}/calls
[ -e {place}/broken ] && exit 1
case "$2 $4" in
"show ControlGroup") echo "ControlGroup=$(cat {place}/at)" ;;
"show DevicePolicy") echo "DevicePolicy=$(cat {place}/policy)" ;;
"show DeviceAllow") sed s/^/DeviceAllow=/ {place}/entries ;;
"set-property --")
    shift 5
    for word; do
        [ "$word" = DeviceAllow= ] && : >{place}/entries
        [ "$word" = DeviceAllow= ] || echo "${{word#DeviceAllow=}}" >>{place}/entries
    done ;;
esac
"""
DEVICE_ALLOW = ["/dev/char/1:3 rwm", "char-pts rwm"]
PATHS = "paths={allow('c 195:7 rw')[0]: '/dev/nvidia7'}"
CHANGE = f"rules.change(allow('c 195:7 rw'), {PATHS})"
DROP = f"rules.drop(allow('c 195:7 rw'), {PATHS})"
VERDICT = "rules.verdict('c', 195, 7, 'rw')[0]"


class Unit:
    """A scope with a process in it, and its systemctl."""

    def __init__(self, place: Path, pid: int, name: str, around: RuntimeEnvironment) -> None:
        self.place = place
        self.pid = pid
        self.name = name
        self.around = around

    def evaluate(self, *expressions: str) -> list[object]:
        """Return the results of expressions."""
        return evaluate_for_pid(self.around, self.pid, *expressions)

    @property
    def entries(self) -> list[str]:
        """Return the unit's DeviceAllow."""
        return (self.place / "entries").read_text().splitlines()


@pytest.fixture
def unit(tmp_path: Path) -> Iterator[Unit]:
    """Yield a scope with a device program like systemd's."""
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(SYSTEMCTL.format(place=tmp_path))
    program.chmod(0o755)
    (tmp_path / "entries").write_text("".join(f"{entry}\n" for entry in DEVICE_ALLOW))
    inside = [
        f"mount --bind {program.parent} /usr/local/sbin",
        "mount -t tmpfs none /run",
        "mkdir -p /run/systemd/system",
    ]
    name = f"cri-{uuid4().hex[:12]}.scope"
    scope = V2 / CGROUP / name
    (tmp_path / "at").write_text(f"/{CGROUP}/{name}\n")
    scope.mkdir(parents=True)
    process = subprocess.Popen(["sleep", "100"])
    (scope / "cgroup.procs").write_text(str(process.pid))
    attach(scope)
    yield Unit(tmp_path, process.pid, name, runtime_environment("runc", "v2", inside))
    process.kill()
    process.wait()
    scope.rmdir()


def systemd_program() -> bytes:
    """Return a program that allows c 1:3 rwm and c 136:* r, as systemd 252 makes it.

    Source: src/core/bpf-devices.c; a rule that matches jumps to the only exit that allows.
    """
    tests = [
        encoded(JNE_IMM, 2, off=3, imm=2) + encoded(JNE_IMM, 4, off=2, imm=1),
        encoded(JNE_IMM, 5, off=1, imm=3) + encoded(JA, off=8),
        encoded(MOV32_REG, 1, 3) + encoded(AND32_IMM, 1, imm=2),
        encoded(JNE_REG, 1, 3, off=3) + encoded(JNE_IMM, 2, off=2, imm=2),
        encoded(JNE_IMM, 4, off=1, imm=136) + encoded(JA, off=2),
    ]
    before = [encoded(LDX_H, 2, 1), encoded(LDX_W, 3, 1), encoded(RSH32_IMM, 3, imm=16)]
    before += [encoded(LDX_W, 4, 1, 4), encoded(LDX_W, 5, 1, 8)]
    denied = [encoded(MOV64_IMM, 0), encoded(JA, off=1)]
    return b"".join([*before, *tests, *denied, encoded(MOV64_IMM, 0, imm=1), encoded(EXIT)])


def attach(scope: Path) -> None:
    """Attach the program to the scope."""
    fd = bpf_syscall.prog_load(systemd_program(), "sd_devices")
    place = os.open(scope, os.O_RDONLY)
    bpf_syscall.prog_attach(place, fd, bpf_syscall.BPF_F_ALLOW_MULTI)
    os.close(place)
    os.close(fd)


def test_systemd_program_is_decoded() -> None:
    """The result is the rules that the program was made from."""
    decoded = decode(systemd_program())
    assert decoded is not None
    assert [(rule.allow, rule.line) for rule in decoded] == [
        (False, "a *:* rwm"),
        (True, "c 136:* r"),
        (True, "c 1:3 rwm"),
    ]


def test_change_is_added_to_the_unit(unit: Unit) -> None:
    """The unit gets one entry for the host's node; drop() removes only that entry."""
    changed, again, verdict, notes = unit.evaluate(CHANGE, CHANGE, VERDICT, "rules.notes")
    assert (changed, again, verdict) == (True, False, True)
    assert notes == [f"{unit.name}: added DeviceAllow /dev/nvidia7 rw"]
    assert unit.entries == [*DEVICE_ALLOW, "/dev/nvidia7 rw"]
    assert unit.evaluate(DROP, VERDICT) == [True, False]
    assert unit.entries == DEVICE_ALLOW
    calls = (unit.place / "calls").read_text()
    called = f"--no-pager set-property --runtime -- {unit.name} DeviceAllow=/dev/nvidia7 rw\n"
    assert called in calls


@pytest.mark.parametrize(("policy", "entries"), [("auto", []), ("closed", ["/dev/nvidia7 rw"])])
def test_unit_without_restrictions_gets_none(unit: Unit, policy: str, entries: list[str]) -> None:
    """A first entry would deny the other devices of the container."""
    (unit.place / "entries").write_text("")
    (unit.place / "policy").write_text(policy)
    assert unit.evaluate(CHANGE, VERDICT) == [True, True]
    assert unit.entries == entries


def test_restore_resets_the_unit(unit: Unit) -> None:
    unit.evaluate("globals().update(mark=rules.snapshot())", CHANGE, "rules.restore(mark)")
    assert unit.entries == DEVICE_ALLOW


def test_unit_of_another_cgroup_is_not_changed(unit: Unit) -> None:
    """A unit of the same name has another cgroup."""
    (unit.place / "at").write_text(f"/user.slice/{unit.name}\n")
    (_, verdict) = unit.evaluate(CHANGE, VERDICT)
    assert verdict is True
    assert unit.entries == DEVICE_ALLOW


def test_failed_systemctl_is_a_warning(unit: Unit) -> None:
    """The device is allowed until the next daemon-reload, which the warning states."""
    (unit.place / "broken").touch()
    changed, verdict, notes = unit.evaluate(CHANGE, VERDICT, "rules.notes")
    assert (changed, verdict) == (True, True)
    assert "warning: /usr/local/sbin/systemctl" in str(notes)
    assert "daemon-reload" in str(notes)


def test_rule_without_a_node_is_not_added_to_the_unit(unit: Unit) -> None:
    unit.evaluate("rules.change(allow('c 195:7 rw'))")
    assert unit.entries == DEVICE_ALLOW
