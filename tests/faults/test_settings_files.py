# SPDX-License-Identifier: Apache-2.0
"""Invalid settings, site rules and specs: a fault with the place, in bounded time."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files
from gpuhook.vendors.nvidia.driver import site_rules
from tests.faults.generating import call

pytestmark = pytest.mark.timeout(30)


def bomb() -> str:
    """Return nine anchors, each with ten aliases of the previous one."""
    lines = ["a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    for name, before in zip("bcdefghi", "abcdefgh", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]")
    return "\n".join(lines) + "\n"


BROKEN = {
    "bomb in keys": bomb() + "cdi: *i\nadd: *i\ndrop: *i\n",
    "bomb in an entry": bomb() + "cdi: {specDirs: *i}\nadd: [*i]\n",
    "circle": "&a [*a]",
    "circle in a key": "cdi: &a {specDirs: *a}\nadd: &b [*b]\n",
    "no date": "cdi: 2024-99-99\nadd: 2024-99-99\n",
    "no number": "cdi: !!int x\nadd: !!int x\n",
    "long number": f"cdi: {'9' * 5000}\nadd: {'9' * 5000}\n",
    "no time": "cdi: !!timestamp x\nadd: !!timestamp x\n",
    "no fraction": "cdi: !!float x",
    "objects": "cdi: !!python/object/apply:os.system [id]",
    "deep": "[" * 100_000,
    "deep mapping": "{a: " * 5000,
    "NUL": "cdi: \0",
    "two documents": "---\ncdi: {}\n---\nadd: []\n",
    "large": "cdi: 1\n" * 200_000,
    "list": "- 1",
    "many": "cdi: {specDirs: [" + ",".join(["1"] * 300_000) + "]}\nadd: 1\n",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_malformed_settings_file_is_a_fault(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "files.d/config.yaml"
    path.parent.mkdir()
    path.write_text(text)
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUHOOK_CONFIG", str(path))
    for words in (("config", "validate", str(path)), ("config", "show")):
        done = call(*words)
        assert done.exit_code == 1
        assert len(done.stderr) < 5000
    with pytest.raises(GpuhookError) as caught:
        site_rules.read(str(path.parent))
    assert caught.value.code in ("GH1243", "GH1244")


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        b"a = [" * 20_000,
        b"a = " + b"9" * 5000,
        b"[a]\n[a]\n",
        b"swarm-resource = 5\n[nvidia-container-cli]\nroot = [1]\nldconfig = {}\n",
        b"[[nvidia-container-cli]]\n",
        b"nvidia-container-runtime = 1\n",
        b"disable-require = 2024-01-01\n",
        b'"\\u0000" = 1\n',
        b"supported-driver-capabilities = nan\n",
        b"\0",
        b"",
    ],
    ids=range(12),
)
def test_any_toml_is_imported_or_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(content)
    done = call("config", "import", str(path))
    assert "Traceback" not in done.output


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_too_deeply_nested_spec_is_refused(opening: str, tmp_path: Path) -> None:
    """The composer of libyaml would end the process."""
    path = tmp_path / "x.yaml"
    path.write_text(opening * 100_000)
    done = call("cdi", "validate", str(path))
    assert done.exit_code == 1
    assert "GH1109" in done.stderr


BYTES = b"a: b\nc: \xc3\xa9\x80\n"
CHARACTERS = b"a: b\nc: \x01\n"
READERS = [
    ("config", "validate"),
    ("inventory", "--inventory"),
    ("cdi", "validate"),
]


@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_binary_file_is_refused_with_line_and_column(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    """The message does not have PyYAML's name of the text, "<byte string>"."""
    path = tmp_path / "x.yaml"
    path.write_bytes(BYTES)
    first = call(*command, str(path)).stderr.splitlines()[0]
    assert first.endswith("line 2, column 6: it is not UTF-8")
    path.write_bytes(CHARACTERS)
    first = call(*command, str(path)).stderr.splitlines()[0]
    assert first.endswith("line 2, column 4: it has a character that YAML does not allow")


def test_directory_as_settings_file_is_named_once(tmp_path: Path) -> None:
    error = call("config", "validate", str(tmp_path)).stderr.splitlines()[0]
    assert error.endswith(f"{tmp_path}: it is not a regular file of at most 256 KiB")
    assert error.count(str(tmp_path)) == 1


@pytest.mark.parametrize(
    ("gid", "reason"),
    [
        ("9" * 5000, "a number has too many digits"),
        ("2001-13-45", "a value does not match its tag"),
    ],
)
def test_spec_with_an_invalid_yaml_value_is_refused(gid: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(f"kind: a.com/b\ncontainerEdits: {{additionalGids: [{gid}]}}\n")
    assert f"line 2, column 35: {reason}" in call("cdi", "validate", str(path)).stderr


def test_a_settings_file_that_cannot_be_opened_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message contains the reason of the system, without Python's number and second path."""
    path = tmp_path / "x.yaml"
    path.touch()

    def refused(*_: object) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(files, "read", refused)
    error = call("config", "validate", str(path)).stderr.splitlines()[0]
    assert error == f"Error GH1532: {path}: Permission denied"
