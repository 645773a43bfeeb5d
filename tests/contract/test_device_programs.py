# SPDX-License-Identifier: Apache-2.0
"""Device programs on cgroups without a runtime, for each way to attach a program."""

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
from tests.contract.device_side import allow, attach_program, deny, described
from tests.contract.runtimes import CGROUPS
from tests.refusal import refused

V2 = CGROUPS / "unified" if (CGROUPS / "unified").is_mount() else CGROUPS
HARDEN = Path("/proc/sys/net/core/bpf_jit_harden")
POINTERS = Path("/proc/sys/kernel/kptr_restrict")
GPU = "c 195:7 rw"
CONFIG = [{"allow": True, "type": "c", "major": 195, "minor": 1, "access": "rw"}]


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """Yield an empty cgroup v2 inside another one, named as runtimes do with the systemd driver."""
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


def open_result(cgroup: Path, node: Path) -> str:
    """Return the result of open(2) on a device node for a process in the cgroup."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        result = b"?"
        try:
            (cgroup / "cgroup.procs").write_text(str(os.getpid()))
            os.open(node, os.O_RDWR)
            result = b"OK"
        except OSError as error:
            result = errno.errorcode[error.errno or 0].encode()
        finally:
            os.write(writer, result)
            os._exit(0)
    os.close(writer)
    os.wait()
    with open(reader, "rb") as file:
        return file.read().decode()


@pytest.fixture
def gpu(tmp_path: Path) -> Path:
    """Return the node of a device without a driver."""
    os.mknod(tmp_path / "gpu", stat.S_IFCHR | 0o666, os.makedev(195, 7))
    return tmp_path / "gpu"


@contextmanager
def sysctl(path: Path, value: str) -> Iterator[None]:
    """Set a sysctl temporarily; skip if that is not allowed."""
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
def test_program_is_replaced_with_its_attach_flags(flags: int, cgroup: Path, gpu: Path) -> None:
    """The only program of a cgroup is replaced with the flags that it was attached with."""
    attach_program(str(cgroup), flags=flags)
    assert open_result(cgroup, gpu) == "EPERM"
    rules = rules_of(cgroup)
    [before] = rules.programs()
    assert rules.change(allow(GPU))
    assert not rules.change(allow(GPU))
    assert open_result(cgroup, gpu) == "ENXIO"
    [changed] = rules.programs()
    assert (changed.flags, changed.ours) == (before.flags, allow(GPU))
    rules.drop(allow(GPU))
    assert open_result(cgroup, gpu) == "EPERM"
    assert [one.seen for one in rules.programs()] == [before.seen]
    rules.close()


def test_programs_of_cgroup_and_scope_are_changed(cgroup: Path, gpu: Path) -> None:
    """The process's cgroup and the scope above it belong to the container: both programs change."""
    attach_program(str(cgroup))
    attach_program(str(cgroup.parent))
    rules = rules_of(cgroup)
    assert rules.change(allow(GPU))
    assert open_result(cgroup, gpu) == "ENXIO"
    assert [one.own for one in rules.programs()] == [True, True]
    rules.close()


def test_denial_of_an_ancestor_cgroup_is_an_error(cgroup: Path, gpu: Path) -> None:
    """If a cgroup above the container denies a device, an error names it, and nothing changes."""
    above = cgroup.parent.parent
    attach_program(str(cgroup))
    attach_program(str(above))
    rules = rules_of(cgroup)
    before = described(rules)
    with pytest.raises(GpuhookError, match=above.name) as raised:
        rules.change(allow(GPU))
    assert raised.value.code == "GH1702"
    assert described(rules) == before
    assert open_result(cgroup, gpu) == "EPERM"


def test_deny_attaches_a_program_if_none_exists(cgroup: Path, gpu: Path) -> None:
    """Without a program, allowing needs none; denying attaches one until its rule is removed."""
    rules = rules_of(cgroup)
    assert not rules.change(allow(GPU))
    start = rules.snapshot()
    assert rules.change([], deny(GPU))
    assert open_result(cgroup, gpu) == "EPERM"
    assert rules.drop(deny(GPU))
    assert rules.programs() == []
    rules.restore(start)
    assert rules.programs() == []
    assert open_result(cgroup, gpu) == "ENXIO"


def test_deny_attaches_a_program_below_an_ancestors_program(cgroup: Path, gpu: Path) -> None:
    """A device that a cgroup above allows is denied by the container's own program."""
    attach_program(str(cgroup.parent.parent), allow(GPU))
    rules = rules_of(cgroup)
    assert open_result(cgroup, gpu) == "ENXIO"
    assert rules.change([], deny(GPU))
    assert not rules.change([], deny(GPU))
    assert open_result(cgroup, gpu) == "EPERM"
    assert [one.own for one in rules.programs()] == [True, False]
    rules.drop(deny(GPU))
    assert open_result(cgroup, gpu) == "ENXIO"


def test_program_replaced_by_another_process_is_read_again(cgroup: Path, gpu: Path) -> None:
    """If another process replaces the program during a change, the new program is changed."""
    first = attach_program(str(cgroup), flags=0)
    place = DeviceCgroup("v2", str(cgroup), str(cgroup), str(V2))
    wanted = with_rules(allow(GPU), [])
    attached: list[int] = []

    def attach_another(ours: list[Rule], rest: bytes) -> list[Rule]:
        if not attached:
            attached.append(attach_program(str(cgroup), allow("c 195:9 rw"), flags=0))
        return wanted(ours, rest)

    DevicePrograms(place, None)._change(attach_another, denies=False)
    rules = rules_of(cgroup)
    [program] = rules.programs()
    assert program.id not in (first, *attached)
    assert rules.verdict("c", 195, 7, "rw")[0]
    assert open_result(cgroup, gpu) == "ENXIO"


@pytest.mark.alone
def test_program_with_hidden_constants_is_changed_and_restored(cgroup: Path, gpu: Path) -> None:
    """If the kernel hides constants of programs, they are changed and restored nevertheless."""
    with sysctl(HARDEN, "2"):
        attach_program(str(cgroup))
        rules = rules_of(cgroup)
        [before] = rules.programs()
        assert before.seen != before.code
        assert rules.change(allow(GPU))
        assert not rules_of(cgroup).change(allow(GPU))
        assert open_result(cgroup, gpu) == "ENXIO"
        rules.drop(allow(GPU))
        [after] = rules.programs()
        assert after.code == before.code
        assert open_result(cgroup, gpu) == "EPERM"
        rules.close()


@pytest.mark.alone
def test_hidden_program_is_built_from_config_json(cgroup: Path, gpu: Path) -> None:
    """If the kernel hides a program, it is built from the rules of config.json, or refused."""
    with sysctl(HARDEN, "2"), sysctl(POINTERS, "2"):
        attach_program(str(cgroup))
        rules = rules_of(cgroup)
        assert rules.programs()[0].rules is None
        assert "cannot be evaluated" in rules.verdict("c", 195, 1, "rw")[1]
        with refused("GH1701"):
            rules.change(allow(GPU))
        rules = rules_of(cgroup, [Rule.of_oci(entry) for entry in CONFIG])
        assert rules.verdict("c", 195, 1, "rw")[0]
        assert rules.change(allow(GPU))
        assert rules.verdict("c", 195, 7, "rw")[0]
        assert open_result(cgroup, gpu) == "ENXIO"
        # Only the DeviceRules object that added rules to a hidden program knows them.
        with refused("GH1701"):
            rules_of(cgroup, []).change(allow("c 195:8 rw"))
        rules.close()


def test_program_with_kernel_calls_is_refused(cgroup: Path) -> None:
    """A program that calls the kernel cannot be evaluated: without other rules it is refused."""
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


def test_failed_change_restores_earlier_programs(cgroup: Path) -> None:
    """If a later program cannot be changed, the earlier ones are restored with their ids."""
    attach_program(str(cgroup))
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


def test_invalid_and_missing_programs_are_errors() -> None:
    """The verifier's refusal is an error with its reason; so is the id of a missing program."""
    with pytest.raises(OSError, match="verifier refused it: R0 !read_ok") as raised:
        bpf_syscall.prog_load(encoded(EXIT), "wrong")
    assert raised.value.filename == "device program wrong"
    with pytest.raises(FileNotFoundError) as missing:
        bpf_syscall.prog_get_fd_by_id(0x7FFFFFFF)
    assert missing.value.filename == "device program 2147483647"
