# SPDX-License-Identifier: Apache-2.0
"""The file for Node Feature Discovery (NFD): written atomically, and only after a change."""

from __future__ import annotations

import os
import stat

import pytest

from gpuhook.device_plugin.labels import feature_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

LABELS = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.count": "1"}
TEXT = "nvidia.com/gpu.count=1\nnvidia.com/gpu.replicas=4\n"


def test_first_write_creates_the_directory_and_a_readable_file(tmp_path: Path) -> None:
    """No temporary file remains."""
    path = tmp_path / "features.d" / "gfd"
    old = os.umask(0o077)
    try:
        assert feature_file.write(str(path), LABELS)
    finally:
        os.umask(old)
    assert path.read_text() == TEXT
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert os.listdir(path.parent) == ["gfd"]


def test_unchanged_labels_do_not_write_the_file(tmp_path: Path) -> None:
    """Other labels replace the file; an open one does not change."""
    path = tmp_path / "gfd"
    feature_file.write(str(path), LABELS)
    before = path.stat()
    assert not feature_file.write(str(path), dict(reversed(LABELS.items())))
    assert path.stat() == before
    with path.open() as reader:
        assert feature_file.write(str(path), {"nvidia.com/gpu.count": "2"})
        assert reader.read() == TEXT
    assert path.read_text() == "nvidia.com/gpu.count=2\n"


def test_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No temporary file remains."""
    path = tmp_path / "gfd"
    feature_file.write(str(path), LABELS)

    def refuse(*names: object, **options: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(OSError, match="No space left"):
        feature_file.write(str(path), {})
    assert path.read_text() == TEXT
    assert os.listdir(tmp_path) == ["gfd"]


def test_unreadable_file_is_written_again(tmp_path: Path) -> None:
    """NFD must be able to read the file."""
    path = tmp_path / "gfd"
    path.write_text(TEXT)
    path.chmod(0o600)
    assert feature_file.write(str(path), LABELS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_remove_returns_whether_the_file_existed(tmp_path: Path) -> None:
    path = tmp_path / "gfd"
    feature_file.write(str(path), LABELS)
    assert feature_file.remove(str(path))
    assert not feature_file.remove(str(path))
    assert not path.exists()


@pytest.mark.parametrize("name", ["", "-"])
def test_empty_name_and_dash_are_standard_output(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert feature_file.write(name, LABELS)
    assert capsys.readouterr().out == TEXT
    assert not feature_file.remove(name)
