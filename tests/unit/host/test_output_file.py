# SPDX-License-Identifier: Apache-2.0
"""Output files of commands: written at the given path, and nowhere that another user chooses."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuhook.cli import main
from gpuhook.host import output_file
from gpuhook.host.hot import files
from tests.unit.other_user import AS_ROOT, other_user


def test_link_at_the_path_is_replaced(tmp_path: Path) -> None:
    victim = tmp_path / "shadow"
    victim.write_text("root", encoding="utf-8")
    (tmp_path / "out").symlink_to(victim)
    output_file.write(str(tmp_path / "out"), b"new", 0o600)
    assert victim.read_text("utf-8") == "root"
    assert not (tmp_path / "out").is_symlink()
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o600
    assert sorted(os.listdir(tmp_path)) == ["out", "shadow"]


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a link of another user's")
def test_directory_link_of_another_user_is_refused(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "ours").symlink_to("real")
    (tmp_path / "theirs").symlink_to(real)
    os.lchown(tmp_path / "theirs", 54321, 54321)
    output_file.write(str(tmp_path / "ours/out"), b"new", 0o644)
    assert (real / "out").read_bytes() == b"new"
    with pytest.raises(OSError, match="another user") as raised:
        output_file.write(str(tmp_path / "theirs/other"), b"new", 0o644)
    assert raised.value.filename == str(tmp_path / "theirs/other")
    assert os.listdir(real) == ["out"]


def test_circular_links_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        output_file.write(str(tmp_path / "a/out"), b"", 0o644)


def test_failed_write_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(IsADirectoryError):
        output_file.write(str(tmp_path / "out"), b"new", 0o644)
    assert os.listdir(tmp_path) == ["out"]


def test_map_does_not_overwrite_the_target_of_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("root", encoding="utf-8")
    (tmp_path / "map.svg").symlink_to(victim)
    done = CliRunner().invoke(
        main, ["map", "--inventory", "t4", "--svg", str(tmp_path / "map.svg")]
    )
    assert done.exit_code == 0, done.output
    assert victim.read_text("utf-8") == "root"
    assert (tmp_path / "map.svg").read_text("utf-8").startswith("<")


@pytest.mark.parametrize("is_link", [False, True])
def test_only_a_regular_file_is_replaced(tmp_path: Path, is_link: bool) -> None:
    """As root, a rename would replace /dev/full, or /dev/stdout, for all processes."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    path = pipe
    if is_link:
        path = tmp_path / "stdout"
        path.symlink_to(pipe)
    calls: list[Callable[[], None]] = [
        partial(output_file.write, str(path), b"new", 0o644),
        partial(output_file.require_place, str(path)),
        partial(files.replace, str(path), b"new"),
    ]
    for call in calls:
        with pytest.raises(OSError, match="not a regular file"):
            call()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert path.is_symlink() == is_link
    assert len(os.listdir(tmp_path)) == 1 + is_link


def test_path_is_checked_before_the_content_exists(tmp_path: Path) -> None:
    output_file.require_place(str(tmp_path / "new"))
    assert os.listdir(tmp_path) == []
    for path in (tmp_path / "none/new", tmp_path):
        with pytest.raises(OSError, match=r"No such file|directory") as raised:
            output_file.require_place(str(path))
        assert raised.value.filename == str(path)
    with pytest.raises(OSError, match="names no file"):
        output_file.require_place("")


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["map", "--inventory", "t4", "--svg", "-", "--html", "-"], "name the same file"),
        (["map", "--inventory", "t4", "--svg", "a", "--html", "./a"], "name the same file"),
        (["support-bundle", "--file", "-"], "the bundle is a file"),
        (["support-bundle", "--file", ""], "the bundle is a file"),
    ],
)
def test_one_path_for_two_files_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, names)
    assert (done.exit_code, done.stdout) == (2, "")
    assert told in done.stderr
    assert os.listdir(tmp_path) == []


def test_bundle_without_a_writable_path_is_not_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["support-bundle", "--file", "none/node.tar.gz"])
    assert done.exit_code == 1
    assert done.stderr.startswith("Error GH1590: ")
    assert "looking at the node" not in done.stderr


def test_names_of_standard_output_are_not_replaced(tmp_path: Path) -> None:
    """/dev/stdout is a link into /proc: a replaced one would be a file for every program."""
    with (tmp_path / "redirected").open("wb") as file:
        (tmp_path / "stdout").symlink_to(f"/proc/self/fd/{file.fileno()}")
        with pytest.raises(OSError, match="points to an open file"):
            output_file.write(str(tmp_path / "stdout"), b"new", 0o644)
    assert (tmp_path / "stdout").is_symlink()
    with pytest.raises(OSError, match="points to an open file"):  # also if no process has it open
        output_file.require_place(str(_dangling(tmp_path)))


def _dangling(place: Path) -> Path:
    (place / "stale").symlink_to("/proc/self/fd/12345")
    return place / "stale"


def test_file_of_a_killed_run_is_removed(tmp_path: Path) -> None:
    """The next run has another PID."""
    (tmp_path / ".gpuhook-999999999-out~").write_text("half")
    output_file.write(str(tmp_path / "out"), b"new", 0o644)
    assert os.listdir(tmp_path) == ["out"]


@AS_ROOT
def test_directory_that_cannot_be_read() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        os.chmod(place, 0o733)
        with other_user(lambda: output_file):
            output_file.write(f"{place}/out", b"new", 0o644)
        assert os.listdir(place) == ["out"]
