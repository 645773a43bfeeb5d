# SPDX-License-Identifier: Apache-2.0
"""The host's ldconfig run on an image: it ends within the deadline, whatever the image contains."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuhook.apply.live import ldconfig


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Run a shell script `text` in place of ldconfig, without the steps that need root."""

    def become(program: int, arguments: list[str], writer: int) -> None:
        assert program >= 0
        try:
            os.dup2(writer, 1)
            os.dup2(writer, 2)
            os.closerange(3, 64)
            os.execv("/bin/sh", ["sh", "-c", text, *arguments])
        finally:
            os._exit(127)

    monkeypatch.setattr(ldconfig, "SECONDS", 1)
    monkeypatch.setattr(ldconfig, "_become", become)
    with (tmp_path / "program").open("w") as program:
        ldconfig._run(program.fileno(), ["-X"])


def test_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, monkeypatch, "echo a warning; exit 0")


def test_failure_has_the_output_of_ldconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match="its exit status is 3: no such thing"):
        run(tmp_path, monkeypatch, "echo no such thing >&2; exit 3")


@pytest.mark.parametrize("text", ["sleep 1000", "exec >&- 2>&-; exec sleep 1000"])
def test_hanging_ldconfig_is_killed(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that has closed its output: the start of a container waits for it."""
    with pytest.raises(OSError, match="it did not finish within 1 seconds"):
        run(tmp_path, monkeypatch, f"exec {text}" if text[:5] == "sleep" else text)
