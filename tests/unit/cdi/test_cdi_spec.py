# SPDX-License-Identifier: Apache-2.0
"""CDI spec files: reading them as CDI does, and writing them for every reader."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuhook.cdi import spec_file as spec_files
from gpuhook.cdi.hot import spec_rules
from gpuhook.errors import GpuhookError

SPEC: Any = {
    "cdiVersion": "0.5.0",
    "kind": "vendor.com/device",
    "devices": [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": "/dev/x", "fileMode": 438}]}}
        for name in ("0", "0:1", "1e3", "0x1f", "0o17", "true", "null", "GPU-1", "1.0", "all")
    ],
    "containerEdits": {"env": ["A=b: c # d", "N=", "U=é"], "hooks": []},
}


def read_text(tmp_path: Path, text: str | bytes, name: str = "x.yaml") -> Any:
    """Return the spec in a file with this text."""
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return spec_files.read(str(path))


def head(devices: str) -> str:
    """Return a YAML spec with the given block of devices."""
    return f"cdiVersion: 0.5.0\nkind: vendor.com/device\ndevices:\n{devices}"


@pytest.mark.parametrize("fmt", spec_files.FORMATS)
def test_written_spec_is_read_back(tmp_path: Path, fmt: str) -> None:
    """A spec written in either format is read back unchanged."""
    path = str(tmp_path / f"new/dir/x.{fmt}")
    spec_files.write(SPEC, path, fmt)
    assert spec_files.read(path) == SPEC
    assert os.stat(path).st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path / "new/dir") == [f"x.{fmt}"]


def test_ambiguous_yaml_names_are_quoted() -> None:
    """A name that looks like a number or a flag is quoted, so that every reader reads text."""
    text = spec_files.document(SPEC, "yaml")
    assert text.startswith("---\ncdiVersion:")
    assert yaml.safe_load(text) == SPEC
    for name in ("0", "0:1", "1e3", "0x1f", "0o17", "1.0"):
        assert f"- name: '{name}'\n" in text


def test_yaml_has_no_anchors() -> None:
    """A value that is used twice is written twice: aliases are hard to read and to compare."""
    shared = {"deviceNodes": [{"path": "/dev/x"}]}
    devices = [{"name": name, "containerEdits": shared} for name in "ab"]
    spec: Any = dict(SPEC, devices=devices)
    assert "&" not in spec_files.document(spec, "yaml")


def test_unquoted_names_are_text(tmp_path: Path) -> None:
    """A scalar in place of a string keeps its spelling: a device may be called 0 or 0:1."""
    edits = "{deviceNodes: [{path: /dev/x, fileMode: 0666}]}"
    names = ["0", "0:1", "15", "1.5", "true", "1g.5gb", "0.5.0"]
    text = head("".join(f"- name: {name}\n  containerEdits: {edits}\n" for name in names))
    spec = read_text(tmp_path, text)
    assert [device["name"] for device in spec["devices"]] == names
    assert spec["devices"][0]["containerEdits"]["deviceNodes"][0]["fileMode"] == 0o666


@pytest.mark.parametrize(
    "scalar",
    [
        *("00", "0010", "0x10", "1_0", "+1", "-0", "1e3", "1.0", "1.50", "1234567.5", "0.00001"),
        *("yes", "y", "On", "TRUE", ".inf", "2001-01-01", "!!int '5'", "!!binary aGk=", "!x 5"),
    ],
)
def test_unquoted_scalar_that_cdi_reads_differently_is_refused(tmp_path: Path, scalar: str) -> None:
    """CDI's own decoder makes 0 of 00, 1000 of 1e3, true of yes."""
    text = head(f"- name: a\n  containerEdits: {{env: [A=1], hooks: [{{path: {scalar}}}]}}\n")
    with pytest.raises(GpuhookError, match="write it in quotes"):
        read_text(tmp_path, text)


JSON = (
    b'{"cdiVersion":"0.5.0","kind":"a.com/b","devices":'
    b'[{"name":"a","containerEdits":{"deviceNodes":[{"path":"%s"}]}}]}'
)


@pytest.mark.parametrize("text", ["y", "n", "yes", "010", "1e3", ".5", "-", "0o7", "2001-01-01"])
def test_written_text_has_quotes_where_it_needs_them(tmp_path: Path, text: str) -> None:
    spec: Any = {"cdiVersion": "0.5.0", "kind": "a.com/b", "devices": []}
    hook = {"hookName": "prestart", "path": text}
    spec["devices"].append({"name": "a", "containerEdits": {"hooks": [hook]}})
    assert read_text(tmp_path, spec_files.document(spec, "yaml")) == spec


def test_empty_values_are_absent(tmp_path: Path) -> None:
    """A key without a value is like an absent key."""
    text = head("- name: a\n  containerEdits:\n    env: [A=b]\n    mounts:\n") + "containerEdits:\n"
    spec = read_text(tmp_path, text)
    assert spec["devices"][0] == {"name": "a", "containerEdits": {"env": ["A=b"]}}
    assert "containerEdits" not in spec


def test_merge_keys_are_read(tmp_path: Path) -> None:
    """YAML's merge keys and aliases are read, as CDI's own reader does."""
    text = head("- name: a\n  <<: &a {containerEdits: {env: [A=b]}}\n- <<: *a\n  name: b\n")
    devices = read_text(tmp_path, text)["devices"]
    assert [device["name"] for device in devices] == ["a", "b"]
    assert devices[0]["containerEdits"] == devices[1]["containerEdits"]


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("cdiVersion: 0.5.0\nkind: [a\n", "line 3, column 1", "expected"),
        ("a: b\n  c: d\n", "line 2, column 4", "not allowed"),
        ("kind: a/b\nkind: c/d\n", "line 2, column 1", "twice"),
        ("kind: a/b\n<<: {kind: c/d}\n", "line 1, column 1", "twice"),
        ("? [a]\n: b\n", "line 1, column 3", "not a string"),
        ("a: 1\n---\nb: 2\n", "line 2, column 1", "another document"),
        (b"a: \xff\n", "line 1, column 4", "not UTF-8"),
        ("a: \x07\n", "line 1, column 4", "a character that YAML does not allow"),
        ("a: &a [*a]\n", "line 1, column", "aliases"),
    ],
)
def test_broken_yaml_names_the_place(
    tmp_path: Path, text: str | bytes, place: str, reason: str
) -> None:
    """Broken YAML is refused with file, line and column."""
    with pytest.raises(GpuhookError) as caught:
        read_text(tmp_path, text)
    assert caught.value.code == "GH1109"
    assert caught.value.message.startswith(f"{tmp_path}/x.yaml: {place}")
    assert reason in caught.value.message


def test_multiplying_aliases_are_refused(tmp_path: Path) -> None:
    """A small file with aliases that mean billions of values is refused, not expanded."""
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(GpuhookError, match="aliases") as caught:
        read_text(tmp_path, "\n".join(lines))
    assert caught.value.code == "GH1109"


def test_broken_json_names_the_place(tmp_path: Path) -> None:
    """Broken JSON is refused with the file and the place."""
    with pytest.raises(GpuhookError, match=r"x\.json: .*line 1") as caught:
        read_text(tmp_path, '{"a": }', "x.json")
    assert caught.value.code == "GH1109"


def test_empty_file_is_a_broken_spec(tmp_path: Path) -> None:
    """An empty file is refused by the rules, without a crash."""
    with pytest.raises(GpuhookError) as caught:
        read_text(tmp_path, "")
    assert caught.value.code == "GH1106"


def test_missing_file_is_a_fault(tmp_path: Path) -> None:
    """The fault names the file."""
    with pytest.raises(GpuhookError, match="No such file") as caught:
        spec_files.read(str(tmp_path / "absent.yaml"))
    assert caught.value.code == "GH1110"


def test_unwritable_directory_keeps_the_old_file(tmp_path: Path) -> None:
    """A spec that cannot be written is a fault with a code, and no partial file is left."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(GpuhookError, match="cannot write the CDI spec") as caught:
        spec_files.write(SPEC, str(tmp_path / "file/x.yaml"), "yaml")
    assert caught.value.code == "GH1111"
    assert f"{tmp_path / 'file'} is not a directory" in caught.value.message
    assert (tmp_path / "file").read_text() == "in the way"


FULL_DISK = """
import resource, sys
from gpuhook.cdi import spec_file as spec
from gpuhook.errors import GpuhookError
read = spec.read(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    spec.write(read, sys.argv[1], "yaml")
except GpuhookError as error:
    print(error.code)
"""


def test_full_disk_keeps_the_old_file(tmp_path: Path) -> None:
    """If there is no space for the new spec, the old one is kept and no other file."""
    path = tmp_path / "x.yaml"
    spec_files.write(SPEC, str(path), "yaml")
    before = path.read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "GH1111\n"
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["x.yaml"]


def test_duplicate_json_keys_are_refused(tmp_path: Path) -> None:
    """CDI's own decoder refuses them in both formats."""
    text = json.dumps(SPEC).replace('"kind":', '"kind": "a.com/b", "kind":')
    with pytest.raises(GpuhookError, match="the key 'kind' occurs twice") as caught:
        read_text(tmp_path, text, "x.json")
    assert caught.value.code == "GH1109"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (rb"/dev/\ud83d\ude00", "half a character"),
        (rb"/dev/\\\uD83D", "half a character"),
        (b"/dev/\x7f", "YAML does not allow"),
        (b"/dev/\xc2\x80", "YAML does not allow"),
        (b"/dev/\xc2\x85", "YAML does not allow"),
        ("/dev/\u2028".encode(), "YAML does not allow"),
        (b"/dev/\xff", "not UTF-8"),
        (b'","path":"', "twice"),
    ],
)
def test_json_that_is_not_yaml_is_refused(tmp_path: Path, text: bytes, reason: str) -> None:
    """CDI's own decoder reads specs in JSON as YAML, too."""
    path = tmp_path / "x.json"
    path.write_bytes(JSON % text)
    with pytest.raises(GpuhookError, match=reason) as caught:
        spec_files.read(str(path))
    assert caught.value.code == "GH1109"


@pytest.mark.parametrize(
    "text", [rb"\\ud83d", rb"\u00e9", "é\U0001f600".encode(), b"\xc2\xa0", rb"\ud7ff"]
)
def test_json_with_other_characters_is_read(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(JSON % text)
    [node] = spec_files.read(str(path))["devices"][0]["containerEdits"]["deviceNodes"]
    assert node["path"] == json.loads(b'"' + text + b'"')


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1, 1 << 64])
def test_number_that_does_not_fit_is_refused(number: int) -> None:
    node = {"path": "/dev/x", "major": 1, "minor": number}
    device = {"name": "a", "containerEdits": {"deviceNodes": [node]}}
    spec = {"cdiVersion": "0.5.0", "kind": "a.com/b", "devices": [device]}
    with pytest.raises(GpuhookError, match="minor: not an integer"):
        spec_rules.check(spec, "x")


def test_json_text_has_no_escape_that_yaml_lacks() -> None:
    """Text outside of 16 bits is written as it is, also next to text that must be escaped."""
    env = ["A=\U00018cd6\x85", "B=\\ud83d\\ude00", "C=\\\U0001f600\x7f"]
    spec = {"cdiVersion": "0.5.0", "kind": "a.com/a", "devices": [], "containerEdits": {"env": env}}
    text = spec_files.document(spec, "json")  # type: ignore[arg-type]  # a spec
    assert json.loads(text) == yaml.safe_load(text) == spec
    assert spec_files.parser("x.json")(text.encode(), "x") == spec
