# SPDX-License-Identifier: Apache-2.0
"""A containerd 2 that runs from its own directory is configured, with a 1.x first in the PATH."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gpuhook.engines.configure import configure_engine, engine_verification
from gpuhook.engines.configure.configure_engine import Where
from gpuhook.engines.configure.containerd.containerd_process import host_programs
from gpuhook.engines.configure.engine_plan import (
    EngineNode,
    EngineOptions,
    EnginePlan,
    ExpectedConfig,
    Service,
)
from gpuhook.engines.configure.host_files import Host
from gpuhook.engines.read import containerd_config as reader
from gpuhook.engines.read import engine_config, toml_document
from gpuhook.engines.read.containerd_files import CRI_OF_2, CRI_OF_3
from tests.contract.debs import unpacked
from tests.contract.runtimes import SECONDS
from tests.refusal import refused
from tests.waiting import eventually

pytestmark = pytest.mark.contract
PROGRAM = "/opt/gpuhook/bin/gpuhook-runtime"
WANTED = EngineOptions("wrapper", "nvidia", PROGRAM, "/opt/gpuhook/bin/gpuhook-prestart")
SUITE = "forky"


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program of a containerd 2.1 or newer, in a directory outside the PATH."""
    place = tmp_path_factory.mktemp("containerd-2")
    unpacked(SUITE, ["containerd"], place, "--exclude=./usr/share")
    return place / "usr/bin/containerd"


@pytest.fixture
def config(newer: Path, tmp_path: Path) -> Iterator[Path]:
    """Yield its default configuration, with directories and sockets of the test's own.

    The path of a socket has at most 106 characters, which `tmp_path` can exceed.
    """
    said = subprocess.run([newer, "config", "default"], check=True, capture_output=True, text=True)
    with TemporaryDirectory() as place:
        text = re.sub(r"'(/(?:var|run|opt|etc)/[^']*)'", rf"'{place}\1'", said.stdout)
        assert text.startswith("version = 3\n")
        file = tmp_path / "config.toml"
        file.write_text(text)
        yield file


@pytest.fixture
def running(newer: Path, config: Path) -> Iterator[Path]:
    """Run it with that file, which is returned."""
    with (config.parent / "log").open("wb") as log:
        daemon = subprocess.Popen([newer, "--config", config], stdout=log, stderr=log)
        try:
            command = Path(f"/proc/{daemon.pid}/cmdline")
            eventually(lambda: command.read_bytes().split(b"\0")[0] == os.fsencode(newer))
            yield config
            assert daemon.poll() is None, (config.parent / "log").read_text()
        finally:
            daemon.terminate()
            daemon.wait(SECONDS)


@pytest.fixture(autouse=True)
def _record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the record of what is configured out of the machine's own directory."""
    monkeypatch.setattr(configure_engine, "directory", lambda *_: str(tmp_path / "record"))


def configure(config: Path) -> configure_engine.EngineResult:
    """Configure the containerd of this machine that reads a file."""
    return configure_engine.configure(Host("/"), Where("containerd", config=str(config)), WANTED)


def registered(program: Path, config: Path) -> object:
    """Return the handler that a containerd finds in a file, None without one."""
    words = [str(program), "--config", str(config), "config", "dump"]
    said = subprocess.run(words, check=True, capture_output=True)
    plugins = toml_document.parsed(said.stdout)["plugins"]
    handlers = toml_document.table(plugins, CRI_OF_3, "containerd", "runtimes")
    return toml_document.table(handlers, "nvidia", "options").get("BinaryName")


def require_older() -> None:
    """Skip if the containerd in the PATH is not a 1.x."""
    path = shutil.which("containerd")
    said = (
        subprocess.run([path, "--version"], check=True, capture_output=True, text=True)
        if path
        else None
    )
    if said is None or (engine_config.parse_version(said.stdout) or (2,)) >= (2,):
        pytest.skip("no containerd 1.x in the PATH")


def test_the_containerd_that_reads_the_file_gets_the_handler(newer: Path, running: Path) -> None:
    require_older()
    before = running.read_bytes()
    result = configure(running)
    assert registered(newer, running) == PROGRAM
    assert result.verified == f"{newer} --config {running} config dump"
    configure_engine.undo(Host("/"), Where("containerd", config=str(running)))
    assert running.read_bytes() == before


def test_a_file_of_version_3_is_not_for_the_1x_in_the_path(newer: Path, config: Path) -> None:
    """No containerd runs with the file: the one in the PATH cannot verify it."""
    require_older()
    result = configure(config)
    assert registered(newer, config) == PROGRAM
    assert result.verified == ""


def test_a_table_that_containerd_ignores_is_not_verified(running: Path) -> None:
    handler = f"[plugins.'{CRI_OF_2}'.containerd.runtimes.nvidia]\n"
    text = f'{handler}runtime_type = "{reader.RUNC}"\noptions = {{BinaryName = "{PROGRAM}"}}\n'
    running.write_text(running.read_text() + text)
    expected = ExpectedConfig({"nvidia": PROGRAM})
    plan = EnginePlan("containerd", (), expected, Service(), config=str(running))
    host = Host("/")
    programs = host_programs(host, "containerd", str(running))
    node = EngineNode(host, programs.version("containerd"), str(running))
    with refused("GH2005") as caught:
        engine_verification.verify(programs, plan, node)
    assert "have a runtime nvidia" in caught.value.message
