# SPDX-License-Identifier: Apache-2.0
"""A handle of a process: its facts, and that those of another process never replace them."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuhook.containers.warm.host_mounts import own_mounts
from gpuhook.containers.warm.process_handle import Process
from gpuhook.errors import GpuhookError


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Give a process that only waits."""
    process = subprocess.Popen(["sleep", "60"], env={"NAME": "a value", "ODD": "\udcff"})
    # Popen returns before the kernel has set up the memory of the new program.
    while not Path(f"/proc/{process.pid}/environ").read_bytes():
        time.sleep(0.001)
    yield process
    process.kill()
    process.wait()


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(GpuhookError) as caught:
        call()
    return caught.value.code


def test_facts_of_the_process(sleeper: subprocess.Popen[bytes]) -> None:
    """Start time, variables, files and namespaces are those of the process."""
    with Process(sleeper.pid) as process:
        assert process.read("comm", 64) == b"sleep\n"
        assert process.environment() == ["NAME=a value", "ODD=\udcff"]
        own = os.stat("/proc/self/ns/mnt")
        assert process.namespace("mnt") == (own.st_dev, own.st_ino)
        assert own_mounts(process.pid, process.mounts()) == {}
        assert process.mapped_root() == (0, 0)
        with Process(sleeper.pid, process.started) as again:
            assert again.started == process.started
        root = process.open("root", os.O_PATH | os.O_DIRECTORY)
        assert os.path.samestat(os.fstat(root), os.stat("/"))
        os.close(root)
        process.require_alive()


def test_no_descriptor_leaks(sleeper: subprocess.Popen[bytes]) -> None:
    """Neither an open handle that is closed nor a refused one keeps a descriptor."""
    before = os.listdir("/proc/self/fd")
    with Process(sleeper.pid) as process:
        process.environment()
        process.mounts()
        with pytest.raises(GpuhookError):
            Process(sleeper.pid, process.started + 1)
    assert os.listdir("/proc/self/fd") == before


def test_missing_process_is_refused() -> None:
    assert code_of(lambda: Process(1 << 22)) == "GH1730"


def test_reused_pid_is_refused(sleeper: subprocess.Popen[bytes]) -> None:
    """A process with another start time than the container's is another process."""
    with Process(sleeper.pid) as process:
        assert code_of(lambda: Process(sleeper.pid, process.started - 1)) == "GH1732"


def test_zombie_is_refused(sleeper: subprocess.Popen[bytes]) -> None:
    """A process that has exited is gone, even if no parent has waited for it."""
    with Process(sleeper.pid) as process:
        sleeper.kill()
        os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
        assert code_of(process.require_alive) == "GH1732"
        assert code_of(lambda: Process(sleeper.pid)) == "GH1730"


def test_process_that_ends_while_open(sleeper: subprocess.Popen[bytes]) -> None:
    """Every later question fails, also if the pid is reused."""
    with Process(sleeper.pid) as process:
        sleeper.kill()
        sleeper.wait()
        questions: list[Callable[[], object]] = [
            process.require_alive,
            process.environment,
            process.mounts,
            process.mapped_root,
            lambda: process.namespace("mnt"),
            lambda: process.open("root", os.O_PATH),
        ]
        assert {code_of(question) for question in questions} == {"GH1732"}


def test_process_that_is_ending(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has left its mount namespace, and is not a zombie yet, has exited."""

    opened = os.open

    def left(path: str, *rest: Any, **where: Any) -> int:
        if path == "mountinfo":
            raise OSError(errno.EINVAL, "Invalid argument")
        return opened(path, *rest, **where)

    with Process(sleeper.pid) as process:
        monkeypatch.setattr(os, "open", left)
        assert code_of(process.mounts) == "GH1732"


def test_missing_file_of_a_running_process(sleeper: subprocess.Popen[bytes]) -> None:
    """It is an error with the file's name, not the end of the process."""
    with Process(sleeper.pid) as process, pytest.raises(FileNotFoundError) as caught:
        process.open("no-such-file", os.O_RDONLY)
    assert caught.value.filename == f"/proc/{sleeper.pid}/no-such-file"


def test_long_file_is_cut(sleeper: subprocess.Popen[bytes]) -> None:
    """A file whose length the process chooses is read up to a limit."""
    with Process(sleeper.pid) as process:
        assert code_of(lambda: process.read("environ", 4)) == "GH1310"


def test_missing_permission_has_a_hint() -> None:
    """Needs a process of another user."""
    program = (
        "import os, sys; from gpuhook.containers.warm.process_handle import Process\n"
        "from gpuhook.errors import GpuhookError\n"
        "try: Process(int(sys.argv[1])).namespace('mnt')\n"
        "except GpuhookError as error: print(error.code, error.hint)\n"
    )
    if os.geteuid() != 0:
        pytest.skip("needs root to be somebody else")
    command = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "/usr/bin/python3"]
    done = subprocess.run(
        [*command, "-B", "-c", program, str(os.getpid())],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.stdout.startswith("GH1733 run as root on the host"), done
