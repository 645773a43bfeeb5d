# SPDX-License-Identifier: Apache-2.0
"""What users write down about their containers: root reads a little of it, and waits for none."""

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
from tests.contract.test_silent_file_systems import ids, on_all, several
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
        """Return the user's runtime directory, as we reach it."""
        return Path(f"/proc/{self.pid}/root{PLACE}")

    def owned(self) -> None:
        """Give the user what is in there, links aside."""
        for path in (self.home, *self.home.rglob("*")):
            os.chown(path, USER, USER, follow_symlinks=False)

    def state(self, name: str, text: str) -> None:
        """Write the state of a container of the user's."""
        (self.home / "runc" / name).mkdir()
        (self.home / "runc" / name / "state.json").write_text(text, encoding="utf-8")

    def assert_serves(self, live: Live) -> None:
        """Assert that each command of root ends, and serves root's container."""
        options = live.installation.node.options
        for verb, *words in COMMANDS:
            more = options if verb == "doctor" else []
            done = on_all([live], verb, *words, *more, via=self.via)
            assert done.rc == 0 or verb == "doctor", done
            assert "Traceback" not in done.stderr
        assert live.gpuhook("inspect", via=self.via).rc == 0
        said = live.refused("GH1735", "inspect", name="no-such-container", via=self.via)
        assert PLACE in said


@pytest.fixture
def machine() -> Iterator[Machine]:
    """Give such a machine."""
    script = f"mount -t tmpfs none /run/user && mkdir -p {PLACE}/runc && exec sleep 600"
    Path("/run/user").mkdir(exist_ok=True)
    with subprocess.Popen(["unshare", "--mount", "sh", "-c", script]) as process:
        made = Machine(process.pid)
        own = Path("/proc/self/ns/mnt").readlink()
        eventually(lambda: Path(f"/proc/{process.pid}/ns/mnt").readlink() != own)
        eventually((made.home / "runc").is_dir)
        made.owned()
        yield made
        process.kill()


@pytest.mark.parametrize("where", ["runc", "runc/theirs", "."])
def test_a_file_system(where: str, machine: Machine, node8: Installation, tmp_path: Path) -> None:
    """A user's FUSE with allow_other, in place of the state of that user's containers."""
    (machine.home / where).mkdir(exist_ok=True)
    machine.owned()
    with (
        several(node8, tmp_path, ids(1)) as (live,),
        silent(tmp_path, f"{PLACE}/{where}", machine.pid) as there,
    ):
        machine.assert_serves(live)
        assert there.requests == []


@pytest.mark.parametrize("kind", ["root", "state", "bundle"])
def test_a_path_into_it(kind: str, machine: Machine, node8: Installation, tmp_path: Path) -> None:
    """A link of the user's is not followed, and no bundle that the user's state names is opened."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with (
        several(node8, tmp_path, ids(1)) as (live,),
        silent(tmp_path, str(elsewhere), machine.pid) as there,
        users_process() as pid,
    ):
        if kind == "root":
            (machine.home / "runc").rmdir()
            (machine.home / "runc").symlink_to(elsewhere)
        elif kind == "state":
            (machine.home / "runc/theirs").symlink_to(elsewhere)
        else:
            labels = {"labels": [f"bundle={elsewhere}/below"]}
            machine.state("theirs", json.dumps({"init_process_pid": pid, "config": labels}))
        machine.owned()
        machine.assert_serves(live)
        assert there.requests == []


def test_sizes(machine: Machine, node8: Installation, tmp_path: Path) -> None:
    """A large state is not read, nor are more than a few megabytes of small ones."""
    machine.state("large", " " * (300 << 10) + "{}")
    text = json.dumps({"init_process_pid": 0, "x": "x" * (200 << 10)})
    for number in range(40):
        machine.state(f"many{number:02}", text)
    machine.owned()
    with several(node8, tmp_path, ids(1)) as (live,):
        machine.assert_serves(live)
        said = live.refused("GH1739", "inspect", name="large", via=machine.via)
        assert f"at most {256 << 10} bytes" in said
        live.refused("GH1738", "inspect", name="many00", via=machine.via)
        said = live.refused("GH1739", "inspect", name="many39", via=machine.via)
        assert "in all" in said
