# SPDX-License-Identifier: Apache-2.0
"""Files that are replaced as a whole or not at all."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")


@needs_root
def test_mode_and_owner_are_kept(tmp_path: Path) -> None:
    """A replaced file keeps its mode and its owner."""
    file = tmp_path / "f"
    file.write_text("old")
    file.chmod(0o640)
    os.chown(file, 1000, 1001)
    files.replace(str(file), b"new")
    found = file.stat()
    assert (found.st_mode & 0o7777, found.st_uid, found.st_gid) == (0o640, 1000, 1001)
    assert file.read_text() == "new"


@needs_root
def test_mode_argument_replaces_mode_and_owner(tmp_path: Path) -> None:
    """With a mode the file is gpuhook's, whatever owner and permissions it had."""
    file = tmp_path / "f"
    file.write_text("old")
    file.chmod(0o666)
    os.chown(file, 1000, 1001)
    files.replace(str(file), b"new", mode=0o644)
    found = file.stat()
    assert (found.st_mode & 0o7777, found.st_uid, found.st_gid) == (0o644, 0, 0)


def test_links_are_followed(tmp_path: Path) -> None:
    """The link is kept, and its target is replaced."""
    (tmp_path / "f").write_text("old")
    (tmp_path / "link").symlink_to("f")
    files.replace(str(tmp_path / "link"), b"new", durable=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "f").read_text() == "new"


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_new_file_has_mode_0644(umask: int, tmp_path: Path) -> None:
    """Whatever the umask is."""
    old = os.umask(umask)
    try:
        files.replace(str(tmp_path / "f"), b"new")
    finally:
        os.umask(old)
    assert (tmp_path / "f").stat().st_mode & 0o7777 == 0o644


def test_full_disk_keeps_the_old_file(tmp_path: Path) -> None:
    """No partial or temporary file is left."""
    (tmp_path / "f").write_text("old")
    program = (
        "import sys; from gpuhook.host.hot import files; files.replace(sys.argv[1], b'x' * 9999)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "f"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "File too large" in done.stderr
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("f", "old")]


def test_directory_is_not_replaced(tmp_path: Path) -> None:
    """No temporary file is left."""
    (tmp_path / "d").mkdir()
    with pytest.raises(OSError, match="directory"):
        files.replace(str(tmp_path / "d"), b"x", mode=0o644)
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


@pytest.mark.parametrize("size", [0, 10, 11])
def test_size_limit(size: int, tmp_path: Path) -> None:
    """A file is read as a whole up to the limit; a longer one is GH1310."""
    (tmp_path / "f").write_bytes(b"x" * size)
    if size <= 10:
        assert files.read(str(tmp_path / "f"), 10) == b"x" * size
    else:
        with pytest.raises(GpuhookError) as caught:
            files.read(str(tmp_path / "f"), 10)
        assert caught.value.code == "GH1310"
        assert caught.value.message.endswith("is not a regular file of at most 10 bytes")


def test_a_limit_is_printed_in_its_unit(tmp_path: Path) -> None:
    """A directory, of which 8 MiB would be read."""
    with pytest.raises(GpuhookError, match="of at most 8 MiB"):
        files.read(str(tmp_path), 8 << 20)


def test_files_of_the_kernel_are_read() -> None:
    """A file of /proc, whose size is 0, is read as a whole, up to the limit."""
    assert files.read("/proc/self/status").startswith(b"Name:")
    with pytest.raises(GpuhookError):
        files.read("/proc/self/status", 10)


@pytest.mark.parametrize("kind", ["pipe", "directory", "device"])
def test_only_regular_files_are_read(kind: str, tmp_path: Path) -> None:
    """A pipe is refused without a wait."""
    path = tmp_path / "x"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path = Path("/dev/zero")
    with pytest.raises(GpuhookError) as caught:
        files.read(str(path))
    assert caught.value.code == "GH1310"


@pytest.mark.parametrize("name", ["nvidia.yaml", "daemon.json", "x" * 250 + ".conf"])
def test_temporary_names_match_no_pattern_of_a_directory(name: str) -> None:
    """Programs that read *.yaml of a directory do not read what a killed run left."""
    made = files.temporary_name(name)
    assert files.is_temporary(made)
    assert len(made) <= 250
    assert not made.endswith((".yaml", ".json", ".conf"))


def test_error_of_a_read_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """read(2) knows no path."""
    path = tmp_path / "file"
    path.write_text("x")

    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "read", fail)
    with pytest.raises(OSError, match="Input/output error") as error:
        files.read(str(path))
    assert error.value.filename == str(path)
