# SPDX-License-Identifier: Apache-2.0
"""The engine's log file: one line per fault, in the format that was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuhook.engine_log import EngineLog
from gpuhook.errors import fault

FAULT = fault("GH1302", node='/dev/"nvidia0"\n\x1b', reason="gone")


def test_text(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A line as runc's own, and the hint on a line of its own on standard error."""
    log = EngineLog("gpuhook-runtime", str(tmp_path / "log"))
    log.failure(FAULT)
    log.warning(FAULT)
    first, second = (tmp_path / "log").read_text().splitlines()
    assert first.startswith('time="20')
    assert ' level=error msg="gpuhook-runtime: GH1302: device node /dev/\\"nvidia0\\"' in first
    assert " level=warning " in second
    assert first.isprintable()
    shown = capfd.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert lines[0].startswith("gpuhook-runtime: error GH1302: device node ")
    assert lines[1].startswith("gpuhook-runtime: hint: ")
    assert lines[2].startswith("gpuhook-runtime: warning GH1302: ")


def test_json(tmp_path: Path) -> None:
    """A JSON log has one object per line, with level, msg and time."""
    log = EngineLog("gpuhook-runtime", str(tmp_path / "log"), "json")
    log.failure(FAULT)
    found = json.loads((tmp_path / "log").read_text())
    assert set(found) == {"level", "msg", "time"}
    assert found["level"] == "error"
    assert found["msg"].startswith("gpuhook-runtime: GH1302: ")
    assert FAULT.hint in found["msg"]


def test_what_is_there_stays(tmp_path: Path) -> None:
    """A log is appended to, as the low-level runtime writes there too."""
    (tmp_path / "log").write_text("before\n")
    EngineLog("x", str(tmp_path / "log")).warning(FAULT)
    assert (tmp_path / "log").read_text().startswith("before\n")


def test_nothing_is_said_for_nothing(tmp_path: Path) -> None:
    """Without a fault there is no file: podman takes one for an error."""
    EngineLog("x", str(tmp_path / "log"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["", "missing/log", "directory", "/dev/full"])
def test_a_log_that_cannot_be_written(
    path: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Standard error has it all the same."""
    (tmp_path / "directory").mkdir()
    EngineLog("x", str(tmp_path / path) if path else "").failure(FAULT)
    assert "error GH1302" in capfd.readouterr().err


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    """A path of bytes that are not UTF-8 is escaped, and the line stays valid JSON."""
    log = EngineLog("x", str(tmp_path / "log"), "json")
    log.failure(fault("GH1300", path=b"/\xff/config.json".decode("utf-8", "surrogateescape")))
    assert "/\\udcff/config.json" in json.loads((tmp_path / "log").read_bytes())["msg"]
