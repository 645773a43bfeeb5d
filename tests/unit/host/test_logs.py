# SPDX-License-Identifier: Apache-2.0
"""The log of the cold programs."""

from __future__ import annotations

import io
import json
import sys
from contextlib import suppress

import pytest

from gpuhook.host import logs


def test_text_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for people is logfmt, with the time, level and event in front."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure("text")
    logs.logger(gpu="GPU-1").info("node read", container="a b")
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("timestamp=")
    assert line.endswith(' level=info event="node read" container="a b" gpu=GPU-1')


def test_json_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for machines is one JSON object with the same fields."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure("json")
    logs.logger(code="GH1200").warning("no driver")
    found = json.loads(stream.getvalue())
    assert (found["event"], found["level"], found["code"]) == ("no driver", "warning", "GH1200")


@pytest.mark.parametrize(("debug", "lines"), [(False, 0), (True, 1)])
def test_debug_lines(debug: bool, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debug lines are written only when they are asked for."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure("text", debug=debug)
    logs.logger().debug("detail")
    assert len(stream.getvalue().splitlines()) == lines


def test_newlines_stay_in_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value with a line break does not make a second line."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure("text")
    logs.logger().info("x", pod="a\nlevel=error")
    assert len(stream.getvalue().splitlines()) == 1


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_line_that_cannot_be_written_is_lost_and_nothing_else(
    is_closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a full disk nor a reader that has gone is a reason to stop giving GPUs."""
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stderr", full)
        logs.configure("text")
        if is_closed:
            with suppress(OSError):
                full.close()
        logs.logger().warning("detail " * 4096)
        with suppress(OSError):
            full.close()
