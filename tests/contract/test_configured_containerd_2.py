# SPDX-License-Identifier: Apache-2.0
"""configure on a containerd 2 outside of the PATH, while the PATH has a containerd 1.x."""

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
def containerd_2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program of a containerd 2.1 or newer, in a directory outside of the PATH."""
    place = tmp_path_factory.mktemp("containerd-2")
    unpacked(SUITE, ["containerd"], place, "--exclude=./usr/share")
    return place / "usr/bin/containerd"


@pytest.fixture
def config(containerd_2: Path, tmp_path: Path) -> Iterator[Path]:
    """Yield its default configuration, with directories and sockets for this test.

    The path of a socket has at most 106 characters, which `tmp_path` can exceed.
    """
    default = subprocess.run(
        [containerd_2, "config", "default"], check=True, capture_output=True, text=True
    )
    with TemporaryDirectory() as place:
        text = re.sub(r"'(/(?:var|run|opt|etc)/[^']*)'", rf"'{place}\1'", default.stdout)
        assert text.startswith("version = 3\n")
        file = tmp_path / "config.toml"
        file.write_text(text)
        yield file


@pytest.fixture
def running_config(containerd_2: Path, config: Path) -> Iterator[Path]:
    """Run containerd 2 with the configuration, and yield that."""
    with (config.parent / "log").open("wb") as log:
        daemon = subprocess.Popen([containerd_2, "--config", config], stdout=log, stderr=log)
        try:
            command = Path(f"/proc/{daemon.pid}/cmdline")
            eventually(lambda: command.read_bytes().split(b"\0")[0] == os.fsencode(containerd_2))
            yield config
            assert daemon.poll() is None, (config.parent / "log").read_text()
        finally:
            daemon.terminate()
            daemon.wait(SECONDS)


@pytest.fixture(autouse=True)
def _record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the record of configured engines out of the machine's own directory."""
    monkeypatch.setattr(configure_engine, "directory", lambda *_: str(tmp_path / "record"))


def configure(config: Path) -> configure_engine.EngineResult:
    """Configure the containerd of this machine that reads a file."""
    return configure_engine.configure(Host("/"), Where("containerd", config=str(config)), WANTED)


def registered_handler(program: Path, config: Path) -> object:
    """Return the handler's program that a containerd reads in a file, None without one."""
    words = [str(program), "--config", str(config), "config", "dump"]
    dump = subprocess.run(words, check=True, capture_output=True)
    plugins = toml_document.parsed(dump.stdout)["plugins"]
    handlers = toml_document.table(plugins, CRI_OF_3, "containerd", "runtimes")
    return toml_document.table(handlers, "nvidia", "options").get("BinaryName")


def require_containerd_1() -> None:
    """Skip if the containerd in the PATH is not a 1.x."""
    path = shutil.which("containerd")
    version = (
        subprocess.run([path, "--version"], check=True, capture_output=True, text=True)
        if path
        else None
    )
    if version is None or (engine_config.parse_version(version.stdout) or (2,)) >= (2,):
        pytest.skip("no containerd 1.x in the PATH")


def test_running_containerd_2_is_configured_and_verified(
    containerd_2: Path, running_config: Path
) -> None:
    require_containerd_1()
    before = running_config.read_bytes()
    result = configure(running_config)
    assert registered_handler(containerd_2, running_config) == PROGRAM
    assert result.verified == f"{containerd_2} --config {running_config} config dump"
    configure_engine.undo(Host("/"), Where("containerd", config=str(running_config)))
    assert running_config.read_bytes() == before


def test_file_of_version_3_is_not_verified_by_containerd_1(
    containerd_2: Path, config: Path
) -> None:
    """No containerd runs with the file, and the one in the PATH cannot read it."""
    require_containerd_1()
    result = configure(config)
    assert registered_handler(containerd_2, config) == PROGRAM
    assert result.verified == ""


def test_table_that_containerd_ignores_fails_the_verification(running_config: Path) -> None:
    handler = f"[plugins.'{CRI_OF_2}'.containerd.runtimes.nvidia]\n"
    text = f'{handler}runtime_type = "{reader.RUNC}"\noptions = {{BinaryName = "{PROGRAM}"}}\n'
    running_config.write_text(running_config.read_text() + text)
    expected = ExpectedConfig({"nvidia": PROGRAM})
    plan = EnginePlan("containerd", (), expected, Service(), config=str(running_config))
    host = Host("/")
    programs = host_programs(host, "containerd", str(running_config))
    node = EngineNode(host, programs.version("containerd"), str(running_config))
    with refused("GH2005") as caught:
        engine_verification.verify(programs, plan, node)
    assert "have a runtime nvidia" in caught.value.message
