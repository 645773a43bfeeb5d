# SPDX-License-Identifier: Apache-2.0
"""The log of programs outside the hot path."""

from __future__ import annotations

import io
import json
import sys
from contextlib import suppress

import pytest

from gpuhook.host import logs


def test_text_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text line is logfmt, and begins with time, level and event."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure("text")
    logs.logger(gpu="GPU-1").info("node read", container="a b")
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("timestamp=")
    assert line.endswith(' level=info event="node read" container="a b" gpu=GPU-1')


def test_json_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A JSON line is one object with the same fields."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure("json")
    logs.logger(code="GH1200").warning("no driver")
    found = json.loads(stream.getvalue())
    assert (found["event"], found["level"], found["code"]) == ("no driver", "warning", "GH1200")


@pytest.mark.parametrize(("debug", "lines"), [(False, 0), (True, 1)])
def test_debug_lines_are_written_on_request(
    debug: bool, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure("text", debug=debug)
    logs.logger().debug("detail")
    assert len(stream.getvalue().splitlines()) == lines


def test_line_breaks_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value with a line break does not make a second line."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure("text")
    logs.logger().info("x", pod="a\nlevel=error")
    assert len(stream.getvalue().splitlines()) == 1


@pytest.mark.parametrize("is_closed", [False, True])
def test_unwritable_line_is_lost(is_closed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a full disk nor a closed pipe stops the program."""
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stderr", full)
        logs.configure("text")
        if is_closed:
            with suppress(OSError):
                full.close()
        logs.logger().warning("detail " * 4096)
        with suppress(OSError):
            full.close()
