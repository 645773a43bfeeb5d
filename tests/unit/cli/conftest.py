# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of commands."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def installed_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the gpuhook-hook of an installation whose `gpuhook` runs the commands of a test."""
    path = tmp_path / "bin/gpuhook-hook"
    path.parent.mkdir()
    path.touch(0o755)
    monkeypatch.setattr("sys.argv", [str(path.with_name("gpuhook"))])
    return str(path)
