# SPDX-License-Identifier: Apache-2.0
"""Many CDI specs of other vendors: one process compiles them all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gpuhook.cdi.hot import registry
from gpuhook.cdi.spec_file import compile_specs
from gpuhook.cli.options import container_options
from gpuhook.entry.cold_command import Compiler
from gpuhook.entry.hooks import apply_hook
from gpuhook.errors import fault
from gpuhook.host.hot.engine_log import EngineLog
from gpuhook.host.hot.settings import Settings


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with YAML specs of 300 vendors, which is more than a command line has."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    made = tmp_path / "cdi"
    made.mkdir()
    for number in range(300):
        edits = {"env": [f"A={number}"]}
        device = {"name": "a", "containerEdits": edits}
        spec = {"cdiVersion": "0.5.0", "kind": f"v{number}.com/card", "devices": [device]}
        (made / f"{number:03}.yaml").write_text(json.dumps(spec), encoding="utf-8")
    return made


def test_stale_specs_are_compiled_by_one_call(directory: Path) -> None:
    """No call is made for each file, and none at all when all are compiled."""
    calls: list[tuple[str, ...]] = []

    def compile_yaml(*paths: str) -> None:
        calls.append(paths)
        compile_specs(*paths)

    for _ in range(2):
        found = registry.load([str(directory)], compile_yaml)
        assert found.device("v299.com/card=a")[1] == {"env": ["A=299"]}
        assert len(found.all()) == 300
    assert calls == [tuple(str(path) for path in sorted(directory.iterdir()))]


def test_failed_call_hides_only_its_own_spec(directory: Path) -> None:
    """If the process of all files fails, each remaining file is compiled alone."""
    bad = str(directory / "100.yaml")
    alone = []

    def compile_yaml(*paths: str) -> None:
        if len(paths) == 1:
            alone.append(paths[0])
        for path in paths:
            if path == bad:
                raise fault("GH1403", path=path, command="x", reason="it was killed by signal 9")
            compile_specs(path)

    found = registry.load([str(directory)], compile_yaml)
    assert len(found.all()) == 299
    assert [broken.path for broken in found.broken] == [bad]
    assert alone == [str(path) for path in sorted(directory.iterdir())[100:]]


def test_command_lines_are_bounded(directory: Path, tmp_path: Path) -> None:
    """The kernel limits the arguments of a program: two processes compile 300 specs."""
    program = tmp_path / "bin/gpuhook"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$#" >>"$0.counts"\n', encoding="utf-8")
    program.chmod(0o755)
    Compiler(str(tmp_path / "bin/gpuhook-runtime")).compile_spec(*map(str, directory.iterdir()))
    assert Path(f"{program}.counts").read_text(encoding="utf-8") == "258\n46\n"


def test_command_compiles_them_all(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUHOOK_CDI_SPEC_DIRS", str(directory))
    known = container_options.context().node.registry()
    assert len(known.all()) == 300


def test_hook_compiles_none(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For its entry in the ledger, it uses the specs that are compiled."""
    chosen = Settings()
    chosen.spec_dirs = [str(directory)]
    monkeypatch.setattr(apply_hook, "Settings", lambda: chosen)
    assert not apply_hook._known_devices({}, ["/dev/nvidia0"], EngineLog("test"))
    assert not Path(os.environ["GPUHOOK_STATE_DIR"]).exists()
