# SPDX-License-Identifier: Apache-2.0
"""Configure an engine, and undo it byte for byte."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from gpuhook.engines.configure import changeset, configure_engine
from gpuhook.engines.configure.engine_plan import ConfigChange
from gpuhook.engines.configure.host_files import Host
from tests.unit import configured_docker, docker_host
from tests.unit.configured_docker import BESIDE, MAIN
from tests.unit.docker_host import OTHER, configure, runtimes, tree, undo


@pytest.fixture(autouse=True)
def _docker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configure_engine, "module_of", lambda _: configured_docker)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a host whose daemon.json has an unusual mode and owner."""
    return docker_host.made(tmp_path / "host")


def test_undo_restores_bytes_modes_and_owners(root: Path) -> None:
    before = tree(root)
    result = configure(root)
    assert [one.path for one in result.writes] == [MAIN, BESIDE]
    assert runtimes(root) == ["nvidia"]
    assert tree(root)[f"{root}{MAIN}"][:3] == before[f"{root}{MAIN}"][:3]
    undo(root)
    assert tree(root) == before


def test_undo_restores_a_mode_that_was_changed_later(root: Path) -> None:
    before = tree(root)
    configure(root)
    (root / MAIN[1:]).chmod(0o600)
    undo(root)
    assert tree(root) == before


def test_undo_removes_a_file_that_did_not_exist(root: Path) -> None:
    (root / MAIN[1:]).unlink()
    (root / "etc/docker").rmdir()
    before = tree(root)
    configure(root)
    assert stat.S_IMODE((root / MAIN[1:]).stat().st_mode) == 0o644
    undo(root)
    assert tree(root) == before


def test_second_run_writes_nothing(root: Path) -> None:
    configure(root)
    before = {path: path.stat().st_ino for path in root.rglob("*") if path.is_file()}
    result = configure(root)
    assert not result.writes
    assert {path: path.stat().st_ino for path in root.rglob("*") if path.is_file()} == before


def test_other_options_replace_the_first_and_undo_restores_the_original(
    root: Path,
) -> None:
    before = tree(root)
    configure(root)
    configure(root, OTHER)
    assert runtimes(root) == ["gpuhook"]
    undo(root)
    assert tree(root) == before


def test_backups_are_readable_by_root_only(root: Path) -> None:
    configure(root)
    place = root / "var/lib/gpuhook/configured/docker"
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert {stat.S_IMODE(one.stat().st_mode) for one in place.iterdir()} == {0o600}


def test_second_undo_changes_nothing(root: Path) -> None:
    configure(root)
    assert undo(root).was_configured
    before = tree(root)
    assert not undo(root).was_configured
    assert tree(root) == before


def test_undo_of_an_edited_file_removes_only_gpuhooks_part(root: Path) -> None:
    configure(root)
    file = root / MAIN[1:]
    document = json.loads(file.read_bytes()) | {"log-level": "warn"}
    file.write_text(json.dumps(document))
    result = undo(root)
    assert json.loads(file.read_bytes()) == {"debug": True, "runtimes": {}, "log-level": "warn"}
    assert not (root / BESIDE[1:]).exists()
    assert any(MAIN in note and "edited since" in note for note in result.notes)


def test_edit_between_two_runs_survives_undo(root: Path) -> None:
    configure(root)
    file = root / MAIN[1:]
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"log-level": "warn"}))
    configure(root, OTHER)
    assert json.loads(file.read_bytes())["log-level"] == "warn"
    assert runtimes(root) == ["gpuhook"]
    undo(root)
    assert json.loads(file.read_bytes()) == {"debug": True, "runtimes": {}, "log-level": "warn"}


def test_file_that_was_removed_is_not_restored(root: Path) -> None:
    configure(root)
    (root / MAIN[1:]).unlink()
    result = undo(root)
    assert not (root / MAIN[1:]).exists()
    assert any("was removed since" in note for note in result.notes)


def test_directory_with_other_files_is_kept(root: Path) -> None:
    configure(root)
    (root / "etc/docker/gpuhook.d/theirs").touch()
    result = undo(root)
    assert (root / "etc/docker/gpuhook.d/theirs").exists()
    assert any("/etc/docker/gpuhook.d remains" in note for note in result.notes)


def test_link_is_kept_and_its_file_changes(root: Path) -> None:
    (root / "opt").mkdir()
    (root / MAIN[1:]).rename(root / "opt/daemon.json")
    (root / MAIN[1:]).symlink_to("/opt/daemon.json")
    before = tree(root)
    configure(root)
    assert (root / MAIN[1:]).is_symlink()
    assert b"gpuhook-runtime" in (root / "opt/daemon.json").read_bytes()
    undo(root)
    assert tree(root) == before


def test_link_outside_the_root_is_not_followed(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / MAIN[1:]).unlink()
    (root / "etc/docker").rmdir()
    (root / "etc/docker").symlink_to(f"../../{outside.name}")
    before = tree(root)
    configure(root)
    assert not list(outside.iterdir())
    assert (root / "outside/daemon.json").exists()
    undo(root)
    assert tree(root) == before


def test_dry_run_shows_what_the_real_run_writes(root: Path, tmp_path: Path) -> None:
    before = tree(root)
    dry = configure(root, is_dry=True)
    assert tree(root) == before
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", root, copy], check=True)
    text = changeset.diff_text(dry.writes).encode("utf-8", "surrogateescape")
    subprocess.run(["patch", "-s", "-p1", "-d", copy], input=text, check=True)
    assert configure(root).writes == dry.writes
    for path in (MAIN, BESIDE):
        assert (copy / path[1:]).read_bytes() == (root / path[1:]).read_bytes()
    dry = undo(root, is_dry=True)
    assert undo(root).writes == dry.writes


def test_extended_attributes_are_kept(root: Path) -> None:
    file = root / MAIN[1:]
    try:
        os.setxattr(file, "user.kept", b"yes")
    except OSError:
        pytest.skip("this file system has no attributes of users")
    configure(root)
    assert os.getxattr(file, "user.kept") == b"yes"


def test_diff_marks_a_missing_final_newline() -> None:
    text = changeset.file_diff(ConfigChange("/x", b"a\nb", b"a\nb\n"))
    assert text.splitlines()[-3:] == ["-b", "\\ No newline at end of file", "+b"]


def test_directory_that_becomes_a_link_gets_no_mode(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who can write to the parent replaces the directory by a link meanwhile."""
    other = tmp_path / "of-somebody-else"
    other.mkdir(0o700)
    make = os.mkdir

    def swapped(name: str, mode: int, *, dir_fd: int) -> None:
        make(name, mode, dir_fd=dir_fd)
        os.rmdir(name, dir_fd=dir_fd)
        os.symlink(other, name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", swapped)
    with pytest.raises(OSError, match="/made"):
        Host(str(root)).make_directory("/made")
    assert stat.S_IMODE(other.stat().st_mode) == 0o700
