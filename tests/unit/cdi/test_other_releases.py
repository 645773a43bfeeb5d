# SPDX-License-Identifier: Apache-2.0
"""State that another release left on the node, newer or older: N, N+1 and N again.

The record of `gpuhook configure` is in test_configuring_failures.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuhook.cdi.hot import compiled_spec
from gpuhook.cdi.hot.compile import compile_json
from gpuhook.containers.hot import ledger
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import fastjson, procfs, settings, state
from gpuhook.node import settings_file
from gpuhook.vendors.nvidia.hot import node_json
from gpuhook.vendors.nvidia.spec import spec_records

SPEC = {
    "cdiVersion": "0.6.0",
    "kind": "nvidia.com/gpu",
    "devices": [{"name": "0", "containerEdits": {"env": ["A=1"]}}],
}
NEWER = {**SPEC, "cdiVersion": "99.0.0"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(state.DIRECTORY_ENV, str(tmp_path / "state"))
    monkeypatch.setenv("GPUHOOK_CONFIG", str(tmp_path / "config.yaml"))
    (tmp_path / "state").mkdir()
    return tmp_path


def other_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process another release."""
    for module in (compiled_spec, settings):
        monkeypatch.setattr(module, "__version__", "99.0.0")


def test_error_of_another_release_is_checked_again(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spec that another release could not read is compiled again, once."""
    source = here / "x.json"
    source.write_text(json.dumps(NEWER))
    found = source.stat()
    assert compile_json(str(source), found).error is not None
    assert compiled_spec.load(str(source), found) is not None
    other_release(monkeypatch)
    assert compiled_spec.load(str(source), found) is None
    assert compile_json(str(source), found).error is not None
    assert compiled_spec.load(str(source), found) is not None


def test_compiled_spec_of_another_release_is_used(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin and a host of two releases do not undo each other's work."""
    source = here / "x.json"
    source.write_text(json.dumps(SPEC))
    found = source.stat()
    compile_json(str(source), found)
    other_release(monkeypatch)
    compiled = compiled_spec.load(str(source), found)
    assert compiled is not None
    assert compiled.device("0") == {"env": ["A=1"]}


def test_value_that_only_the_newer_release_accepts(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new value is an error in the older release, and none in the newer."""
    file = here / "config.yaml"
    file.write_text("cdi: {onStale: later}\n")
    reason = settings_file.problem(str(file))
    assert reason
    settings.store(str(file), file.stat(), {"error": reason})
    with pytest.raises(GpuhookError) as caught:
        settings.load(_unneeded)
    assert caught.value.code == "GH1530"
    other_release(monkeypatch)
    document: dict[str, object] = {"cdi": {"onStale": "later"}}
    read = settings.load(lambda path: settings.store(path, os.stat(path), document))
    assert read.on_stale == "later"


def test_unknown_setting_is_ignored_after_a_downgrade(here: Path) -> None:
    """After a downgrade, a key of the newer release is ignored."""
    file = here / "config.yaml"
    file.write_text("cdi: {later: 1, onStale: refuse}\n")
    assert settings_file.problem(str(file)) == ""
    settings.store(str(file), file.stat(), settings_file.load(str(file)))
    assert settings.load(_unneeded).on_stale == "refuse"


def _unneeded(path: str) -> None:
    raise AssertionError(path)


def _ledger(place: Path, more: dict[str, Any]) -> None:
    pid = os.getpid()
    own = {"pid": pid, "started": procfs.start_time(pid), "devices": ["nvidia.com/gpu=0"]}
    ledger.record(str(place / "runc"), "one", {**own, **more})


def test_ledger_entry_with_unknown_fields_is_kept(here: Path) -> None:
    """An entry with additional fields is read, and kept as a whole."""
    _ledger(here, {"later": {"a": [1]}})
    (entry,) = ledger.living()
    assert entry["devices"] == ["nvidia.com/gpu=0"]
    assert entry["later"] == {"a": [1]}


def _with_more(document: dict[str, Any]) -> None:
    document["later"] = 1
    for gpu in document["gpus"]:
        gpu["later"] = {"a": 1}


@pytest.mark.parametrize("change", [lambda _: None, _with_more])
def test_node_record_with_unknown_fields_is_read(
    here: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    gpu: dict[str, Any] = {"uuid": "GPU-1", "minor": 0, "memory_bytes": 7}
    document: dict[str, Any] = {"schema": "gpuhook/inventory/v1", "gpus": [gpu], "aliases": {}}
    change(document)
    (here / "state/node.json").write_bytes(fastjson.dumps(document))
    assert node_json.memory() == {"GPU-1": 7}
    assert node_json.uuids() == {"/dev/nvidia0": "GPU-1"}


def test_spec_record_with_unknown_fields_is_read(here: Path) -> None:
    """The record has an additional field and the other release's checksum, and still applies."""
    spec_records.remember(
        spec_records.Generated("/etc/cdi/x.yaml", ["--output-file", "/etc/cdi/x.yaml"])
    )
    (file,) = (here / "state/generated").iterdir()
    document = json.loads(file.read_text())
    del document["checksum"]
    document["later"] = "x"
    document["checksum"] = spec_records._checksum(document)
    file.write_bytes(fastjson.dumps(document))
    (made,) = spec_records.all_of_node()
    assert made.words == ["--output-file", "/etc/cdi/x.yaml"]
