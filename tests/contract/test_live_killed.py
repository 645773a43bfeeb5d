# SPDX-License-Identifier: Apache-2.0
"""An attach or a detach killed at any of its steps: what it left is known, and can be completed."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.contract.installation import CONTROL, LIBRARIES, Installation, asks
from tests.contract.live import Live, Seen, sleeping, started
from tests.contract.test_attach import assert_same_files
from tests.contract.test_integrations import assert_nodes
from tests.depth import depth

# What an attach does in steps, and every how many of them the everyday run kills it.
STEPS = [
    ("mkdirat", 6),
    ("mknodat", 4),
    ("move_mount", 22),
    ("rename", 1),
    ("renameat", 1),
    ("symlinkat", 14),
    ("wait4", 1),
]
MANY = 1000  # more than any of them is called


# The one image's calls lie between the other one's.
@pytest.mark.parametrize(("kind", "shift"), [("debian", 0), ("musl", 1)])
@pytest.mark.parametrize(("call", "stride"), STEPS)
def test_attach(
    call: str, stride: int, kind: str, shift: int, node8: Installation, tmp_path: Path
) -> None:
    """A second attach completes it, and a detach takes all of it away, after that or without."""
    stride = depth(stride, 1)
    with started(sleeping(tmp_path, kind), node8) as live:
        kill_at_each(live, node8, call, range(1 + shift * stride // 2, MANY, stride), tmp_path)


def test_attach_v2(node8: Installation, tmp_path: Path) -> None:
    """Killed while the device program is read, made and replaced."""
    with started(sleeping(tmp_path), node8, "crun", "v2") as live:
        kill_at_each(live, node8, "bpf", range(1, MANY, depth(32, 1)), tmp_path)


def kill_at_each(live: Live, node: Installation, call: str, calls: range, place: Path) -> None:
    """Kill attaches at calls further and further on; complete every other, and take each away."""
    before, rules = live.seen(), live.rules()
    turns = 0
    while killed(live, "attach", call, calls[turns], place / "trace"):
        if turns % 2 == 0:
            live.attach("2")
            assert_nodes(live.view(), node, CONTROL, 2)
        live.detach("2")
        assert_without(live, before, rules, f"{call} {calls[turns]}")
        turns += 1
    assert turns > 0


@pytest.mark.parametrize(
    ("call", "stride"),
    [("rename", 1), ("renameat", 1), ("umount2", 22), ("unlinkat", 48), ("wait4", 1)],
)
def test_detach(call: str, stride: int, node8: Installation, tmp_path: Path) -> None:
    """A second detach completes it, and a repair gives nothing back."""
    with started(sleeping(tmp_path), node8) as live:
        before, rules = live.seen(), live.rules()
        live.attach("2")
        when = 1
        while killed(live, "detach", call, when, tmp_path / "trace"):
            known = entry(live)
            if known["withdrawn"]:
                assert live.report("repair")["steps"] == []
            live.detach("2")
            assert_without(live, before, rules, f"{call} {when}")
            live.attach("2")
            when += depth(stride, 1)
        assert when > 1


@pytest.mark.thorough
@pytest.mark.parametrize("call", ["mknodat", "move_mount", "symlinkat"])
def test_second_device(call: str, node8: Installation, tmp_path: Path) -> None:
    """What the first attach noted is still known when the second one is killed."""
    with started(sleeping(tmp_path, env=asks("void", "all")), node8) as live:
        before, rules = live.seen(), live.rules()
        live.attach("2")
        killed(live, "attach", call, 1, tmp_path / "trace", device="3")
        live.detach("2", "3")
        assert_without(live, before, rules, call)


@pytest.mark.thorough
def test_given_again(node8: Installation, tmp_path: Path) -> None:
    """A device that was taken away, and is being given again, is known when that is killed."""
    with started(sleeping(tmp_path), node8) as live:
        before, rules = live.seen(), live.rules()
        live.attach("2")
        live.detach("2")
        assert killed(live, "attach", "rename", 2, tmp_path / "trace")
        live.attach("3")
        live.detach("3")
        assert_nodes(live.view(), node8, CONTROL, 2)
        assert live.report("repair")["steps"] == []
        live.detach("2")
        assert_without(live, before, rules, "again")


def test_repaired(node8: Installation, tmp_path: Path) -> None:
    """Killed before its last note: who holds the GPU is known, and stays known after a repair."""
    uuid = str(node8.gpu(2).uuid)
    with started(sleeping(tmp_path), node8) as live:
        before, rules = live.seen(), live.rules()
        assert killed(live, "attach", "rename", 2, tmp_path / "trace", device=f"{uuid}::1")
        link = live.bundle.root / f"{LIBRARIES}/libcuda.so".lstrip("/")
        link.unlink()
        assert live.report("repair")["steps"] != []
        assert link.is_symlink()
        (known,) = (one for one in node8.holders() if one["id"] == live.id)
        assert known["gpus"] == [uuid]
        assert known["replicas"] == [f"{uuid}::1"]
        live.detach("2")
        assert_without(live, before, rules, "repaired")


def test_what_the_image_had(node8: Installation, tmp_path: Path) -> None:
    """Empty files and other things of the image that were in the way exist again."""
    made = sleeping(tmp_path)
    libraries = made.root / LIBRARIES.lstrip("/")
    version = node8.node.node.driver.version
    (libraries / f"libcuda.so.{version}").touch()
    (libraries / "libcuda.so.1").write_text("the image's own")
    (libraries / "libcuda.so").symlink_to("elsewhere")
    own = made.root / "etc/ld.so.conf"
    text = own.read_bytes() if own.exists() else b""
    (made.root / "etc/own.conf").write_bytes(text)
    own.unlink(missing_ok=True)
    own.symlink_to("own.conf")
    with started(made, node8) as live:
        before, rules = live.seen(), live.rules()
        live.attach("2")
        assert_nodes(live.view(), node8, CONTROL, 2)
        live.detach("2")
        assert_without(live, before, rules, "whole")
        assert killed(live, "attach", "rename", 2, tmp_path / "trace")
        live.detach("2")
        assert_without(live, before, rules, "killed")


def test_a_large_text(node8: Installation, tmp_path: Path) -> None:
    """A loader's configuration that is too large to be kept stays, with our line in front."""
    made = sleeping(tmp_path)
    own = made.root / "etc/ld.so.conf"
    own.write_bytes(b"# own\n" * 20_000)
    with started(made, node8) as live:
        live.attach("2")
        written = own.read_bytes()
        assert written.endswith(b"\n" + b"# own\n" * 20_000)
        away = live.detach("2")
        assert own.read_bytes() == written
        assert [what for what in away["skipped"] if what.startswith("/etc/ld.so.conf: is left")]


def test_a_large_file(node8: Installation, tmp_path: Path) -> None:
    """A library of the image that could not be put back is left, and that is said."""
    made = sleeping(tmp_path)
    own = made.root / LIBRARIES.lstrip("/") / "libcuda.so.1"
    own.write_bytes(b"\x7fELF" + bytes(100_000))
    with started(made, node8) as live:
        before, rules = live.seen(), live.rules()
        done = live.attach("2")
        assert [what for what in done["skipped"] if f"{LIBRARIES}/libcuda.so.1: " in what]
        assert own.stat().st_size == 100_004
        live.detach("2")
        assert_without(live, before, rules, "large")


def killed(live: Live, verb: str, call: str, when: int, place: Path, *, device: str = "2") -> bool:
    """Attach or detach, and kill that at one of its calls; returns whether it came to that."""
    inject = f"inject={call}:signal=KILL:when={when}"
    strace = ["strace", "-f", "-qq", "-o", str(place)]
    strace += ["-e", f"trace={call}", "-e", inject]
    nodes, known, mounts = live.nodes(), live.entry(), live.mounts()
    done = live.gpuhook(verb, "--device", device, via=strace)
    if "GH1761" in done.stderr:  # the process that works on the container was killed
        assert done.rc == 1, done
        return True
    if done.rc == 1:  # a child that makes mounts was killed alone: all of it is undone
        assert (live.nodes(), live.entry()) == (nodes, known), done
        assert len(live.mounts()) == len(mounts), done
        return True
    assert done.rc in (0, -signal.SIGKILL, 128 + signal.SIGKILL), done
    return done.rc != 0


def assert_without(live: Live, before: Seen, rules: list[str], where: str) -> None:
    """Assert that the container is as it was before it had a GPU, and that none holds one."""
    after = live.seen()
    assert after.nodes == before.nodes, where
    assert after.mounts == before.mounts, where
    assert live.rules() == rules, where
    assert_same_files(after.files, before.files)
    known = json.loads(after.entry)
    assert (known["devices"], known["replicas"], known["nodes"]) == ([], [], []), where
    assert "live" not in known, where


def entry(live: Live) -> dict[str, Any]:
    """Return what the ledger says of the container."""
    return dict(json.loads(live.entry()))
