# SPDX-License-Identifier: Apache-2.0
"""Containers that change their processes, mounts or cgroups while a command works on them.

Silent file systems are in
contract/test_silent_file_systems.py, and growing files in test_live_races.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.attacks.attacker import on_host, run_rounds
from tests.attacks.test_live_races import assert_command, assert_foreseen, attacked, leaves
from tests.attacks.watched import untouched
from tests.contract import roots
from tests.contract.build_cache import CHECKOUT
from tests.contract.fuse import silent
from tests.contract.installation import LIBRARIES, Installation
from tests.contract.live import Live, sleeping, started
from tests.contract.runtimes import BOTH, CGROUPS, PAIRS
from tests.contract.test_hostile import Canary
from tests.contract.test_live_hostile import BUSYBOX, with_busybox
from tests.contract.test_user_namespace import let_through, mapped
from tests.depth import cases, depth
from tests.figures import Figures
from tests.waiting import eventually

DEVICES = CGROUPS / "devices"
ROUNDS = depth(4, 200, 10_000)


@BOTH
@pytest.mark.parametrize("at", ["/dev/nvidia2", f"{LIBRARIES}/libcuda.so.1"])
def test_container_exits_in_the_middle(
    at: str, engine: str, cgroup: str, node8: Installation, canary: Canary, tmp_path: Path
) -> None:
    """It ends as soon as the attach has made a file: what was made is removed."""
    at = node8.device(2) if at.startswith("/dev") else at
    made = sleeping(tmp_path, args=[*BUSYBOX, f"until test -e {at}; do :; done"])
    with_busybox(made.root)
    with started(made, node8, engine, cgroup) as live, untouched(canary):
        before = roots.listing(made.root)
        done = live.gpuhook("attach", "--device", "2")
        assert done.rc == 0 or "GH17" in done.stderr or "GH159" in done.stderr, done
        assert "Traceback" not in done.stderr
        if done.rc:
            assert live.entry() == ""
            assert roots.listing(made.root) == before


REUSED = """
import os, signal, sys, time
import gpuhook.errors.messages
from gpuhook.apply.live.live_root import LiveRoot
from gpuhook.containers.warm.process_handle import Process
from gpuhook.errors import GpuhookError

def child():
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
    return pid

first = child()
process = Process(first)
os.kill(first, signal.SIGKILL)
os.waitpid(first, 0)
with open("/proc/sys/kernel/ns_last_pid", "w") as file:
    file.write(str(first - 1))
print(child() == first)
for work in (process.require_alive, lambda: LiveRoot(process), process.mapped_root, process.mounts):
    try:
        work()
        print("it worked")
    except GpuhookError as error:
        print(error.code)
try:
    Process(first, process.started - 1)
except GpuhookError as error:
    print(error.code)
os.kill(first, signal.SIGKILL)
"""


def test_pid_of_the_container_is_used_again(tmp_path: Path) -> None:
    """Another process has the pid of a container's first process: nothing is done to it."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", REUSED]
    done = subprocess.run(command, capture_output=True, text=True, cwd=CHECKOUT, check=False)
    assert done.stdout.split() == ["True", *["GH1732"] * 5], done


@BOTH
def test_file_system_over_the_root(
    engine: str, cgroup: str, node8: Installation, canary: Canary, tmp_path: Path
) -> None:
    """A container mounts a tmpfs over its root directory: it is not the root of its process."""
    script = "/busybox mount -t tmpfs over / && while :; do /busybox sleep 60; done"
    made = sleeping(tmp_path, args=[*BUSYBOX, script])
    with_busybox(made.root)
    config = made.config()
    sets = config["process"]["capabilities"]
    config["process"]["capabilities"] = {
        name: [*held, "CAP_SYS_ADMIN"] for name, held in sets.items()
    }
    made.write(config)
    with started(made, node8, engine, cgroup) as live, untouched(canary):
        eventually(lambda: any(" over " in line for line in live.mounts()))
        before = roots.listing(made.root)
        for verb in ("attach", "detach", "inspect"):
            words = [] if verb == "inspect" else ["--device", "2"]
            live.refused("GH1747", verb, *words)
        assert roots.listing(made.root) == before


@contextmanager
def hierarchy(version: str, place: Path) -> Iterator[Path]:
    """Yield the directory of the hierarchy of cgroups that decides about devices."""
    if version == "host":
        if not DEVICES.is_dir():
            pytest.skip("this machine has no cgroup v1")
        yield DEVICES
        return
    place.mkdir()
    subprocess.run(["mount", "-t", "cgroup2", "none", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


@contextmanager
def moving(live: Live, mounted: Path) -> Iterator[Path]:
    """Move a container's process into a cgroup below its own and back, and remove that cgroup.

    It yields the directory of the container's cgroup.
    """
    kind = "devices" if mounted == DEVICES else ""
    lines = Path(f"/proc/{live.pid}/cgroup").read_text(encoding="utf-8").splitlines()
    (name,) = [line.split(":", 2)[2] for line in lines if line.split(":")[1] == kind]
    own, pid, over = Path(f"{mounted}{name}"), str(live.pid), threading.Event()

    def move() -> None:
        below = own / "below"
        while not over.is_set():
            below.mkdir(exist_ok=True)
            for place in (below, own):
                with suppress(OSError):
                    (place / "cgroup.procs").write_text(pid, encoding="utf-8")
            with suppress(OSError):
                below.rmdir()

    thread = threading.Thread(target=move)
    thread.start()
    try:
        yield own
    finally:
        over.set()
        thread.join()


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("engine", "version"), cases([PAIRS[0], PAIRS[3]], [PAIRS[0]]))
def test_cgroup_changes_in_the_middle(
    engine: str,
    version: str,
    node8: Installation,
    canary: Canary,
    tmp_path: Path,
    figures: Figures,
) -> None:
    """A process moves to a cgroup that comes and goes: after a detach the device is denied."""
    made = sleeping(tmp_path)
    with (
        hierarchy(version, tmp_path / "cgroups") as mounted,
        started(made, node8, engine, version) as live,
        untouched(canary),
    ):
        before = live.rules()
        with moving(live, mounted) as own:
            result = run_rounds(live, ROUNDS, ["attach", "detach"])
        live.gpuhook("detach", "--device", "2", "--force")
        assert live.rules() == before
        for path in own.rglob("devices.list"):
            assert f"c {node8.number(2)}" not in path.read_text(encoding="utf-8")
    ended = assert_foreseen(result)
    what = f"races of a cgroup that comes and goes, {engine}: rounds"
    figures.record(what, f"{ROUNDS} ({ended})")


@BOTH
def test_files_of_a_paused_container_change(
    engine: str, cgroup: str, node8: Installation, canary: Canary, tmp_path: Path
) -> None:
    """A process that shares the root file system exchanges files with links to the host."""
    made = sleeping(tmp_path)
    swaps = leaves(made.root, canary.path)
    with started(made, node8, engine, cgroup) as live, untouched(canary):
        assert live.container.call("pause").rc == 0
        with on_host(made.root, swaps):
            for verb in ("attach", "inspect", "detach"):
                assert_command(live, verb)
        assert live.container.call("resume").rc == 0
    canary.assert_not_copied_to(made.root)


@pytest.mark.parametrize("verb", ["inspect", "attach", "detach", "repair"])
def test_file_system_that_answers_late(
    verb: str, node8: Installation, canary: Canary, tmp_path: Path
) -> None:
    """A FUSE file system over the libraries takes a second for each answer: no command hangs."""
    made = sleeping(tmp_path)
    with started(made, node8) as live, untouched(canary):
        before = live.nodes()
        with silent(tmp_path, f"{LIBRARIES}", live.pid, late=depth(1, 20) / 20):
            assert_command(live, verb)
            live.gpuhook("detach", "--device", "2", "--force")
        assert live.nodes() == before


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("engine", ["runc", "crun"])
def test_container_with_a_user_namespace_attacks(
    engine: str, node8: Installation, canary: Canary, tmp_path: Path, figures: Figures
) -> None:
    """Files are made with the rights of the container's root, which is a user of the host."""
    let_through(Path(node8.node.driver_root) / "any")
    made, swapper = attacked(tmp_path / "own", "leaves", canary.path)
    mapped(made)
    os.chmod(made.root, 0o755)
    with started(made, node8, engine) as live, untouched(canary):
        eventually(swapper.is_busy)
        result = run_rounds(live, depth(3, 100, 1000), ["attach", "inspect", "detach"])
        swapper.stop()
    canary.assert_not_copied_to(made.root)
    ended = assert_foreseen(result)
    figures.record(f"races of a container with a user namespace, {engine}: rounds", ended)
