# SPDX-License-Identifier: Apache-2.0
"""Containers in a systemd scope: the unit is changed, so that a daemon-reload keeps the device.

No systemd runs here: systemctl is a program that records what it is called with and keeps the
property as systemd does, and the program that systemd attaches is one made as systemd makes it.
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
from tests.contract.device_side import asked
from tests.contract.runtimes import Settled, settled
from tests.contract.test_device_programs import V2

SYSTEMCTL = """#!/bin/sh
echo "$@" >>{place}/calls
[ -e {place}/broken ] && exit 1
case "$2 $4" in
"show ControlGroup") echo "ControlGroup=$(cat {place}/at)" ;;
"show DeviceAllow") sed s/^/DeviceAllow=/ {place}/entries ;;
"set-property --")
    shift 5
    for word; do
        [ "$word" = DeviceAllow= ] && : >{place}/entries
        [ "$word" = DeviceAllow= ] || echo "${{word#DeviceAllow=}}" >>{place}/entries
    done ;;
esac
"""
HELD = ["/dev/char/1:3 rwm", "char-pts rwm"]
PATHS = "paths={allow('c 195:7 rw')[0]: '/dev/nvidia7'}"
CHANGE = f"rules.change(allow('c 195:7 rw'), {PATHS})"
DROP = f"rules.drop(allow('c 195:7 rw'), {PATHS})"
VERDICT = "rules.verdict('c', 195, 7, 'rw')[0]"


class Unit:
    """A scope with a process in it, and the systemctl that knows it."""

    def __init__(self, place: Path, pid: int, name: str, around: Settled) -> None:
        self.place = place
        self.pid = pid
        self.name = name
        self.around = around

    def told(self, *expressions: str) -> list[object]:
        """Return the answers to expressions."""
        return asked(self.around, self.pid, *expressions)

    @property
    def entries(self) -> list[str]:
        """Return the unit's DeviceAllow."""
        return (self.place / "entries").read_text().splitlines()


@pytest.fixture
def unit(tmp_path: Path) -> Iterator[Unit]:
    """Give a scope, with a program as systemd attaches it."""
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(SYSTEMCTL.format(place=tmp_path))
    program.chmod(0o755)
    (tmp_path / "entries").write_text("".join(f"{entry}\n" for entry in HELD))
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
    yield Unit(tmp_path, process.pid, name, settled("runc", "v2", inside))
    process.kill()
    process.wait()
    scope.rmdir()


def of_systemd() -> bytes:
    """Return a program that allows c 1:3 rwm and c 136:* r, made as systemd 252 makes it.

    Source: src/core/bpf-devices.c; a rule that matches jumps to the one exit that allows.
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
    """Attach systemd's program."""
    fd = bpf_syscall.prog_load(of_systemd(), "sd_devices")
    place = os.open(scope, os.O_RDONLY)
    bpf_syscall.prog_attach(place, fd, bpf_syscall.BPF_F_ALLOW_MULTI)
    os.close(place)
    os.close(fd)


def test_programs_of_systemd() -> None:
    """The program is decoded to the rules that it was made of."""
    decoded = decode(of_systemd())
    assert decoded is not None
    assert [(rule.allow, rule.line) for rule in decoded] == [
        (False, "a *:* rwm"),
        (True, "c 136:* r"),
        (True, "c 1:3 rwm"),
    ]


def test_unit_is_told(unit: Unit) -> None:
    """The unit gets the host's node once, and loses that entry alone when it is taken back."""
    did, again, verdict, notes = unit.told(CHANGE, CHANGE, VERDICT, "rules.notes")
    assert (did, again, verdict) == (True, False, True)
    assert notes == [f"{unit.name}: added DeviceAllow /dev/nvidia7 rw"]
    assert unit.entries == [*HELD, "/dev/nvidia7 rw"]
    assert unit.told(DROP, VERDICT) == [True, False]
    assert unit.entries == HELD
    calls = (unit.place / "calls").read_text()
    called = f"--no-pager set-property --runtime -- {unit.name} DeviceAllow=/dev/nvidia7 rw\n"
    assert called in calls


def test_unit_is_restored(unit: Unit) -> None:
    """Going back to a snapshot gives the unit its entries back."""
    unit.told("globals().update(mark=rules.snapshot())", CHANGE, "rules.restore(mark)")
    assert unit.entries == HELD


def test_another_unit_of_that_name(unit: Unit) -> None:
    """A unit of the same name in another place is left alone."""
    (unit.place / "at").write_text(f"/user.slice/{unit.name}\n")
    (_, verdict) = unit.told(CHANGE, VERDICT)
    assert verdict is True
    assert unit.entries == HELD


def test_systemctl_fails(unit: Unit) -> None:
    """If systemctl fails the device is allowed all the same, and a warning says how long."""
    (unit.place / "broken").touch()
    did, verdict, notes = unit.told(CHANGE, VERDICT, "rules.notes")
    assert (did, verdict) == (True, True)
    assert "warning: /usr/local/sbin/systemctl" in str(notes)
    assert "daemon-reload" in str(notes)


def test_a_unit_without_paths(unit: Unit) -> None:
    """Rules without a host's node are not the unit's."""
    unit.told("rules.change(allow('c 195:7 rw'))")
    assert unit.entries == HELD
