# SPDX-License-Identifier: Apache-2.0
"""Listing CDI specs: the result, and that listing writes no file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuhook.cdi import spec_file, spec_list
from gpuhook.cdi.hot import compile as compiler
from gpuhook.cdi.hot import compiled_spec
from gpuhook.cli import main
from gpuhook.errors import fault

SPEC = {
    "cdiVersion": "0.5.0",
    "kind": "vendor.com/thing",
    "devices": [{"name": "a", "containerEdits": {"env": ["A=1"]}}],
}


@pytest.fixture
def dirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return two spec directories: each has a valid spec, the second also has all invalid kinds."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    low, high = tmp_path / "low", tmp_path / "high"
    low.mkdir()
    high.mkdir()
    (low / "thing.json").write_text(json.dumps(SPEC), encoding="utf-8")
    (high / "thing.yaml").write_text(json.dumps(SPEC), encoding="utf-8")
    (high / "broken.yaml").write_text("{", encoding="utf-8")
    (high / "directory.json").mkdir()
    (high / "gone.json").symlink_to("nowhere")
    (high / "notes.txt").write_text("no spec", encoding="utf-8")
    return [str(low), str(high), str(tmp_path / "missing")]


def test_listing(dirs: list[str]) -> None:
    """The later directory wins; broken files are reported, dangling links are ignored."""
    devices, broken = spec_list.devices(dirs)
    high = f"{dirs[1]}/thing.yaml"
    assert [(one.name, one.path, one.note) for one in devices] == [
        ("vendor.com/thing=a", f"{dirs[0]}/thing.json", f"{high} wins"),
        ("vendor.com/thing=a", high, ""),
    ]
    codes = {os.path.basename(one.path): one.error and one.error.code for one in broken}
    assert codes == {"broken.yaml": "GH1109", "directory.json": "GH1310"}


def test_listing_writes_nothing(dirs: list[str], tmp_path: Path) -> None:
    """`gpuhook cdi list` does not change the state directory, and does not create it."""
    words = [word for directory in dirs for word in ("--spec-dir", directory)]
    done = CliRunner().invoke(main, ["cdi", "list", *words])
    assert done.exit_code == 0
    assert "vendor.com/thing=a" in done.output
    assert not (tmp_path / "state").exists()


def test_listing_ignores_compiled_specs(dirs: list[str]) -> None:
    """The text of a spec applies, whatever its compiled form has."""
    path = f"{dirs[0]}/thing.json"
    compiled_spec.store(
        path, os.stat(path), fault("GH1109", path=path, place="JSON", reason="kept")
    )
    (compiled,) = spec_list.layers(dirs[:1])[0]
    assert compiled.error is None
    assert compiled.device("a") == {"env": ["A=1"]}


def test_plan_of_a_command_takes_the_compiled_specs(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the wrapper's: no text is parsed again unless it has changed."""
    path = f"{dirs[0]}/thing.json"
    compiled_spec.store(path, os.stat(path), compiler.checked(spec_file.parser(path), path))
    with monkeypatch.context() as patched:
        patched.setattr(spec_list, "_read", pytest.fail)
        (compiled,) = spec_list.plan_layers(dirs[:1])[0]
    assert compiled.device("a") == {"env": ["A=1"]}
    Path(path).write_text(Path(path).read_text().replace("A=1", "A=22"))
    (changed,) = spec_list.plan_layers(dirs[:1])[0]
    assert changed.device("a") == {"env": ["A=22"]}
