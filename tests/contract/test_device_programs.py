# SPDX-License-Identifier: Apache-2.0
"""Device programs on cgroups that no runtime made: every way in which one can be attached."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from gpuhook.apply.live.cgroup.cgroup_v2_devices import DevicePrograms
from gpuhook.apply.live.cgroup.device_cgroup import DeviceRules
from gpuhook.apply.live.cgroup.device_program import with_rules
from gpuhook.errors import GpuhookError
from gpuhook.kernel.bpf import bpf_syscall
from gpuhook.kernel.bpf.device_filter import Rule
from gpuhook.kernel.bpf.instructions import CALL, EXIT, MOV64_IMM, encoded
from gpuhook.kernel.cgroup import DeviceCgroup
from tests.contract.bundles import CGROUP
from tests.contract.device_side import allow, beside, deny, described
from tests.contract.runtimes import CGROUPS
from tests.refusal import refused

V2 = CGROUPS / "unified" if (CGROUPS / "unified").is_mount() else CGROUPS
HARDEN = Path("/proc/sys/net/core/bpf_jit_harden")
POINTERS = Path("/proc/sys/kernel/kptr_restrict")
GPU = "c 195:7 rw"
CONFIG = [{"allow": True, "type": "c", "major": 195, "minor": 1, "access": "rw"}]


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """Give an empty cgroup v2 with one below it, named as runtimes do with the systemd driver."""
    place = V2 / CGROUP / uuid4().hex[:12]
    inner = place / "made.scope" / "container"
    inner.mkdir(parents=True)
    yield inner
    for directory in (inner, inner.parent, place):
        directory.rmdir()


def rules_of(cgroup: Path, fallback: list[Rule] | None = None) -> DeviceRules:
    """Return the device rules of a cgroup."""
    below = str(cgroup).removeprefix(str(V2))
    return DeviceRules(DeviceCgroup("v2", below, str(cgroup), str(V2)), fallback)


def opened(cgroup: Path, node: Path) -> str:
    """Return what open(2) says of a device node to a process in the cgroup."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        said = b"?"
        try:
            (cgroup / "cgroup.procs").write_text(str(os.getpid()))
            os.open(node, os.O_RDWR)
            said = b"OK"
        except OSError as error:
            said = errno.errorcode[error.errno or 0].encode()
        finally:
            os.write(writer, said)
            os._exit(0)
    os.close(writer)
    os.wait()
    with open(reader, "rb") as file:
        return file.read().decode()


@pytest.fixture
def gpu(tmp_path: Path) -> Path:
    """Give the node of a device without a driver."""
    os.mknod(tmp_path / "gpu", stat.S_IFCHR | 0o666, os.makedev(195, 7))
    return tmp_path / "gpu"


@contextmanager
def setting(path: Path, value: str) -> Iterator[None]:
    """Set a sysctl for a moment; skip if that is not allowed."""
    old = path.read_text()
    try:
        path.write_text(value)
    except OSError as error:
        pytest.skip(f"{path}: {error.strerror}")
    try:
        yield
    finally:
        path.write_text(old)


@pytest.mark.parametrize(
    "flags", [0, bpf_syscall.BPF_F_ALLOW_OVERRIDE, bpf_syscall.BPF_F_ALLOW_MULTI]
)
def test_every_kind_of_attachment(flags: int, cgroup: Path, gpu: Path) -> None:
    """The one program of a cgroup is replaced under the flags that it was attached with."""
    beside(str(cgroup), flags=flags)
    assert opened(cgroup, gpu) == "EPERM"
    rules = rules_of(cgroup)
    [before] = rules.programs()
    assert rules.change(allow(GPU))
    assert not rules.change(allow(GPU))
    assert opened(cgroup, gpu) == "ENXIO"
    [held] = rules.programs()
    assert (held.flags, held.ours) == (before.flags, allow(GPU))
    rules.drop(allow(GPU))
    assert opened(cgroup, gpu) == "EPERM"
    assert [one.seen for one in rules.programs()] == [before.seen]
    rules.close()


def test_cgroups_of_a_scope(cgroup: Path, gpu: Path) -> None:
    """The process's cgroup and the scope above it are the container's: both are treated."""
    beside(str(cgroup))
    beside(str(cgroup.parent))
    rules = rules_of(cgroup)
    assert rules.change(allow(GPU))
    assert opened(cgroup, gpu) == "ENXIO"
    assert [one.own for one in rules.programs()] == [True, True]
    rules.close()


def test_a_cgroup_above_denies(cgroup: Path, gpu: Path) -> None:
    """What a cgroup above the container denies stays so: an error names it, nothing is changed."""
    above = cgroup.parent.parent
    beside(str(cgroup))
    beside(str(above))
    rules = rules_of(cgroup)
    before = described(rules)
    with pytest.raises(GpuhookError, match=above.name) as raised:
        rules.change(allow(GPU))
    assert raised.value.code == "GH1702"
    assert described(rules) == before
    assert opened(cgroup, gpu) == "EPERM"


def test_no_program(cgroup: Path, gpu: Path) -> None:
    """If none decides, allowing needs none; denying attaches one, which goes with its rules."""
    rules = rules_of(cgroup)
    assert not rules.change(allow(GPU))
    start = rules.snapshot()
    assert rules.change([], deny(GPU))
    assert opened(cgroup, gpu) == "EPERM"
    assert rules.drop(deny(GPU))
    assert rules.programs() == []
    rules.restore(start)
    assert rules.programs() == []
    assert opened(cgroup, gpu) == "ENXIO"


def test_no_program_of_its_own(cgroup: Path, gpu: Path) -> None:
    """What a cgroup above allows is denied with a program of the container's own."""
    beside(str(cgroup.parent.parent), allow(GPU))
    rules = rules_of(cgroup)
    assert opened(cgroup, gpu) == "ENXIO"
    assert rules.change([], deny(GPU))
    assert not rules.change([], deny(GPU))
    assert opened(cgroup, gpu) == "EPERM"
    assert [one.own for one in rules.programs()] == [True, False]
    rules.drop(deny(GPU))
    assert opened(cgroup, gpu) == "ENXIO"


def test_replaced_by_somebody_else(cgroup: Path, gpu: Path) -> None:
    """A program that is replaced during the work is found again, and its successor is changed."""
    first = beside(str(cgroup), flags=0)
    place = DeviceCgroup("v2", str(cgroup), str(cgroup), str(V2))
    wanted = with_rules(allow(GPU), [])
    met: list[int] = []

    def swapped(ours: list[Rule], rest: bytes) -> list[Rule]:
        if not met:
            met.append(beside(str(cgroup), allow("c 195:9 rw"), flags=0))
        return wanted(ours, rest)

    DevicePrograms(place, None)._change(swapped, denies=False)
    rules = rules_of(cgroup)
    [held] = rules.programs()
    assert held.id not in (first, *met)
    assert rules.verdict("c", 195, 7, "rw")[0]
    assert opened(cgroup, gpu) == "ENXIO"


@pytest.mark.alone
def test_hidden_constants(cgroup: Path, gpu: Path) -> None:
    """Programs whose constants are hidden are read, changed and restored all the same."""
    with setting(HARDEN, "2"):
        beside(str(cgroup))
        rules = rules_of(cgroup)
        [before] = rules.programs()
        assert before.seen != before.code
        assert rules.change(allow(GPU))
        assert not rules_of(cgroup).change(allow(GPU))
        assert opened(cgroup, gpu) == "ENXIO"
        rules.drop(allow(GPU))
        [after] = rules.programs()
        assert after.code == before.code
        assert opened(cgroup, gpu) == "EPERM"
        rules.close()


@pytest.mark.alone
def test_hidden_program(cgroup: Path, gpu: Path) -> None:
    """A program that the kernel does not show is built from config.json's rules, or refused."""
    with setting(HARDEN, "2"), setting(POINTERS, "2"):
        beside(str(cgroup))
        rules = rules_of(cgroup)
        assert rules.programs()[0].rules is None
        assert "cannot be evaluated" in rules.verdict("c", 195, 1, "rw")[1]
        with refused("GH1701"):
            rules.change(allow(GPU))
        rules = rules_of(cgroup, [Rule.of_oci(entry) for entry in CONFIG])
        assert rules.verdict("c", 195, 1, "rw")[0]
        assert rules.change(allow(GPU))
        assert rules.verdict("c", 195, 7, "rw")[0]
        assert opened(cgroup, gpu) == "ENXIO"
        # What our block there holds is known to who put it there alone.
        with refused("GH1701"):
            rules_of(cgroup, []).change(allow("c 195:8 rw"))
        rules.close()


def test_a_program_with_calls(cgroup: Path) -> None:
    """A program that calls the kernel can only be built again."""
    ktime = encoded(CALL, imm=5) + encoded(MOV64_IMM, 0) + encoded(EXIT)
    fd = bpf_syscall.prog_load(ktime, "calls")
    place = os.open(cgroup, os.O_RDONLY)
    bpf_syscall.prog_attach(place, fd, bpf_syscall.BPF_F_ALLOW_MULTI)
    os.close(fd)
    rules = rules_of(cgroup)
    assert "cannot be evaluated" in rules.verdict("c", 1, 3, "r")[1]
    with refused("GH1701"):
        rules.change(allow(GPU))
    ids, flags = bpf_syscall.prog_query(place)
    assert (len(ids), flags) == (1, bpf_syscall.BPF_F_ALLOW_MULTI)
    os.close(place)


def test_undone_when_a_step_fails(cgroup: Path) -> None:
    """When a later program cannot be treated, the earlier ones are as they were, by number."""
    beside(str(cgroup))
    calls = encoded(CALL, imm=5) + encoded(MOV64_IMM, 0) + encoded(EXIT)
    fd = bpf_syscall.prog_load(calls, "calls")
    place = os.open(cgroup.parent, os.O_RDONLY)
    bpf_syscall.prog_attach(place, fd, bpf_syscall.BPF_F_ALLOW_MULTI)
    os.close(fd)
    os.close(place)
    rules = rules_of(cgroup)
    before = described(rules)
    with pytest.raises(GpuhookError):
        rules.change(allow(GPU))
    assert described(rules) == before


def test_wrong_programs() -> None:
    """What the verifier refuses is an error with its reason; so is a program that is gone."""
    with pytest.raises(OSError, match="verifier refused it: R0 !read_ok") as raised:
        bpf_syscall.prog_load(encoded(EXIT), "wrong")
    assert raised.value.filename == "device program wrong"
    with pytest.raises(FileNotFoundError) as gone:
        bpf_syscall.prog_get_fd_by_id(0x7FFFFFFF)
    assert gone.value.filename == "device program 2147483647"
