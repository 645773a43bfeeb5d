# SPDX-License-Identifier: Apache-2.0
"""Containers whose FUSE reads requests and never answers: no command waits for them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from binascii import crc32
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from tests.contract.fuse import Silent, gone, silent, waiting
from tests.contract.installation import CONTROL, LIBRARIES, Installation, asks
from tests.contract.live import Live, sleeping, wrapped
from tests.contract.runtimes import Result, run_command
from tests.contract.test_integrations import assert_nodes
from tests.contract.test_repair import reset
from tests.waiting import eventually

LONG = 150  # seconds that a command may take; its own limits are far below
LEFT = re.compile(r"left behind in an uninterruptible wait: process ([0-9, ]+)")
HOME = "/home/fuse"


@contextmanager
def several(
    installation: Installation, place: Path, names: Sequence[str], attached: Sequence[str] = ()
) -> Iterator[list[Live]]:
    """Give a running container with a GPU for each of these ids; `attached` get it later."""
    with ExitStack() as stack:
        found = []
        for name in names:
            (place / name).mkdir()
            made = sleeping(place / name, env=() if name in attached else asks("2"))
            live = stack.enter_context(wrapped(made, installation, container_id=name))
            if name in attached:
                live.attach("2")
            found.append(live)
        yield found


def ids(count: int, like: str = "") -> list[str]:
    """Return ids of containers, which share the lock of the container `like`, if that is given."""
    found: list[str] = []
    while len(found) < count:
        name = f"gpuhook-test-{uuid4().hex[:12]}"
        if not like or crc32(name.encode()) % 256 == crc32(like.encode()) % 256:
            found.append(name)
    return found


@contextmanager
def begun(live: Live, verb: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Give `gpuhook VERB CONTAINER WORDS` while it runs, in its own process group."""
    command = subprocess.Popen(
        live.command(verb, *words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=live.env,
        start_new_session=True,
    )
    with command:
        try:
            yield command
        finally:
            command.kill()


def on_all(lives: Sequence[Live], verb: str, *words: str, via: Sequence[str] = ()) -> Result:
    """Call `gpuhook VERB WORDS`, through `via`, on the containers of all these state roots."""
    installation = lives[0].installation
    roots = [word for live in lives for word in live.roots]
    command = [*via, str(installation.bindir / "gpuhook"), verb, *words, *roots]
    return run_command(command, lives[0].env)


def of(live: Live, said: str) -> str:
    """Return the error about a container."""
    (found,) = [line for line in said.splitlines() if live.id in line and "hint: " not in line]
    return found


def left_behind(said: str) -> list[int]:
    """Return the pids that a message names, which are in an uninterruptible wait."""
    found = LEFT.search(said)
    assert found, said
    pids = [int(pid) for pid in found[1].split(",")]
    assert all(map(waiting, pids)), said
    return pids


def assert_holds_nothing(pid: int) -> None:
    """Assert that a process has no lock, no terminal, and no file that its caller could read."""
    open_files = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
    assert not [name for name in open_files if "/locks/" in name or name.startswith("socket:")]
    standard = [os.readlink(f"/proc/{pid}/fd/{number}") for number in range(2)]
    assert standard == ["/dev/null", "/dev/null"]
    assert Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[4] == "0"


def over_libraries(live: Live) -> AbstractContextManager[Silent]:
    """Mount the silent file system over the driver's libraries in a container."""
    return silent(live.bundle.path, LIBRARIES, live.pid)


VERBS = [
    ("inspect", []),
    ("attach", ["--device", "3"]),
    ("detach", ["--device", "2"]),
    ("repair", []),
    ("compare", []),
    ("explain", []),
]


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_named_container(apart: Installation, tmp_path: Path) -> None:
    """Each command on it ends, names it and what is left behind, which holds nothing."""
    names = ids(len(VERBS))
    names += ids(1, like=names[1])
    with several(apart, tmp_path, names, attached=names[2:3]) as lives, ExitStack() as stack:
        *hostile, good = lives
        for live in hostile[:-1]:
            stack.enter_context(over_libraries(live))
        stack.enter_context(silent(tmp_path, str(hostile[-1].bundle.root)))
        commands = [
            stack.enter_context(begun(live, verb, *words))
            for live, (verb, words) in zip(hostile, VERBS, strict=True)
        ]
        pids = []
        for live, command in zip(hostile, commands, strict=True):
            _, said = command.communicate(timeout=LONG)
            assert command.returncode == 1, said
            assert "GH1760" in said
            assert live.id in said
            pids += left_behind(said)
        for pid in pids:
            assert_holds_nothing(pid)
        good.attach("3")
        assert good.gpuhook("explain").rc == 0
        assert hostile[0].gpuhook("explain").rc == 0
        assert hostile[0].gpuhook("limits", name="show").rc == 0
        for verb in ("ps", "map"):
            assert on_all(lives, verb).rc == 0
        stack.close()  # the daemons end
        for pid in pids:
            gone(pid)


def test_interrupted(node8: Installation, tmp_path: Path) -> None:
    """SIGINT ends a command whose child hangs, also one that undoes what it has done."""
    with several(node8, tmp_path, ids(2)) as lives, ExitStack() as stack:
        for live, (verb, words) in zip(lives, VERBS, strict=False):
            there = stack.enter_context(over_libraries(live))
            command = stack.enter_context(begun(live, verb, *words))
            eventually(there.is_asked)
            command.send_signal(signal.SIGINT)
            command.communicate(timeout=30)
            assert command.returncode != 0


def test_repair_all_does_not_go_in(node8: Installation, tmp_path: Path) -> None:
    """The kernel says what is mounted: the container is named, and the others are repaired."""
    with several(node8, tmp_path, ids(3)) as lives:
        for live in lives:
            reset(live)
        with over_libraries(lives[1]) as there:
            done = on_all(lives, "repair", "--all")
            assert done.rc == 1
            said = of(lives[1], done.stderr)
            assert said.startswith("Error GH1762")
            assert f" {LIBRARIES} " in said
            doctor = on_all(lives, "doctor", *node8.node.options, "--checks", "containers")
            assert LIBRARIES in doctor.stdout
            assert there.requests == []
        for live in (lives[0], lives[2]):
            assert f"{live.id}: done" in done.stdout
            assert_nodes(live.view(), node8, CONTROL, 2)


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_repair_all_where_a_link_leads_in(node8: Installation, tmp_path: Path) -> None:
    """Who hides the mount behind a link keeps one child; the others are repaired all the same."""
    names = ids(2)
    with several(node8, tmp_path, [*names, *ids(1, like=names[0])]) as lives:
        for live in lives:
            reset(live)
        hostile = lives[1]
        assert hostile.inside("/bin/sh", "-c", f"mkdir -p {HOME}").rc == 0
        libraries = hostile.bundle.root / LIBRARIES.lstrip("/")
        with silent(tmp_path, HOME, hostile.pid):
            libraries.rename(libraries.with_name("aside"))
            libraries.symlink_to(HOME)
            done = on_all(lives, "repair", "--all")
            assert done.rc == 1
            said = of(hostile, done.stderr)
            assert said.startswith("Error GH1760")
            (pid,) = left_behind(said)
            assert_holds_nothing(pid)
            for live in (lives[0], lives[2]):
                assert f"{live.id}: done" in done.stdout
                assert_nodes(live.view(), node8, CONTROL, 2)
                live.attach("3")
        gone(pid)
