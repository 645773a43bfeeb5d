# SPDX-License-Identifier: Apache-2.0
"""Work on containers in a child process: the lock, and a child that is killed or hangs."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuhook.cli import main
from gpuhook.cli.options import container_options as options
from gpuhook.containers import find
from gpuhook.containers.warm.runtime_state import Found
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import procfs
from gpuhook.live.container_worker import ContainerWorker
from gpuhook.target import running_container


@contextmanager
def container(found: Found, *, to_change: bool = False) -> Iterator[Found]:
    """Stand for a container whose state is not read."""
    del to_change
    yield found


def work(found: Any) -> str:
    """Die for one container, and hang for another."""
    if found.id == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if found.id == "hangs":
        signal.pause()
    return str(found.id)


@pytest.mark.usefixtures("state")
def test_killed_or_hanging_worker_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another child works on the next container."""
    monkeypatch.setattr(running_container, "hold", container)
    with ContainerWorker(work, to_change=True, seconds=0.5) as worker:
        assert worker.do(Found("first")) == "first"
        for identity, code in (("killed", "GH1761"), ("hangs", "GH1760")):
            with pytest.raises(GpuhookError, match=identity) as caught:
                worker.do(Found(identity))
            assert caught.value.code == code
        assert worker.do(Found("last")) == "last"


@pytest.mark.usefixtures("state")
def test_lock_belongs_to_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that does not end does not keep the lock."""
    monkeypatch.setattr(running_container, "hold", container)

    def locks(found: Any) -> list[str]:
        del found
        names = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        return [link for link in map(_link, names) if "/locks/" in link]

    with ContainerWorker(locks, to_change=True) as worker:
        assert worker.do(Found("first")) == []


def _link(path: str) -> str:
    return os.readlink(path) if os.path.islink(path) else ""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the test's own state directory."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path))


def test_repair_all_continues_after_a_killed_repair(
    monkeypatch: pytest.MonkeyPatch, state: None
) -> None:
    """It is reported, and the next container is repaired."""

    def repaired(one: Found, **_: object) -> dict[str, object]:
        if one.id == "first":
            os.kill(os.getpid(), signal.SIGKILL)
        return {"container": one.id, "steps": [], "skipped": [], "notes": [], "left": []}

    monkeypatch.setattr(running_container, "hold", container)
    monkeypatch.setattr(options, "context", lambda: None)
    monkeypatch.setattr(find, "everything", lambda _: ([Found("first"), Found("second")], {}))
    monkeypatch.setattr("gpuhook.cli.containers.repair._repaired", repaired)
    done = CliRunner().invoke(main, ["repair", "--all"])
    assert done.exit_code == 1
    assert "Error GH1761: first: " in done.stderr
    assert "signal 9" in done.stderr
    assert "second: nothing to do" in done.stdout


def test_repair_all_ignores_a_container_that_ends_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Containers come and go: there is nothing left to repair."""
    child = subprocess.Popen(["sleep", "60"])
    found = Found("gone", child.pid, procfs.start_time(child.pid))
    child.kill()
    child.wait()
    monkeypatch.setattr(options, "context", lambda: None)
    monkeypatch.setattr(find, "everything", lambda _: ([found], {}))
    done = CliRunner().invoke(main, ["repair", "--all"])
    assert (done.exit_code, done.stderr) == (0, "no running container was granted a GPU\n")
