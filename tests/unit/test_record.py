# SPDX-License-Identifier: Apache-2.0
"""The record of what was changed in a config.json, and what a forged one cannot do."""

from __future__ import annotations

from typing import Any

import pytest

from gpuhook import fastjson
from gpuhook.container import oci, record, record_undone

EDITS: Any = {
    "env": ["NVIDIA_VISIBLE_DEVICES=void", "NEW=1"],
    "deviceNodes": [{"path": "/dev/null"}],
    "mounts": [{"hostPath": "/h", "containerPath": "/c", "options": ["ro", "nodev", "bind"]}],
}


def created(spec: dict[str, Any], edits: Any = EDITS) -> dict[str, Any]:
    """Return `spec` after a create: edited and recorded."""
    before = record.survey(spec)
    oci.apply(spec, edits)
    record.write(spec, before, edits)
    return spec


def forged(content: str, **spec: Any) -> dict[str, Any]:
    return {"annotations": {record.ANNOTATION: content, "mine": "x"}, **spec}


def test_the_request_comes_back() -> None:
    """The variable says again what the container asked for, and a new one is gone."""
    spec = created({"process": {"env": ["A=1", "NVIDIA_VISIBLE_DEVICES=0"]}})
    assert "NVIDIA_VISIBLE_DEVICES=void" in spec["process"]["env"]
    assert record.take_back(spec)
    assert spec["process"]["env"] == ["A=1", "NVIDIA_VISIBLE_DEVICES=0"]
    assert "annotations" not in spec
    assert spec["linux"]["devices"] == spec["linux"]["resources"]["devices"] == spec["mounts"] == []


def test_rules_that_were_there_stay() -> None:
    """An allow rule that the engine had set already is not ours to take back."""
    rule = {"allow": True, "type": "c", "major": 1, "minor": 3, "access": "rwm"}
    spec = created({"linux": {"resources": {"devices": [rule]}}})
    record.take_back(spec)
    assert spec["linux"]["resources"]["devices"] == [rule]


def test_a_spec_without_a_record() -> None:
    """Without a record nothing happens, not even to hooks that look like ours."""
    hook = {"path": "/h", "env": [record.HOOK_MARK + "apply"]}
    specs: list[dict[str, Any]] = [
        {"hooks": {"createContainer": [hook]}},
        {"annotations": []},
        {"annotations": {}},
    ]
    for spec in specs:
        before = fastjson.dumps(spec)
        assert not record.take_back(spec)
        assert fastjson.dumps(spec) == before


def test_marked_hooks_go() -> None:
    """Hooks of the wrapper's go with the record, the engine's stay."""
    ours, theirs = {"path": "/h", "env": [record.HOOK_MARK + "params"]}, {"path": "/h", "env": []}
    spec = forged("{}", hooks={"createContainer": [ours, theirs, "odd"]})
    record.take_back(spec)
    assert spec["hooks"]["createContainer"] == [theirs, "odd"]


@pytest.mark.parametrize("content", ["", "no json", "[]", "null", '{"env": {"a": 1}}', "[" * 9999])
def test_broken_records(content: str) -> None:
    """A record that cannot be read is dropped; other annotations stay."""
    spec = forged(content, process={"env": ["A=1"]})
    assert record.take_back(spec)
    assert spec == {"annotations": {"mine": "x"}, "process": {"env": ["A=1"]}}


def test_the_mounts_of_a_record() -> None:
    """Those that the wrapper has made are known by it; what is no record names none."""
    assert record_undone.mounts(created({})) == ["/c"]
    for content in ("no json", "[]", '{"mounts": 7}', '{"mounts": [7]}'):
        assert record_undone.mounts(forged(content)) == []
    assert (
        record_undone.mounts({"annotations": {record.ANNOTATION: 7}})
        == record_undone.mounts({})
        == []
    )


def test_a_denial_is_never_lifted() -> None:
    """A forged record takes allow rules away, never a denial."""
    deny, allow = {"allow": False, "access": "rwm"}, {"allow": True, "access": "r"}
    text = fastjson.dumps({"rules": [deny, allow, {"access": "rwm"}]}).decode()
    held = [deny, allow, {"access": "rwm"}]
    spec = forged(text, linux={"resources": {"devices": held}})
    record.take_back(spec)
    assert spec["linux"]["resources"]["devices"] == [deny, {"access": "rwm"}]


def test_only_our_kind_of_mount_goes() -> None:
    """A forged record unmounts no /proc, no tmpfs and no engine's bind without `nodev`."""
    kept = [
        {"destination": "/proc", "type": "proc", "options": ["nodev"]},
        {"destination": "/secret", "type": "bind", "options": ["rbind", "ro"]},
        {"destination": "/tmp", "type": "tmpfs"},
    ]
    ours = {"destination": "/c", "type": "bind", "options": ["ro", "nodev"]}
    text = fastjson.dumps({"mounts": ["/proc", "/secret", "/tmp", "/c"]}).decode()
    spec = forged(text, mounts=[*kept, ours])
    record.take_back(spec)
    assert spec["mounts"] == kept


def test_variables_that_are_not_text() -> None:
    """An entry of bytes that are no UTF-8 is recorded and comes back as it was."""
    raw = b'{"process":{"env":["PATH=/\xff"]}}'
    spec = created(fastjson.loads(raw), {"env": ["PATH=/new"]})
    written = fastjson.loads(fastjson.dumps(spec))
    assert record.take_back(written)
    assert fastjson.dumps(written) == raw
