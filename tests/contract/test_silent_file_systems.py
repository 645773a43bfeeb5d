# SPDX-License-Identifier: Apache-2.0
"""Containers with a FUSE file system that never answers: no command waits for it."""

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

from tests.contract.fuse import Silent, silent, wait_for_end, waiting
from tests.contract.installation import CONTROL, LIBRARIES, Installation, asks
from tests.contract.live import Live, sleeping, wrapped
from tests.contract.runtimes import Result, run_command
from tests.contract.test_integrations import assert_nodes
from tests.contract.test_repair import reset
from tests.waiting import eventually

LONG = 150  # seconds that a command may take; its own limits are far lower
LEFT = re.compile(r"left behind in an uninterruptible wait: process ([0-9, ]+)")
HOME = "/home/fuse"


@contextmanager
def containers_with_gpu(
    installation: Installation, place: Path, names: Sequence[str], attached: Sequence[str] = ()
) -> Iterator[list[Live]]:
    """Yield a running container for each id; those in `attached` get their GPU by attach."""
    with ExitStack() as stack:
        lives = []
        for name in names:
            (place / name).mkdir()
            made = sleeping(place / name, env=() if name in attached else asks("2"))
            live = stack.enter_context(wrapped(made, installation, container_id=name))
            if name in attached:
                live.attach("2")
            lives.append(live)
        yield lives


def ids(count: int, like: str = "") -> list[str]:
    """Return container ids; with `like`, ids that share that container's lock."""
    names: list[str] = []
    while len(names) < count:
        name = f"gpuhook-test-{uuid4().hex[:12]}"
        if not like or crc32(name.encode()) % 256 == crc32(like.encode()) % 256:
            names.append(name)
    return names


@contextmanager
def running_command(live: Live, verb: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Yield `gpuhook VERB CONTAINER WORDS` while it runs, in its own process group."""
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
    """Run `gpuhook VERB WORDS`, by the prefix `via`, on the containers of all these state roots."""
    installation = lives[0].installation
    roots = [word for live in lives for word in live.roots]
    command = [*via, str(installation.bindir / "gpuhook"), verb, *words, *roots]
    return run_command(command, lives[0].env)


def error_of(live: Live, stderr: str) -> str:
    """Return the error line of a container."""
    (line_of_container,) = [
        line for line in stderr.splitlines() if live.id in line and "hint: " not in line
    ]
    return line_of_container


def left_behind(stderr: str) -> list[int]:
    """Return the pids in a message; these processes are in an uninterruptible wait."""
    match = LEFT.search(stderr)
    assert match, stderr
    pids = [int(pid) for pid in match[1].split(",")]
    assert all(map(waiting, pids)), stderr
    return pids


def assert_no_resources(pid: int) -> None:
    """Assert that a process has no lock, no terminal and no pipe of its caller."""
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
def test_commands_on_a_silent_container_end(apart: Installation, tmp_path: Path) -> None:
    """The error names the container and the abandoned process, which has no resources."""
    names = ids(len(VERBS))
    names += ids(1, like=names[1])
    with (
        containers_with_gpu(apart, tmp_path, names, attached=names[2:3]) as lives,
        ExitStack() as stack,
    ):
        *hostile, good = lives
        for live in hostile[:-1]:
            stack.enter_context(over_libraries(live))
        stack.enter_context(silent(tmp_path, str(hostile[-1].bundle.root)))
        commands = [
            stack.enter_context(running_command(live, verb, *words))
            for live, (verb, words) in zip(hostile, VERBS, strict=True)
        ]
        pids = []
        for live, command in zip(hostile, commands, strict=True):
            _, stderr = command.communicate(timeout=LONG)
            assert command.returncode == 1, stderr
            assert "GH1760" in stderr
            assert live.id in stderr
            pids += left_behind(stderr)
        for pid in pids:
            assert_no_resources(pid)
        good.attach("3")
        assert good.gpuhook("explain").rc == 0
        assert hostile[0].gpuhook("explain").rc == 0
        assert hostile[0].gpuhook("limits", name="show").rc == 0
        for verb in ("ps", "map"):
            assert on_all(lives, verb).rc == 0
        stack.close()  # the daemons end
        for pid in pids:
            wait_for_end(pid)


def test_sigint_ends_a_command_that_waits(node8: Installation, tmp_path: Path) -> None:
    """Its child hangs; this includes a command that undoes its changes."""
    with containers_with_gpu(node8, tmp_path, ids(2)) as lives, ExitStack() as stack:
        for live, (verb, words) in zip(lives, VERBS, strict=False):
            file_system = stack.enter_context(over_libraries(live))
            command = stack.enter_context(running_command(live, verb, *words))
            eventually(file_system.is_asked)
            command.send_signal(signal.SIGINT)
            command.communicate(timeout=30)
            assert command.returncode != 0


def test_repair_all_skips_a_silent_mount(node8: Installation, tmp_path: Path) -> None:
    """mountinfo shows the mount: the container is reported, and the others are repaired."""
    with containers_with_gpu(node8, tmp_path, ids(3)) as lives:
        for live in lives:
            reset(live)
        with over_libraries(lives[1]) as file_system:
            done = on_all(lives, "repair", "--all")
            assert done.rc == 1
            error = error_of(lives[1], done.stderr)
            assert error.startswith("Error GH1762")
            assert f" {LIBRARIES} " in error
            doctor = on_all(lives, "doctor", *node8.node.options, "--checks", "containers")
            assert LIBRARIES in doctor.stdout
            assert file_system.requests == []
        for live in (lives[0], lives[2]):
            assert f"{live.id}: done" in done.stdout
            assert_nodes(live.view(), node8, CONTROL, 2)


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_repair_all_continues_after_a_link_to_a_silent_mount(
    node8: Installation, tmp_path: Path
) -> None:
    """A link hides the mount: one child hangs, and the other containers are repaired."""
    names = ids(2)
    with containers_with_gpu(node8, tmp_path, [*names, *ids(1, like=names[0])]) as lives:
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
            error = error_of(hostile, done.stderr)
            assert error.startswith("Error GH1760")
            (pid,) = left_behind(error)
            assert_no_resources(pid)
            for live in (lives[0], lives[2]):
                assert f"{live.id}: done" in done.stdout
                assert_nodes(live.view(), node8, CONTROL, 2)
                live.attach("3")
        wait_for_end(pid)
