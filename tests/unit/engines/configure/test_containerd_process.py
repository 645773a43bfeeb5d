# SPDX-License-Identifier: Apache-2.0
"""Find the containerd process that runs with a configuration file."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gpuhook.engines.configure.containerd.containerd_process import host_programs
from gpuhook.engines.configure.host_files import Host

NOBODY = 65534
Start = Callable[..., None]


@pytest.fixture
def program() -> Iterator[Path]:
    """Return a program named containerd, outside the PATH, executable by every user."""
    with TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        path = Path(place) / "containerd"
        shutil.copy("/bin/busybox", path)
        path.chmod(0o755)
        yield path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return a configuration file of version 3, which the PATH's containerd 1.x does not read."""
    path = tmp_path / "config.toml"
    path.write_text("version = 3\n")
    return path


@pytest.fixture
def start(program: Path) -> Iterator[Start]:
    """Return a function that starts the program with options, as a user, until it runs."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*options: str, user: int | None = None) -> None:
        words = ["sh", "-s", "--", *options]
        if user is not None and os.geteuid() != 0:
            pytest.skip("only root can start a process of another user")
        process = subprocess.Popen(words, executable=program, stdin=subprocess.PIPE, user=user)
        started.append(process)
        file = Path(f"/proc/{process.pid}/cmdline")
        end = time.monotonic() + 60
        while file.read_bytes().split(b"\0")[:2] != [b"sh", b"-s"]:
            assert time.monotonic() < end
            time.sleep(0.01)

    yield run
    for process in started:
        process.communicate()


def process_of(config: Path) -> str | None:
    """Return the containerd process of this machine that reads a file."""
    return host_programs(Host("/"), "containerd", str(config)).find("containerd")


@pytest.mark.parametrize("option", ["-c {}", "--config {}", "--config={}", "-config={}"])
def test_process_is_found_by_its_command_line(
    option: str, start: Start, program: Path, config: Path
) -> None:
    start(*option.format(config).split())
    assert process_of(config) == str(program)


@pytest.mark.parametrize("options", [(), ("--config",), ("--config={}.old",), ("--log={}",)])
def test_process_with_another_file_does_not_match(
    options: tuple[str, ...], start: Start, program: Path, config: Path
) -> None:
    start(*(one.format(config) for one in options))
    assert process_of(config) != str(program)


def test_program_of_another_user_is_not_run(start: Start, program: Path, config: Path) -> None:
    start("--config", str(config), user=NOBODY)
    assert process_of(config) != str(program)


@pytest.mark.parametrize("mode", [0o757, 0o775])
def test_writable_program_is_not_run(mode: int, start: Start, program: Path, config: Path) -> None:
    start("--config", str(config))
    program.chmod(mode)
    assert process_of(config) != str(program)


def test_replaced_program_is_that_of_the_next_start(
    start: Start, program: Path, config: Path
) -> None:
    start("--config", str(config))
    program.unlink()
    assert process_of(config) != str(program)
    shutil.copy("/bin/busybox", program)
    assert process_of(config) == str(program)


def test_version_of_a_running_containerd_1_is_used(
    start: Start, program: Path, config: Path
) -> None:
    """Its version is known: containerd 1.x reads the keys of version 2."""
    start("--config", str(config))
    program.unlink()
    program.write_text("#!/bin/sh\necho containerd github.com/containerd/containerd v1.7.27\n")
    program.chmod(0o755)
    programs = host_programs(Host("/"), "containerd", str(config))
    assert programs.version("containerd") == (1, 7, 27)
