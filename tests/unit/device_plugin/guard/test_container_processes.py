# SPDX-License-Identifier: Apache-2.0
"""Processes and their containers, read from /proc, and the signals that the guard sends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from gpuhook.device_plugin.guard import guard_loop
from gpuhook.device_plugin.guard.container_processes import (
    Processes,
    ProcessFacts,
    process_container,
)
from gpuhook.device_plugin.guard.guard_policy import TERM, Order, User
from gpuhook.device_plugin.guard.guard_shares import GuardShare
from gpuhook.device_plugin.metrics import cgroup_names
from gpuhook.device_plugin.metrics.cgroup_names import Membership
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import procfs
from gpuhook.request.memory_request import MemoryLimit, mount_path
from gpuhook.vendors.nvidia.hot.vocabulary import VOCABULARY

A, B = "a" * 64, "b" * 64
GIB = 1 << 30
TROUBLE = """
from gpuhook.device_plugin.guard.container_processes import Processes
trouble = Processes().trouble()
print(trouble.code if trouble else "none")
"""
IN_FIRST = os.stat("/proc/self/ns/pid").st_ino == 0xEFFFFFFC


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_outermost_cgroup_names_the_container() -> None:
    """A container can create cgroups with any name below its own cgroup."""
    inside = Membership(("kubepods", "pod1", A, B, "web"), in_pod=True)
    assert inside.outermost(()) == A
    assert inside.outermost({B, "web"}) == A
    assert Membership(("user.slice", "web", A)).outermost({"web"}) == "web"
    assert Membership(("system.slice", "sshd.service")).outermost({"web"}) is None


def test_cgroup_in_a_user_slice_is_never_a_container() -> None:
    """A user of the host can give a cgroup the name of a container."""
    place = "0::/user.slice/user-1000.slice/user@1000.service/app.slice"
    for name in (f"docker-{A}.scope", "run-web.scope", "web"):
        assert cgroup_names.parse(f"{place}/{name}".encode()).outermost({A, "web"}) is None
    inside = cgroup_names.parse(f"0::/docker/{A}/user@1000.service/{B}".encode())
    assert inside.outermost({B}) == A


def test_about_returns_start_time_cgroups_and_scope(sleeper: subprocess.Popen[bytes]) -> None:
    started = procfs.start_time(sleeper.pid)
    assert started is not None
    member = cgroup_names.of_pid(sleeper.pid)
    found = Processes().about(sleeper.pid)
    assert found is not None
    assert (found.started, found.member) == (started, member)
    ours = Processes().about(os.getpid())
    assert ours is not None
    assert found.scope == ours.scope
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert Processes().about(sleeper.pid) is None  # a zombie does not use a GPU
    assert Processes().about(2**22 + 1) is None


ROOT = "40 1 0:9 / / rw - overlay overlay rw\n41 40 0:10 / /proc rw - proc proc rw\n"


def mountinfo(*mounts: tuple[str, str], fstype: str = "devtmpfs") -> str:
    return ROOT + "".join(
        f"{number} 1 0:6 {root} {target} rw,nosuid - {fstype} {fstype} rw\n"
        for number, (root, target) in enumerate(mounts, 50)
    )


def process(place: Path, pid: int, parent: int, mounts: str, users: str = "0 0 1") -> None:
    """Write the /proc files of a process."""
    own = place / str(pid)
    own.mkdir()
    (own / "mountinfo").write_text(mounts)
    (own / "cgroup").write_text("0::/system\n" if pid < 5 else f"0::/kubepods/pod1/{A}\n")
    (own / "stat").write_text(f"{pid} (sh) S {parent} " + " ".join("0" * 16 + "7" * 30) + "\n")
    namespace = place / f"users-{users.strip().replace(' ', '-')}"
    namespace.touch()
    (own / "ns").mkdir()
    (own / "ns/user").hardlink_to(namespace)


def test_grants_are_read_from_mounts_of_dev_null(tmp_path: Path) -> None:
    """The path may begin with /run; the smaller of two grants for a device applies."""
    process(tmp_path, os.getpid(), 1, ROOT)
    (tmp_path / "self").symlink_to(str(os.getpid()))
    paths = [
        mount_path(VOCABULARY.memory_prefix, MemoryLimit("GPU-1", hard * GIB, GIB))
        for hard in (4, 3, 1)
    ]
    second = mount_path(VOCABULARY.memory_prefix, MemoryLimit("GPU-2", 2 * GIB))
    mounts = (
        ("/null", paths[0]),
        ("/null", paths[1].replace("/var/run", "/run")),
        ("/some/file", paths[2]),
        ("/null", second),
        ("/null", "/proc/kcore"),
    )
    process(tmp_path, 7, 1, mountinfo(*mounts))
    assert Processes(str(tmp_path)).grants(7) == {"GPU-1": 3 * GIB, "GPU-2": 2 * GIB}
    assert Processes(str(tmp_path)).grants(8) == {}
    volume = "/var/lib/kubelet/pods/1/volume-subpaths/null"
    forged = mountinfo(("/null", second), fstype="tmpfs") + mountinfo((volume, paths[0]))
    process(tmp_path, 9, 1, forged)
    assert Processes(str(tmp_path)).grants(9) == {}
    assert Processes().grants(os.getpid()) == {}


def test_hidden_mounts_are_read_from_the_parent_process(tmp_path: Path) -> None:
    """Only parents in the same container are read."""
    process(tmp_path, 2, 1, ROOT)
    (tmp_path / "self").symlink_to("2")
    grant = mountinfo(("/null", mount_path(VOCABULARY.memory_prefix, MemoryLimit("GPU-1", GIB))))
    chrooted = "60 40 0:7 / / rw - tmpfs tmpfs rw\n"
    process(tmp_path, 5, 2, grant)
    process(tmp_path, 6, 5, chrooted)
    assert Processes(str(tmp_path)).grants(6) == {"GPU-1": GIB}
    process(tmp_path, 7, 2, chrooted)
    process(tmp_path, 8, 7, "")
    process(tmp_path, 9, 2, ROOT, users="0 0 1000")
    process(tmp_path, 10, 2, ROOT)
    process(tmp_path, 11, 10, chrooted)
    found = [Processes(str(tmp_path)).grants(pid) for pid in (7, 8, 9, 10, 11, 12)]
    assert found == [None, None, None, {}, {}, {}]


def test_signal_is_sent_if_the_last_check_passes(sleeper: subprocess.Popen[bytes]) -> None:
    assert not Processes().send(sleeper.pid, TERM, lambda: False)
    assert sleeper.poll() is None
    assert Processes().send(sleeper.pid, TERM, lambda: True)
    assert sleeper.wait() == -signal.SIGTERM
    assert not Processes().send(sleeper.pid, TERM, lambda: True)


def test_process_that_ends_before_the_signal_gets_none(sleeper: subprocess.Popen[bytes]) -> None:
    """The pidfd refers to the original process even if its pid is reused."""

    def is_still() -> bool:
        sleeper.kill()
        sleeper.wait()
        return True

    assert not Processes().send(sleeper.pid, TERM, is_still)


def test_refused_signal_raises_a_fault(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
    with pytest.raises(GpuhookError, match="Operation not permitted") as caught:
        Processes().send(sleeper.pid, TERM, lambda: True)
    assert caught.value.code == "GH1886"


class InContainers(Processes):
    """Real processes, assigned to the given containers."""

    def __init__(self, **containers: int) -> None:
        super().__init__()
        self.containers = {pid: identity for identity, pid in containers.items()}

    def about(self, pid: int) -> ProcessFacts | None:
        found = super().about(pid)
        identity = self.containers.get(pid)
        return found and ProcessFacts(found.started, Membership((identity,) if identity else ()))


def is_signalled(
    pid: int,
    uses: dict[int, int | None],
    container: str = "web",
    *,
    started: int | None = None,
    **more: int,
) -> bool:
    began = started if started is not None else procfs.start_time(pid) or 0
    share = GuardShare("web", ("", "", "web"), "GPU-1", GIB)
    order = Order(share, User(pid, began, container, GIB), TERM)
    kernel = InContainers(**more)
    whose = partial(process_container, known={"web", "job"}, scopes={})
    return guard_loop.send_signal(
        order, kernel, users=lambda: uses, whose=whose, is_allowed=lambda: True
    )


def test_order_is_checked_again_before_the_signal(sleeper: subprocess.Popen[bytes]) -> None:
    """A reused pid, a moved process, a host process or one that left the GPU gets no signal."""
    pid = sleeper.pid
    uses: dict[int, int | None] = {pid: GIB}
    assert not is_signalled(pid, uses, started=1, web=pid)
    assert not is_signalled(pid, uses, job=pid)
    assert not is_signalled(pid, uses)
    assert not is_signalled(pid, uses, container="job", web=pid)
    assert not is_signalled(pid, {pid + 1: GIB}, web=pid)
    assert not is_signalled(pid, {pid: None}, web=pid)
    assert not is_signalled(1, {1: GIB}, web=1)
    own, parent = os.getpid(), os.getppid()
    assert not is_signalled(own, {own: GIB}, web=own)
    assert not is_signalled(parent, {parent: GIB}, web=parent)
    assert sleeper.poll() is None
    assert is_signalled(pid, uses, web=pid)
    assert sleeper.wait() == -signal.SIGTERM


@pytest.mark.skipif(not IN_FIRST, reason="these tests run in a pid namespace of their own")
def test_host_pid_namespace_has_no_trouble() -> None:
    assert Processes().trouble() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_own_pid_namespace_is_reported() -> None:
    """The guard cannot see the host's processes, with or without the host's /proc."""
    for options in (["--mount-proc"], []):
        command = ["unshare", "--pid", "--fork", *options, sys.executable, "-c", TROUBLE]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        assert done.stdout.strip() == "GH1885"
    assert (Processes("/nowhere").trouble() or GpuhookError("", "", "")).code == "GH1885"
