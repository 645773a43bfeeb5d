# SPDX-License-Identifier: Apache-2.0
"""The steps of a plan, on a directory as it is while a runtime makes a container of it."""

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


def test_directories_of_a_node(live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that cannot be made leaves none of the directories that were made for it."""

    def refused(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "gpu")

    monkeypatch.setattr(hotplug_steps, "mknod", refused)
    with pytest.raises(OSError, match="No space") as raised:
        NodeStep(PATH, "c", (195, 3), 0o666).execute(live)
    assert raised.value.filename == PATH
    assert os.listdir(tmp_path / "dev") == []
    assert not any(live.made.document().values())


def test_what_is_in_the_way_of_a_node(live: Live, tmp_path: Path) -> None:
    """It stays, and so does what was there before."""
    place = tmp_path / PATH[1:]
    place.parent.mkdir(parents=True)
    place.write_text("a file")
    with pytest.raises(GpuhookError) as raised:
        NodeStep(PATH, "c", (195, 3), 0o666).execute(live)
    assert raised.value.code == "GH1750"
    assert place.read_text() == "a file"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make device nodes")
def test_a_node(live: Live, tmp_path: Path) -> None:
    """It is made with its directories, and undone with them."""
    node = NodeStep(PATH, "c", (195, 3), 0o640)
    node.execute(live)
    found = (tmp_path / PATH[1:]).stat()
    assert (found.st_mode, found.st_rdev) == (stat.S_IFCHR | 0o640, os.makedev(195, 3))
    assert live.made.directories == ["/dev/made", "/dev/made/here"]
    node.undo(live)
    assert os.listdir(tmp_path / "dev") == []
