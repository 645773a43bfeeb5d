# SPDX-License-Identifier: Apache-2.0
"""The steps of a hot-plug plan, on a directory that stands for a container's root."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from gpuhook.apply.live import hotplug_steps
from gpuhook.apply.live.hotplug_steps import Live, NodeStep
from gpuhook.errors import GpuhookError

PATH = "/dev/made/here/gpu"


def test_failed_node_leaves_no_directories(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a node cannot be created, the directories that were created for it are removed."""

    def refused(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "gpu")

    monkeypatch.setattr(hotplug_steps, "mknod", refused)
    with pytest.raises(OSError, match="No space") as raised:
        NodeStep(PATH, "c", (195, 3), 0o666).execute(live)
    assert raised.value.filename == PATH
    assert os.listdir(tmp_path / "dev") == []
    assert not any(live.made.document().values())


def test_existing_file_in_place_of_a_node_is_kept(live: Live, tmp_path: Path) -> None:
    place = tmp_path / PATH[1:]
    place.parent.mkdir(parents=True)
    place.write_text("a file")
    with pytest.raises(GpuhookError) as raised:
        NodeStep(PATH, "c", (195, 3), 0o666).execute(live)
    assert raised.value.code == "GH1750"
    assert place.read_text() == "a file"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make device nodes")
def test_node_is_created_and_removed_with_its_directories(live: Live, tmp_path: Path) -> None:
    node = NodeStep(PATH, "c", (195, 3), 0o640)
    node.execute(live)
    found = (tmp_path / PATH[1:]).stat()
    assert (found.st_mode, found.st_rdev) == (stat.S_IFCHR | 0o640, os.makedev(195, 3))
    assert live.made.directories == ["/dev/made", "/dev/made/here"]
    node.undo(live)
    assert os.listdir(tmp_path / "dev") == []
