# SPDX-License-Identifier: Apache-2.0
"""Each configuration of the matrix with real commands: configured twice, edited, undone."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpuhook.engines.configure import configure_engine, engine_status, engine_verification
from gpuhook.engines.configure.configure_engine import Where
from gpuhook.engines.configure.engine_plan import (
    ENGINES,
    ConfigChange,
    EngineOptions,
    EnginePlan,
    ExpectedConfig,
    Route,
    Service,
)
from gpuhook.engines.configure.host_files import Host
from gpuhook.engines.configure.host_programs import HostPrograms, Ran
from gpuhook.errors import GpuhookError
from tests.contract.configurations import Case, cases
from tests.refusal import refused

pytestmark = pytest.mark.contract
CASES = {f"{one}-{name}": (one, case) for one in ENGINES for name, case in cases(one).items()}


def _files(root: Path) -> dict[str, tuple[int, bytes | None]]:
    files: dict[str, tuple[int, bytes | None]] = {}
    for path in root.rglob("*"):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else None
        files[str(path.relative_to(root))] = (status.st_mode, content)
    return files


@pytest.mark.parametrize(("engine", "case"), CASES.values(), ids=CASES)
def test_undo_restores_each_configuration(
    engine: str, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = case.write(tmp_path)
    spec = Ran("ctr oci spec", 0, node.base_spec.decode(), "") if node.base_spec else None
    monkeypatch.setattr(HostPrograms, "version", lambda *_: node.version)
    monkeypatch.setattr(HostPrograms, "run", lambda _, words: spec if words[0] == "ctr" else None)
    (tmp_path / "var/lib").mkdir(parents=True, exist_ok=True)
    before = _files(tmp_path)
    host = Host(str(tmp_path))
    where = Where(engine, node.config, node.drop_in, node.home)
    if case.fault:
        with refused(case.fault):
            configure_engine.configure(host, where, case.asked())
        assert _files(tmp_path) == before
        return
    configure_engine.configure(host, where, case.asked())
    becomes = {path: text.encode("utf-8", "surrogateescape") for path, text in case.becomes.items()}
    assert {path: host.read(path) for path in becomes} == becomes
    assert not configure_engine.configure(host, where, case.asked()).writes
    configure_engine.undo(host, Where(engine, home=node.home))
    assert _files(tmp_path) == before


PROGRAMS = ("/usr/bin/gpuhook-runtime", "/usr/bin/gpuhook-prestart", "/usr/bin/crun")
OF_OTHERS = {
    "docker": (
        "/etc/docker/daemon.json",
        '{\r\n\t"features": {"buildkit": true},\r\n\t"runtimes": {"kata": {"path": "/k"}}\r\n}\r\n',
    ),
    "crio": (
        "/etc/crio/crio.conf",
        '# ours\n[crio.runtime.runtimes.crun]\nruntime_path = "/usr/bin/crun"\n',
    ),
    "podman": ("/etc/containers/containers.conf", '# ours\n[engine]\nruntime = "crun"\n'),
    "containerd": ("/etc/containerd/config.toml", "version = 2 # ours\n"),
}


@pytest.mark.parametrize("is_default", [False, True], ids=["beside", "default"])
@pytest.mark.parametrize("has_file", [False, True], ids=["bare", "file"])
@pytest.mark.parametrize("route", ["wrapper", "hook", "cdi"])
@pytest.mark.parametrize("engine", ENGINES)
def test_undo_restores_each_integration_of_each_engine(
    engine: str,
    route: Route,
    has_file: bool,
    is_default: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    version = {"containerd": (1, 7, 27), "docker": (28, 3), "crio": (1, 33), "podman": (5, 4)}
    spec = Ran("ctr oci spec", 0, '{"ociVersion": "1.0.2", "process": {}}', "")
    monkeypatch.setattr(HostPrograms, "version", lambda *_: version[engine])
    monkeypatch.setattr(HostPrograms, "run", lambda _, words: spec if words[0] == "ctr" else None)
    for path in PROGRAMS:
        (tmp_path / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path[1:]).touch(mode=0o755)
    (tmp_path / "var/lib").mkdir(parents=True)
    if has_file:
        path, text = OF_OTHERS[engine]
        (tmp_path / path[1:]).parent.mkdir(parents=True)
        (tmp_path / path[1:]).write_bytes(text.encode())
    before = _files(tmp_path)
    host, where = Host(str(tmp_path)), Where(engine)
    wanted = EngineOptions(route, "nvidia", PROGRAMS[0], PROGRAMS[1], is_default=is_default)
    if is_default and route != "wrapper" and engine != "containerd":
        with pytest.raises(GpuhookError):
            configure_engine.configure(host, where, wanted)
        assert _files(tmp_path) == before
        return
    dry = configure_engine.configure(host, where, wanted, is_dry=True)
    done = configure_engine.configure(host, where, wanted)
    assert done.writes == dry.writes
    assert not configure_engine.configure(host, where, wanted).writes
    if route == "wrapper":
        runtimes = engine_status.engine_status(host, where).reading.configuration.runtimes
        assert runtimes["nvidia"].path == PROGRAMS[0]
    undone = configure_engine.undo(host, where)
    assert len(undone.writes) == len(done.writes)
    assert _files(tmp_path) == before


@pytest.fixture(scope="module")
def containerd_host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a host that has only containerd, ctr, and their libraries."""
    if os.geteuid() != 0:
        pytest.skip("the host's programs are run by chroot(2)")
    root = tmp_path_factory.mktemp("host")
    for program in ("containerd", "ctr"):
        at = shutil.which(program)
        assert at is not None
        needed = subprocess.run(["ldd", at], check=True, capture_output=True, text=True).stdout
        libraries = [word for word in needed.split() if word.startswith("/")]
        for path in (at, *libraries):
            place = root / path[1:]
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.exists():
                shutil.copy(path, place)
    (root / "var/lib").mkdir(parents=True)
    (root / "etc").mkdir()
    return root


@pytest.mark.parametrize("route", ["wrapper", "hook"])
def test_containerd_verifies_the_configuration(containerd_host: Path, route: Route) -> None:
    host, where = Host(str(containerd_host)), Where("containerd")
    before = _files(containerd_host)
    wanted = EngineOptions(route, "nvidia", PROGRAMS[0], PROGRAMS[1])
    done = configure_engine.configure(host, where, wanted)
    assert done.verified == "containerd --config /etc/containerd/config.toml config dump"
    configure_engine.undo(host, where)
    assert _files(containerd_host) == before


def test_configuration_that_containerd_refuses_is_reverted(
    containerd_host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _files(containerd_host)
    monkeypatch.setattr(engine_verification, "require_effect", lambda *_: None)
    path = "/etc/containerd/config.toml"
    plan = EnginePlan(
        "containerd",
        (ConfigChange(path, None, b'version = "2"\n'),),
        ExpectedConfig({}),
        Service(),
        config=path,
    )
    monkeypatch.setattr(
        configure_engine, "module_of", lambda _: SimpleNamespace(plan=lambda *_: plan)
    )
    with refused("GH2005"):
        configure_engine.configure(
            Host(str(containerd_host)),
            Where("containerd"),
            EngineOptions("wrapper", "nvidia", PROGRAMS[0], PROGRAMS[1]),
        )
    assert _files(containerd_host) == before
