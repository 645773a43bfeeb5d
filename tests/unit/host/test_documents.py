# SPDX-License-Identifier: Apache-2.0
"""Documents that commands read."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuhook.cli import main
from gpuhook.errors import GpuhookError
from gpuhook.host import documents


def test_closed_standard_input_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has no sys.stdin after `<&-`."""
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(OSError, match="it is closed") as caught:
        documents.read("-")
    assert caught.value.filename == documents.STANDARD_INPUT


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """Return a FIFO without a writer, which open(2) waits for."""
    place = tmp_path / "fifo.yaml"
    os.mkfifo(place)
    return place


def test_fifo_is_refused(fifo: Path) -> None:
    with pytest.raises(GpuhookError, match="is not a regular file") as caught:
        documents.read(str(fifo))
    assert caught.value.code == "GH1310"


def test_device_is_refused() -> None:
    with pytest.raises(GpuhookError, match="/dev/zero is not a regular file"):
        documents.read("/dev/zero")


def test_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        documents.read(str(tmp_path))


@pytest.mark.parametrize("directory", ["/dev/fd", "/proc/self/fd"])
def test_pipe_of_this_process_is_read(directory: str) -> None:
    """A shell passes <(command) as /dev/fd/63."""
    source, sink = os.pipe()
    os.write(sink, b"text")
    os.close(sink)
    assert documents.read(f"{directory}/{source}") == b"text"
    os.close(source)


def test_large_document_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "large"
    with place.open("wb") as stream:
        stream.truncate(documents.LARGEST + 1)
    with pytest.raises(GpuhookError) as caught:
        documents.read(str(place))
    assert caught.value.code == "GH1316"
    assert len(documents.read_head(str(place), 10)) == 10


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "FIFO"],
        ["explain", "--env", "A=1", "--inventory", "FIFO"],
        ["explain", "FIFO", "--plugin-config", "FIFO"],
        ["inventory", "--inventory", "FIFO"],
        ["config", "import", "FIFO"],
        ["config", "validate", "FIFO"],
        ["device-plugin", "--validate", "FIFO"],
        ["cdi", "validate", "FIFO"],
        ["cdi", "show", "FIFO"],
    ],
)
def test_no_command_waits_for_a_writer(words: list[str], fifo: Path) -> None:
    done = CliRunner().invoke(main, [word.replace("FIFO", str(fifo)) for word in words])
    assert done.exit_code == 1
    assert f"{fifo}" in done.stderr
    assert "not a regular file" in done.stderr
