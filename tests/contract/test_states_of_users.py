# SPDX-License-Identifier: Apache-2.0
"""Container states of users: root reads a limited part of them, and waits for none."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.contract.fuse import silent
from tests.contract.installation import Installation
from tests.contract.live import Live
from tests.contract.test_live_trust import USER, users_process
from tests.contract.test_silent_file_systems import containers_with_gpu, ids, on_all
from tests.waiting import eventually

PLACE = f"/run/user/{USER}"
COMMANDS = [("ps",), ("map",), ("doctor", "--checks", "containers"), ("repair", "--all")]


@dataclass(frozen=True)
class Machine:
    """A mount namespace in which a user has a runtime directory: other tests do not see it."""

    pid: int

    @property
    def via(self) -> list[str]:
        """Return the prefix of a command that runs there."""
        return ["nsenter", "--target", str(self.pid), "--mount"]

    @property
    def home(self) -> Path:
        """Return the user's runtime directory, as the test reaches it."""
        return Path(f"/proc/{self.pid}/root{PLACE}")

    def chown_to_user(self) -> None:
        """Make the user the owner of everything in the directory, without following links."""
        for path in (self.home, *self.home.rglob("*")):
            os.chown(path, USER, USER, follow_symlinks=False)

    def write_state(self, name: str, text: str) -> None:
        """Write the state of a container of the user."""
        (self.home / "runc" / name).mkdir()
        (self.home / "runc" / name / "state.json").write_text(text, encoding="utf-8")

    def assert_commands_work(self, live: Live) -> None:
        """Assert that each command of root ends, and works on root's container."""
        options = live.installation.node.options
        for verb, *words in COMMANDS:
            more = options if verb == "doctor" else []
            done = on_all([live], verb, *words, *more, via=self.via)
            assert done.rc == 0 or verb == "doctor", done
            assert "Traceback" not in done.stderr
        assert live.gpuhook("inspect", via=self.via).rc == 0
        error = live.refused("GH1735", "inspect", name="no-such-container", via=self.via)
        assert PLACE in error


@pytest.fixture
def machine() -> Iterator[Machine]:
    """Yield such a machine."""
    script = f"mount -t tmpfs none /run/user && mkdir -p {PLACE}/runc && exec sleep 600"
    Path("/run/user").mkdir(exist_ok=True)
    with subprocess.Popen(["unshare", "--mount", "sh", "-c", script]) as process:
        made = Machine(process.pid)
        own = Path("/proc/self/ns/mnt").readlink()
        eventually(lambda: Path(f"/proc/{process.pid}/ns/mnt").readlink() != own)
        eventually((made.home / "runc").is_dir)
        made.chown_to_user()
        yield made
        process.kill()


@pytest.mark.parametrize("where", ["runc", "runc/theirs", "."])
def test_silent_file_system_of_a_user(
    where: str, machine: Machine, node8: Installation, tmp_path: Path
) -> None:
    """The user mounts FUSE with allow_other over the state of their containers."""
    (machine.home / where).mkdir(exist_ok=True)
    machine.chown_to_user()
    with (
        containers_with_gpu(node8, tmp_path, ids(1)) as (live,),
        silent(tmp_path, f"{PLACE}/{where}", machine.pid) as file_system,
    ):
        machine.assert_commands_work(live)
        assert file_system.requests == []


@pytest.mark.parametrize("kind", ["root", "state", "bundle"])
def test_link_of_a_user_is_not_followed(
    kind: str, machine: Machine, node8: Installation, tmp_path: Path
) -> None:
    """Neither links nor the bundle of a user's state lead root into the silent file system."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with (
        containers_with_gpu(node8, tmp_path, ids(1)) as (live,),
        silent(tmp_path, str(elsewhere), machine.pid) as file_system,
        users_process() as pid,
    ):
        if kind == "root":
            (machine.home / "runc").rmdir()
            (machine.home / "runc").symlink_to(elsewhere)
        elif kind == "state":
            (machine.home / "runc/theirs").symlink_to(elsewhere)
        else:
            labels = {"labels": [f"bundle={elsewhere}/below"]}
            machine.write_state("theirs", json.dumps({"init_process_pid": pid, "config": labels}))
        machine.chown_to_user()
        machine.assert_commands_work(live)
        assert file_system.requests == []


def test_large_states_are_not_read(machine: Machine, node8: Installation, tmp_path: Path) -> None:
    """A large state, or more than a few megabytes of small ones, is refused."""
    machine.write_state("large", " " * (300 << 10) + "{}")
    text = json.dumps({"init_process_pid": 0, "x": "x" * (200 << 10)})
    for number in range(40):
        machine.write_state(f"many{number:02}", text)
    machine.chown_to_user()
    with containers_with_gpu(node8, tmp_path, ids(1)) as (live,):
        machine.assert_commands_work(live)
        error = live.refused("GH1739", "inspect", name="large", via=machine.via)
        assert "at most 256 KiB" in error
        live.refused("GH1738", "inspect", name="many00", via=machine.via)
        error = live.refused("GH1739", "inspect", name="many39", via=machine.via)
        assert "in total" in error
