# SPDX-License-Identifier: Apache-2.0
"""Attach, detach and the prestart hook undo what they did if a step fails or the container ends."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.contract import roots
from tests.contract.installation import CONTROL, Installation, asks
from tests.contract.live import Live, Seen, prestart, sleeping, started
from tests.contract.runtimes import BOTH, ENGINES, run
from tests.contract.test_attach import assert_as_before
from tests.contract.test_integrations import assert_nodes
from tests.contract.views import questions
from tests.waiting import eventually

# (system call, errno, number of the call), in the order of the steps.
ATTACHING = [
    ("mknodat", "EPERM", 1),
    ("mknodat", "ENOSPC", 4),
    ("mkdirat", "EROFS", 2),
    ("open_tree", "EPERM", 7),
    ("mount_setattr", "EPERM", 1),
    ("setns", "EPERM", 1),
    ("move_mount", "EINVAL", 9),
    ("symlinkat", "ENOSPC", 9),
    ("renameat", "EIO", 2),
    ("rename", "ENOSPC", 1),  # the ledger's entry
]
DETACHING = [
    ("setns", "EPERM", 1),
    ("umount2", "EPERM", 3),
    ("rename", "ENOSPC", 1),  # the ledger's entry
]
# Codes other than GH1590. The first setns opens the root file system.
CODES = {"rename": "GH1592", "setns": "GH1733"}
IN_THE_CONTAINER = [("unlinkat", "EPERM", 2), ("unlinkat", "EACCES", 6), ("renameat", "EIO", 1)]


def failing(call: str, error: str, when: int, place: Path, path: str = "") -> list[str]:
    """Return a command prefix that makes a system call fail once."""
    only = ["-P", path] if path else ["--seccomp-bpf"]
    inject = f"inject={call}:error={error}:when={when}"
    return ["strace", "-f", "-qq", *only, "-o", str(place), "-e", f"trace={call}", "-e", inject]


def assert_injected(trace: Path) -> None:
    """Assert that strace injected the failure."""
    assert "(INJECTED)" in trace.read_text(encoding="utf-8")


@contextmanager
def unchanged(live: Live) -> Iterator[Seen]:
    """Assert that the block leaves the container as it was."""
    before = live.seen()
    yield before
    after = live.seen()
    assert after.nodes == before.nodes
    assert after.mounts == before.mounts
    assert after.rules == before.rules
    assert after.entry == before.entry
    assert after.files == before.files


def test_failed_attach_is_undone(node8: Installation, tmp_path: Path) -> None:
    """Whichever step fails, the steps before it are undone and the error is reported."""
    with started(sleeping(tmp_path), node8) as live:
        words = ["attach", "--device", "2"]
        for call, error, when in ATTACHING:
            via = failing(call, error, when, tmp_path / "trace")
            with unchanged(live):
                live.refused(CODES.get(call, "GH1590"), *words, via=via)
                assert_injected(tmp_path / "trace")
        live.attach("2")
        assert_nodes(live.view(), node8, CONTROL, 2)


def test_failed_detach_keeps_the_gpu(node8: Installation, tmp_path: Path) -> None:
    """Whichever step fails, the container has its GPU as before."""
    with started(sleeping(tmp_path), node8) as live:
        live.attach("2")
        for call, error, when in DETACHING:
            via = failing(call, error, when, tmp_path / "trace")
            before = live.seen()
            live.refused(CODES.get(call, "GH1590"), "detach", "--device", "2", via=via)
            assert_injected(tmp_path / "trace")
            after = live.seen()
            assert (after.nodes, after.rules, after.files) == (
                before.nodes,
                before.rules,
                before.files,
            )
            assert targets(after) == targets(before)
            assert after.entry == before.entry
            assert live.report("repair")["steps"] == []


@pytest.mark.parametrize(("call", "error", "when"), IN_THE_CONTAINER)
def test_detach_reports_files_it_cannot_remove(
    call: str, error: str, when: int, node8: Installation, tmp_path: Path
) -> None:
    """Files of the container that cannot be removed are reported; the device is denied."""
    with started(sleeping(tmp_path), node8) as live:
        live.attach("2")
        via = failing(call, error, when, tmp_path / "trace")
        done = live.gpuhook("detach", "--device", "2", via=via)
        assert_injected(tmp_path / "trace")
        assert done.rc == 1
        assert "left over: /" in done.stderr
        view = live.view(questions(tries=[node8.number(2)]))
        assert view.tries == {node8.number(2): "EPERM"}
        assert live.report("repair")["steps"] == []


def targets(seen: Seen) -> list[tuple[str, ...]]:
    """Return each mount's root, target and options, without its number, in a fixed order."""
    return sorted(tuple(line.split()[2:6]) for line in seen.mounts)


@pytest.mark.parametrize(("verb", "engine"), [("attach", "crun"), ("detach", "runc")])
def test_failed_device_program_is_undone(
    verb: str, engine: str, node8: Installation, tmp_path: Path
) -> None:
    """On cgroup v2, after any failed bpf(2) call the same device program is attached as before."""
    with started(sleeping(tmp_path), node8, engine, "v2") as live:
        if verb == "detach":
            live.attach("2")
        counts = (20, 34, 40) if verb == "attach" else (4, 9)
        for when in counts:
            via = failing("bpf", "EPERM", when, tmp_path / "trace")
            before = live.seen()
            completed = live.gpuhook(verb, "--device", "2", via=via)
            if "(INJECTED)" not in (tmp_path / "trace").read_text(encoding="utf-8"):
                assert when != counts[0]
                assert completed.rc == 0, completed
                break
            assert completed.rc == 1, completed
            assert completed.stderr.startswith("Error GH1590: "), completed
            after = live.seen()
            assert (after.nodes, after.rules, after.files) == (
                before.nodes,
                before.rules,
                before.files,
            )


def test_failed_device_rule_is_undone(node8: Installation, tmp_path: Path) -> None:
    """On cgroup v1, the kernel refuses to write a device rule."""
    with started(sleeping(tmp_path), node8) as live:
        group = live.bundle.config()["linux"]["cgroupsPath"]
        path = f"/sys/fs/cgroup/devices{group}/devices.allow"
        via = failing("write", "EPERM", 2, tmp_path / "trace", path)
        with unchanged(live):
            error = live.refused("GH1590", "attach", "--device", "2", via=via)
            assert_injected(tmp_path / "trace")
            assert path in error


@pytest.mark.parametrize(
    ("call", "error", "needs"),
    [
        ("openat2", "ENOSYS", ""),
        ("openat2", "EPERM", ""),  # a seccomp filter that is older than the call
        ("mount_setattr", "ENOSYS", ""),
        ("open_tree", "ENOSYS", "Linux 5.2"),
    ],
)
def test_attach_on_older_kernels(
    call: str, error: str, needs: str, node8: Installation, tmp_path: Path
) -> None:
    """openat2 and mount_setattr are optional; without open_tree the error names the kernel."""
    with started(sleeping(tmp_path), node8) as live:
        files = roots.listing(live.bundle.root)
        via = failing(call, error, 1, tmp_path / "trace")
        via[-1] = f"inject={call}:error={error}"
        if needs:
            with unchanged(live):
                printed = live.refused("GH1590", "attach", "--device", "2", via=via)
                assert needs in printed
            return
        done = live.gpuhook("attach", "--device", "2", via=via)
        assert done.rc == 0, done
        assert_injected(tmp_path / "trace")
        view = live.view()
        assert_nodes(view, node8, CONTROL, 2)
        for mount in view.mounts.values():
            if "nvidia" in mount.target and not mount.target.endswith("/socket"):
                assert {"ro", "nosuid", "nodev"} <= mount.options, mount
                assert not mount.optional, mount
        done = live.gpuhook("detach", "--device", "2", via=via)
        assert done.rc == 0, done
        assert_as_before(live.bundle.root, files)


@BOTH
@pytest.mark.parametrize("call", ["mknodat", "move_mount", "symlinkat"])
def test_failed_prestart_hook_is_undone(
    call: str, engine: str, cgroup: str, apart: Installation, tmp_path: Path
) -> None:
    """The container does not start, and its root file system does not change."""
    made = sleeping(tmp_path, env=asks("2"))
    hooks = prestart(apart)
    (hook,) = hooks["prestart"]
    trace = tmp_path / "trace"
    hook["args"] = [*failing(call, "EPERM", 2, trace), hook["path"], "prestart"]
    hook["path"] = "/usr/bin/strace"
    made.write({**made.config(), "hooks": hooks})
    before = roots.listing(made.root)
    done = run(made, [engine], engine, cgroup)
    assert done.rc != 0
    assert_injected(trace)
    after = roots.listing(made.root)
    assert after == before, after.items() ^ before.items()
    assert apart.entries() == []


@ENGINES
@pytest.mark.parametrize("call", ["mknodat", "move_mount"])
def test_container_ends_during_attach(
    call: str, engine: str, node8: Installation, tmp_path: Path
) -> None:
    """The error is GH1732, and the root file system does not change."""
    with started(sleeping(tmp_path, "debian"), node8, engine, "host") as live:
        before = roots.listing(live.bundle.root)
        pid, process = live.pid, Path(f"/proc/{live.pid}")
        via = failing(call, "EPERM", 1, tmp_path / "trace")
        via[-1] = f"inject={call}:delay_exit=2000000:when=1"
        attaching = subprocess.Popen(
            live.command("attach", "--device", "2", via=via),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=live.env,
        )
        if call == "mknodat":
            eventually(lambda: "nvidia" in " ".join(os.listdir(process / "root/dev")))
        else:
            eventually(lambda: "nvidia" in (process / "mountinfo").read_text("utf-8"))
        os.kill(pid, signal.SIGKILL)
        _, error = attaching.communicate()
        assert attaching.returncode == 1
        assert error.startswith("Error GH1732: "), error
        assert_as_before(live.bundle.root, before)
        assert [name for name in node8.entries() if live.id in name] == []


def test_state_with_a_reused_pid_is_refused(node8: Installation, tmp_path: Path) -> None:
    """If the pid belongs to another process now, that process is not touched."""
    with started(sleeping(tmp_path), node8) as live:
        file = Path(live.roots[1], live.id, "state.json")
        text = file.read_text(encoding="utf-8")
        started_at = Path(f"/proc/{live.pid}/stat").read_text().rpartition(")")[2].split()[19]
        assert f'"init_process_start":{started_at}' in text
        before = live.seen()
        file.write_text(text.replace(f":{started_at}", ":1"), encoding="utf-8")
        for verb in ("attach", "detach"):
            done = live.gpuhook(verb, "--device", "2")
            assert done.rc == 1
            assert any(f"Error {code}: " in done.stderr for code in ("GH1732", "GH1738")), done
        file.write_text(text, encoding="utf-8")
        assert live.seen() == before
