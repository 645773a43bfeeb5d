# SPDX-License-Identifier: Apache-2.0
"""Programs that change files without end while gpuhook works on them."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.contract import compiled
from tests.contract.build_cache import CHECKOUT
from tests.contract.live import Live
from tests.waiting import eventually

LINK = "../" * 24


@dataclass(frozen=True)
class Swapper:
    """A running swapper (programs/swapper.c); `root` is where its absolute paths begin."""

    root: Path
    threads: int

    @property
    def changes(self) -> int:
        """Return how many files it has exchanged, mounted or made."""
        data = (self.root / "changes").read_bytes()
        return int(struct.unpack("=Q", data)[0]) if len(data) == 8 else 0

    def is_busy(self) -> bool:
        """Return whether it has begun."""
        return (self.root / "changes").exists() and self.changes > 0

    def stop(self) -> None:
        """Let it end its changes: each pair of files that it exchanges is as it was."""
        (self.root / "stop").touch()
        done = self.root / "stop.done"
        eventually(lambda: done.exists() and done.stat().st_size == self.threads)


def arguments(*groups: Sequence[str]) -> list[str]:
    """Return the command of a swapper in a container: each group of operations is a thread."""
    words = [word for group in groups for word in (*group, "--")]
    return ["/swapper", "/changes", "/stop", *words[:-1]]


def install(root: Path) -> None:
    """Copy the swapper into a root file system."""
    shutil.copy(compiled.swapper(), root / "swapper")


@contextmanager
def on_host(place: Path, *groups: Sequence[str]) -> Iterator[Swapper]:
    """Yield a swapper that runs on the host, as a process with its own volume does.

    It has `place` as its root directory.
    """
    install(place)
    swapper = Swapper(place, len(groups))
    with subprocess.Popen(["chroot", str(place), *arguments(*groups)]) as process:
        try:
            eventually(swapper.is_busy)
            yield swapper
            swapper.stop()
        finally:
            process.kill()


def run_rounds(live: Live, rounds: int, verbs: Sequence[str], device: str = "2") -> dict[str, Any]:
    """Run commands on a container in one process (rounds.py), and return how they ended."""
    plan = live.bundle.path / "plan.json"
    roots = [str(live.bundle.path / "state")]
    document = {"id": live.id, "roots": roots, "device": device, "rounds": rounds, "verbs": verbs}
    plan.write_text(json.dumps(document), encoding="utf-8")
    around = live.container.around.prefix
    command = [*around, sys.executable, "-m", "tests.attacks.rounds", str(plan)]
    env = {**live.env, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd="/", check=False)
    assert done.returncode == 0, done
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def link_to(path: Path, target: str) -> None:
    """Make a link, also where the target does not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.symlink(target, path)
