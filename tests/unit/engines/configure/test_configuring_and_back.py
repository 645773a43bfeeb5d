# SPDX-License-Identifier: Apache-2.0
"""Every case of Docker, CRI-O and podman on real files: configured twice, undone byte for byte."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from gpuhook.engines.configure import configure_engine
from gpuhook.engines.configure.configure_engine import Where
from gpuhook.engines.configure.engine_plan import EngineOptions
from gpuhook.engines.configure.host_files import Host
from gpuhook.engines.configure.host_programs import HostPrograms
from tests.unit.configuring import configured, wanted
from tests.unit.engines.configure import test_configuring_crio as crio
from tests.unit.engines.configure import test_configuring_docker as docker
from tests.unit.engines.configure import test_configuring_podman as podman

OF_WANTED = {one.name for one in fields(EngineOptions)}
CASES: dict[str, tuple[str, dict[str, bytes], dict[str, Any]]] = {
    f"docker-{name}": ("docker", docker.files(before), {"version": docker.RECENT, **more})
    for name, (before, _, more) in docker.CASES.items()
}
for engine, module in (("crio", crio), ("podman", podman)):
    CASES |= {
        f"{engine}-{name}": (engine, module.files(before), more)
        for name, (before, _, more) in module.CASES.items()
    }


def _files(root: Path) -> dict[str, bytes | None]:
    return {
        f"/{path.relative_to(root)}": path.read_bytes() if path.is_file() else None
        for path in root.rglob("*")
    }


@pytest.mark.parametrize(("engine", "before", "more"), CASES.values(), ids=CASES)
def test_configure_and_undo(
    engine: str,
    before: dict[str, bytes],
    more: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HostPrograms, "version", lambda *_: more.get("version"))
    monkeypatch.setattr(HostPrograms, "run", lambda *_: None)
    (tmp_path / "var/lib").mkdir(parents=True)
    (tmp_path / "home/me/.local/state").mkdir(parents=True)
    for path, content in before.items():
        place = tmp_path / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    was = _files(tmp_path)
    chosen = {key: value for key, value in more.items() if key in {"config", "drop_in", "home"}}
    what = wanted(**{key: value for key, value in more.items() if key in OF_WANTED})
    host, where = Host(str(tmp_path)), Where(engine, **chosen)
    configure_engine.configure(host, where, what)
    for path, content in configured(engine, before, **more).items():
        assert host.read(path) == content
    assert not configure_engine.configure(host, where, what).writes
    configure_engine.undo(host, Where(engine, home=where.home))
    assert _files(tmp_path) == was


def test_note_on_restart_only_if_something_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HostPrograms, "version", lambda *_: (27, 0))
    monkeypatch.setattr(HostPrograms, "run", lambda *_: None)
    (tmp_path / "var/lib").mkdir(parents=True)
    host, said = Host(str(tmp_path)), "a restart of dockerd stops its containers"
    for is_told in (True, False):
        result = configure_engine.configure(host, Where("docker"), wanted())
        assert (said in result.notes) is is_told
    assert said in configure_engine.undo(host, Where("docker"), is_dry=True).notes
    assert said in configure_engine.undo(host, Where("docker")).notes


def test_missing_chosen_file_has_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a typing error."""
    monkeypatch.setattr(HostPrograms, "version", lambda *_: None)
    monkeypatch.setattr(HostPrograms, "run", lambda *_: None)
    (tmp_path / "etc").mkdir()
    host, where = Host(str(tmp_path)), Where("docker", config="/etc/deamon.json")
    said = "/etc/deamon.json did not exist: docker reads it only if started with this file"
    for is_told in (True, False):
        result = configure_engine.configure(host, where, wanted())
        assert (said in result.notes) is is_told


def test_restored_earlier_file_has_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostPrograms, "version", lambda *_: None)
    monkeypatch.setattr(HostPrograms, "run", lambda *_: None)
    (tmp_path / "etc").mkdir()
    for name in ("a.toml", "b.toml"):
        (tmp_path / "etc" / name).write_text("version = 2\n", encoding="utf-8")
    host = Host(str(tmp_path))
    said = (
        "/etc/a.toml is restored: gpuhook configures containerd in one file, "
        "which is now a different one"
    )
    for config, is_told in (("a", False), ("a", False), ("b", True), ("b", False)):
        where = Where("containerd", config=f"/etc/{config}.toml")
        assert (said in configure_engine.configure(host, where, wanted()).notes) is is_told
    assert (tmp_path / "etc/a.toml").read_text(encoding="utf-8") == "version = 2\n"


@pytest.mark.parametrize(
    "added", [b"# mine\n", b"# mine\n[mine]\na = 1\n"], ids=["comment", "table"]
)
@pytest.mark.parametrize(
    ("engine", "path"),
    [
        ("containerd", "/etc/containerd/config.toml"),
        ("crio", "/etc/crio/crio.conf.d/99-gpuhook.conf"),
        ("podman", "/etc/containers/containers.conf.d/99-gpuhook.conf"),
    ],
)
def test_additions_to_a_file_of_gpuhook_are_kept(
    engine: str, path: str, added: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another configure, and by undo."""
    monkeypatch.setattr(HostPrograms, "version", lambda *_: None)
    monkeypatch.setattr(HostPrograms, "run", lambda *_: None)
    host, where, what = Host(str(tmp_path)), Where(engine), wanted()
    (tmp_path / "etc").mkdir()
    configure_engine.configure(host, where, what)
    file = tmp_path / path[1:]
    file.write_bytes(file.read_bytes() + added)
    configure_engine.configure(host, where, what)
    assert added in file.read_bytes()
    assert b"gpuhook-runtime" in file.read_bytes()
    assert configure_engine.configure(host, where, what).writes == ()
    configure_engine.undo(host, where)
    assert added in file.read_bytes()
    assert b"gpuhook" not in file.read_bytes()


def test_removed_hook_that_a_package_restores_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package upgrade can restore it: undo continues without the file."""
    monkeypatch.setattr(HostPrograms, "version", lambda *_: None)
    monkeypatch.setattr(HostPrograms, "run", lambda *_: None)
    theirs = tmp_path / crio.THEIR_HOOK[1:]
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(crio.HOOKED)
    host, where = Host(str(tmp_path)), Where("crio")
    configure_engine.configure(host, where, wanted(route="hook", takes_over=True))
    assert not theirs.exists()
    theirs.write_bytes(crio.HOOKED + b"\n")
    notes = configure_engine.undo(host, where).notes
    assert theirs.read_bytes() == crio.HOOKED + b"\n"
    assert any("recreated" in one for one in notes)
    assert os.listdir(theirs.parent) == [theirs.name]


def test_undo_does_not_read_the_default_file(tmp_path: Path) -> None:
    """Undo needs no version of containerd, and the file can be anything."""
    (tmp_path / "var/lib").mkdir(parents=True)
    host, where = Host(str(tmp_path)), Where("containerd", config="/c.toml")
    configure_engine.configure(host, where, wanted())
    (tmp_path / "etc/containerd/config.toml").mkdir(parents=True)
    configure_engine.undo(host, Where("containerd"))
    assert not (tmp_path / "c.toml").exists()
