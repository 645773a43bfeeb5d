# SPDX-License-Identifier: Apache-2.0
"""An attach or a detach that is killed at any step can be completed or undone."""

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

# The system calls of an attach; the everyday run kills it at every Nth of them.
STEPS = [
    ("mkdirat", 6),
    ("mknodat", 4),
    ("move_mount", 22),
    ("rename", 1),
    ("renameat", 1),
    ("symlinkat", 14),
    ("wait4", 1),
]
MANY = 1000  # more than the number of calls


# One image is killed at calls between those of the other image.
@pytest.mark.parametrize(("kind", "shift"), [("debian", 0), ("musl", 1)])
@pytest.mark.parametrize(("call", "stride"), STEPS)
def test_killed_attach_is_completed_or_removed(
    call: str, stride: int, kind: str, shift: int, node8: Installation, tmp_path: Path
) -> None:
    """A second attach completes it; a detach removes everything, with or without that."""
    stride = depth(stride, 1)
    with started(sleeping(tmp_path, kind), node8) as live:
        kill_at_each(live, node8, call, range(1 + shift * stride // 2, MANY, stride), tmp_path)


def test_attach_killed_at_its_device_program(node8: Installation, tmp_path: Path) -> None:
    """The kill is at a bpf(2) call: reading, making or replacing the device program."""
    with started(sleeping(tmp_path), node8, "crun", "v2") as live:
        kill_at_each(live, node8, "bpf", range(1, MANY, depth(32, 1)), tmp_path)


def kill_at_each(live: Live, node: Installation, call: str, calls: range, place: Path) -> None:
    """Kill attaches, each at a later call; complete every other one, and detach each."""
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
def test_killed_detach_is_completed(
    call: str, stride: int, node8: Installation, tmp_path: Path
) -> None:
    """A second detach completes it, and a repair does not attach the GPU again."""
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
def test_killed_second_attach_keeps_the_first(
    call: str, node8: Installation, tmp_path: Path
) -> None:
    """If the attach of a second GPU is killed, the ledger still has the first one."""
    with started(sleeping(tmp_path, env=asks("void", "all")), node8) as live:
        before, rules = live.seen(), live.rules()
        live.attach("2")
        killed(live, "attach", call, 1, tmp_path / "trace", device="3")
        live.detach("2", "3")
        assert_without(live, before, rules, call)


@pytest.mark.thorough
def test_killed_second_attach_of_a_device(node8: Installation, tmp_path: Path) -> None:
    """The device was detached before: the ledger has it after the kill."""
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


def test_repair_after_a_killed_attach(node8: Installation, tmp_path: Path) -> None:
    """The ledger has the GPU and replica before and after a repair."""
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


def test_detach_restores_files_of_the_image(node8: Installation, tmp_path: Path) -> None:
    """Files and links of the image that an attach replaced exist again, also after a kill."""
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


def test_large_loader_configuration_keeps_the_added_line(
    node8: Installation, tmp_path: Path
) -> None:
    """A configuration that is too large to save keeps gpuhook's line after a detach."""
    made = sleeping(tmp_path)
    own = made.root / "etc/ld.so.conf"
    own.write_bytes(b"# own\n" * 20_000)
    with started(made, node8) as live:
        live.attach("2")
        written = own.read_bytes()
        assert written.endswith(b"\n" + b"# own\n" * 20_000)
        detached = live.detach("2")
        assert own.read_bytes() == written
        assert [what for what in detached["skipped"] if what.startswith("/etc/ld.so.conf: is left")]


def test_large_library_of_the_image_is_skipped(node8: Installation, tmp_path: Path) -> None:
    """A library that is too large to save is not replaced, and this is reported."""
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
    """Attach or detach, and kill the command at one of its calls; return whether it was killed."""
    inject = f"inject={call}:signal=KILL:when={when}"
    strace = ["strace", "-f", "-qq", "-o", str(place)]
    strace += ["-e", f"trace={call}", "-e", inject]
    nodes, known, mounts = live.nodes(), live.entry(), live.mounts()
    done = live.gpuhook(verb, "--device", device, via=strace)
    if "GH1761" in done.stderr:  # the process that works on the container was killed
        assert done.rc == 1, done
        return True
    if done.rc == 1:  # only a child that makes mounts was killed: the command undid everything
        assert (live.nodes(), live.entry()) == (nodes, known), done
        assert len(live.mounts()) == len(mounts), done
        return True
    assert done.rc in (0, -signal.SIGKILL, 128 + signal.SIGKILL), done
    return done.rc != 0


def assert_without(live: Live, before: Seen, rules: list[str], where: str) -> None:
    """Assert that the container is as before it had a GPU, also in the ledger."""
    after = live.seen()
    assert after.nodes == before.nodes, where
    assert after.mounts == before.mounts, where
    assert live.rules() == rules, where
    assert_same_files(after.files, before.files)
    known = json.loads(after.entry)
    assert (known["devices"], known["replicas"], known["nodes"]) == ([], [], []), where
    assert "live" not in known, where


def entry(live: Live) -> dict[str, Any]:
    """Return the container's ledger entry."""
    return dict(json.loads(live.entry()))
