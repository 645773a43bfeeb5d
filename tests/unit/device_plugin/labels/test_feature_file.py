# SPDX-License-Identifier: Apache-2.0
"""The file for Node Feature Discovery: whole or not at all, and only when something is new."""

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


def test_the_file_is_made_with_its_directory(tmp_path: Path) -> None:
    """The first write makes directory and file, readable for NFD, and leaves nothing else."""
    path = tmp_path / "features.d" / "gfd"
    old = os.umask(0o077)
    try:
        assert feature_file.write(str(path), LABELS)
    finally:
        os.umask(old)
    assert path.read_text() == TEXT
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert os.listdir(path.parent) == ["gfd"]


def test_a_file_that_says_so_already_stays(tmp_path: Path) -> None:
    """The same labels are not written again, others replace the file instead of changing it."""
    path = tmp_path / "gfd"
    feature_file.write(str(path), LABELS)
    before = path.stat()
    assert not feature_file.write(str(path), dict(reversed(LABELS.items())))
    assert path.stat() == before
    with path.open() as reader:
        assert feature_file.write(str(path), {"nvidia.com/gpu.count": "2"})
        assert reader.read() == TEXT
    assert path.read_text() == "nvidia.com/gpu.count=2\n"


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the new file cannot be put in place, the old one is whole and no other is left."""
    path = tmp_path / "gfd"
    feature_file.write(str(path), LABELS)

    def refuse(*names: object, **options: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(OSError, match="No space left"):
        feature_file.write(str(path), {})
    assert path.read_text() == TEXT
    assert os.listdir(tmp_path) == ["gfd"]


def test_a_file_that_others_may_not_read_is_put_right(tmp_path: Path) -> None:
    """NFD must be able to read the file: its mode counts as its content does."""
    path = tmp_path / "gfd"
    path.write_text(TEXT)
    path.chmod(0o600)
    assert feature_file.write(str(path), LABELS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_removed_once(tmp_path: Path) -> None:
    """Removing says whether there was a file."""
    path = tmp_path / "gfd"
    feature_file.write(str(path), LABELS)
    assert feature_file.remove(str(path))
    assert not feature_file.remove(str(path))
    assert not path.exists()


@pytest.mark.parametrize("name", ["", "-"])
def test_standard_output(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No name, or a dash, is standard output, of which nothing can be removed."""
    assert feature_file.write(name, LABELS)
    assert capsys.readouterr().out == TEXT
    assert not feature_file.remove(name)
