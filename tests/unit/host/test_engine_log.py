# SPDX-License-Identifier: Apache-2.0
"""The engine's log file, the journal, and standard error: each in the format of its readers."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gpuhook.errors import fault
from gpuhook.host.hot import journal
from gpuhook.host.hot.engine_log import EngineLog
from gpuhook.host.warm.terminal_log import TerminalLog

FAULT = fault("GH1302", node='/dev/"nvidia0"\n\x1b', reason="gone")


def test_text_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A line in runc's format; only a fault is printed, with the warnings before it."""
    log = EngineLog("gpuhook-runtime", str(tmp_path / "log"))
    log.warning(FAULT)
    log.warning(FAULT)  # repeated warnings are logged once
    assert capfd.readouterr() == ("", "")
    log.failure(FAULT)
    second, first = (tmp_path / "log").read_text().splitlines()
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


def test_json_log(tmp_path: Path) -> None:
    """A JSON log has one object per line, with level, msg and time."""
    log = EngineLog("gpuhook-runtime", str(tmp_path / "log"), "json")
    log.failure(FAULT)
    found = json.loads((tmp_path / "log").read_text())
    assert set(found) == {"level", "msg", "time"}
    datetime.strptime(found["time"], "%Y-%m-%dT%H:%M:%S%z")  # RFC 3339
    assert found["level"] == "error"
    assert found["msg"].startswith("gpuhook-runtime: GH1302: ")
    assert FAULT.hint in found["msg"]


def test_json_warning_is_a_separate_object(tmp_path: Path) -> None:
    """A reader that takes the whole file for one object takes no warning for an error."""
    EngineLog("gpuhook-runtime", str(tmp_path / "log"), "json").warning(FAULT)
    text = (tmp_path / "log").read_text()
    with pytest.raises(ValueError, match="Extra data"):
        json.loads(text)
    message, hint = map(json.loads, text.splitlines())
    assert (message["level"], hint["level"]) == ("warning", "info")
    assert message["msg"].startswith("gpuhook-runtime: GH1302: ")
    assert hint["msg"] == f"gpuhook-runtime: hint: {FAULT.hint}"


def test_terminal_gets_warnings_and_no_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A command of a user prints its warnings, and keeps none."""
    log = TerminalLog("gpuhook", str(tmp_path / "log"))
    log.warning(FAULT)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("gpuhook: warning GH1302: device node ")
    assert err.removesuffix("\n").isprintable()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def daemons(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], socket.socket]]:
    """Return a function that binds the socket of a logging daemon: "JOURNAL" or "SYSLOG"."""
    with TemporaryDirectory(prefix="gpuhook-", dir="/tmp") as place, ExitStack() as stack:
        for name in ("JOURNAL", "SYSLOG"):
            monkeypatch.setattr(journal, name, f"{place}/{name}")

        def bound(name: str) -> socket.socket:
            made = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            made.bind(f"{place}/{name}")
            made.setblocking(False)
            return made

        yield bound


def test_journal_is_preferred_to_syslog(daemons: Callable[[str], socket.socket]) -> None:
    """If there is a journal, syslog gets nothing."""
    first, second = daemons("JOURNAL"), daemons("SYSLOG")
    log = EngineLog("gpuhook-hook")
    log.container = "some-id"
    log.warning(FAULT)
    fields = dict(line.split("=", 1) for line in first.recv(65536).decode().splitlines())
    assert fields["MESSAGE"].startswith("container some-id: GH1302: device node ")
    assert fields["MESSAGE"].endswith(f" ({FAULT.hint})")
    assert fields["GPUHOOK_CONTAINER"] == "some-id"
    with pytest.raises(BlockingIOError):
        second.recv(1)


def test_syslog_without_a_journal(daemons: Callable[[str], socket.socket]) -> None:
    """One line of RFC 3164, daemon.warning."""
    server = daemons("SYSLOG")
    EngineLog("gpuhook-runtime").warning(FAULT)
    line = server.recv(65536).decode()
    assert line.startswith(f"<28>gpuhook-runtime[{os.getpid()}]: GH1302: device node ")
    assert line.isprintable()


def test_unresponsive_daemon_does_not_block(daemons: Callable[[str], socket.socket]) -> None:
    """A message that does not fit into its queue goes to the other daemon, or is lost."""
    first, second = daemons("JOURNAL"), daemons("SYSLOG")
    for number in range(3000):
        journal.send("gpuhook-runtime", "GH1302", f"number {number}", "")
    assert b"MESSAGE=number 0\n" in first.recv(65536)
    assert second.recv(65536)


@pytest.mark.usefixtures("daemons")
def test_messages_without_a_daemon_are_dropped() -> None:
    journal.send("gpuhook-runtime", "GH1302", "text", "")


def test_number_of_warnings_is_bounded(tmp_path: Path) -> None:
    """A container chooses how many there are."""
    log = EngineLog("x", str(tmp_path / "log"))
    for number in range(100):
        log.warning(fault("GH1302", node=f"/dev/{number}", reason="gone"))
    assert len((tmp_path / "log").read_text().splitlines()) == len(log.warnings) == 32


def test_log_is_appended_to(tmp_path: Path) -> None:
    """The low-level runtime writes to the same file."""
    (tmp_path / "log").write_text("before\n")
    EngineLog("x", str(tmp_path / "log")).warning(FAULT)
    assert (tmp_path / "log").read_text().startswith("before\n")


def test_no_fault_creates_no_file(tmp_path: Path) -> None:
    """Podman takes an existing file for an error."""
    EngineLog("x", str(tmp_path / "log"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["", "missing/log", "directory", "/dev/full"])
def test_unwritable_log_is_printed(
    path: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The fault is on standard error."""
    (tmp_path / "directory").mkdir()
    EngineLog("x", str(tmp_path / path) if path else "").failure(FAULT)
    assert "error GH1302" in capfd.readouterr().err


def test_bytes_that_are_not_utf8_are_escaped(tmp_path: Path) -> None:
    """The line stays valid JSON."""
    log = EngineLog("x", str(tmp_path / "log"), "json")
    log.failure(fault("GH1300", path=b"/\xff/config.json".decode("utf-8", "surrogateescape")))
    assert "/\\udcff/config.json" in json.loads((tmp_path / "log").read_bytes())["msg"]
