# SPDX-License-Identifier: Apache-2.0
"""`make pictures`: the pictures of the documentation as PNG."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from drawings import __main__ as drawings

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), "")


@pytest.mark.skipif(not BROWSER, reason="no chromium on this machine to draw with")
def test_pictures_are_drawn(tmp_path: Path) -> None:
    """Each file has twice the size of its SVG file; social.png has that of GitHub's preview."""
    for path in drawings.written(tmp_path, BROWSER):
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG")
        assert len(content) > 10_000  # an empty page has 5 kB
        expected = drawings.SOCIAL[2]
        if path.stem != "social":
            width, height = drawings.size(drawings.IMAGES / f"{path.stem}.svg")
            expected = (2 * width, 2 * height)
        assert struct.unpack(">II", content[16:24]) == expected


def test_machine_without_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["drawings", str(tmp_path / "images")])
    with pytest.raises(SystemExit, match="no browser to draw with: install one of chromium"):
        drawings.main()
    assert not (tmp_path / "images").exists()
