# SPDX-License-Identifier: Apache-2.0
"""The record of the changes to a config.json, and records that are malformed or forged."""

from __future__ import annotations

from typing import Any

import pytest

from gpuhook.apply.spec import change_record, oci_spec
from gpuhook.host.hot import fastjson

EDITS: Any = {
    "env": ["NVIDIA_VISIBLE_DEVICES=void", "NEW=1"],
    "deviceNodes": [{"path": "/dev/null"}],
    "mounts": [{"hostPath": "/h", "containerPath": "/c", "options": ["ro", "nodev", "bind"]}],
}


def created(spec: dict[str, Any], edits: Any = EDITS) -> dict[str, Any]:
    """Return `spec` after a create: edited, and with a record."""
    before = change_record.survey(spec)
    oci_spec.apply(spec, edits)
    change_record.write(spec, before, edits)
    return spec


def recorded(content: object, **spec: Any) -> dict[str, Any]:
    return {change_record.KEY: content, "annotations": {"mine": "x"}, **spec}


def test_undo_restores_the_request_variable() -> None:
    """The variable has the requested value again, and an added variable is removed."""
    spec = created({"process": {"env": ["A=1", "NVIDIA_VISIBLE_DEVICES=0"]}})
    assert "NVIDIA_VISIBLE_DEVICES=void" in spec["process"]["env"]
    assert change_record.take_back(spec)
    assert spec["process"]["env"] == ["A=1", "NVIDIA_VISIBLE_DEVICES=0"]
    assert change_record.KEY not in spec
    assert spec["linux"]["devices"] == spec["linux"]["resources"]["devices"] == spec["mounts"] == []


def test_undo_keeps_rules_of_the_engine() -> None:
    """An allow rule that the engine had set before is not removed."""
    rule = {"allow": True, "type": "c", "major": 1, "minor": 3, "access": "rwm"}
    spec = created({"linux": {"resources": {"devices": [rule]}}})
    change_record.take_back(spec)
    assert spec["linux"]["resources"]["devices"] == [rule]


def test_undo_without_a_record_changes_nothing() -> None:
    """Without a record nothing changes, not even hooks that look like gpuhook's."""
    hook = {"path": "/h", "env": [oci_spec.HOOK_MARK + "apply"]}
    specs: list[dict[str, Any]] = [
        {"hooks": {"createContainer": [hook]}},
        {"annotations": []},
        {"annotations": {change_record.KEY: "{}"}},
    ]
    for spec in specs:
        before = fastjson.dumps(spec)
        assert not change_record.take_back(spec)
        assert fastjson.dumps(spec) == before


def test_undo_removes_marked_hooks() -> None:
    """Hooks of the wrapper are removed with the record, those of the engine are kept."""
    ours, theirs = (
        {"path": "/h", "env": [oci_spec.HOOK_MARK + "params"]},
        {"path": "/h", "env": []},
    )
    spec = recorded({}, hooks={"createContainer": [ours, theirs, "odd"]})
    change_record.take_back(spec)
    assert spec["hooks"]["createContainer"] == [theirs, "odd"]


@pytest.mark.parametrize(
    "content", ["", "{}", 7, [], None, {"env": {"a": 1}}, {"env": [[["A=1"], "B=1"], ["A=1"]]}]
)
def test_malformed_records_are_removed(content: object) -> None:
    """A record that cannot be read is removed; other annotations are kept."""
    spec = recorded(content, process={"env": ["A=1"]})
    assert change_record.take_back(spec)
    assert spec == {"annotations": {"mine": "x"}, "process": {"env": ["A=1"]}}


class Counted(str):
    """A text that counts its comparisons."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


def test_lookup_of_variables_is_linear() -> None:
    """The work grows with the number of variables, not with its square."""
    names = [f"V{number}=1" for number in range(2000)]
    pairs = [[Counted(name), None] for name in names]
    spec = recorded({"env": pairs}, process={"env": [*map(Counted, names), "A=1"]})
    change_record.take_back(spec)
    assert spec["process"]["env"] == ["A=1"]
    assert Counted.compared <= 4 * len(names)


def test_mounts_of_a_record() -> None:
    """The record names the mounts that the wrapper has made; a malformed record names none."""
    assert change_record.mounts(created({})) == ["/c"]
    broken: list[Any] = ["no record", [], {"mounts": 7}, {"mounts": [7]}]
    for content in broken:
        assert change_record.mounts(recorded(content)) == []
    assert change_record.mounts({}) == []


def test_undo_removes_no_deny_rule() -> None:
    """A record removes allow rules, never a deny rule."""
    deny, allow = {"allow": False, "access": "rwm"}, {"allow": True, "access": "r"}
    rules = [deny, allow, {"access": "rwm"}]
    spec = recorded({"rules": rules}, linux={"resources": {"devices": list(rules)}})
    change_record.take_back(spec)
    assert spec["linux"]["resources"]["devices"] == [deny, {"access": "rwm"}]


def test_undo_removes_only_mounts_of_the_wrapper() -> None:
    """A record removes no /proc, no tmpfs and no bind of the engine without `nodev`."""
    kept = [
        {"destination": "/proc", "type": "proc", "options": ["nodev"]},
        {"destination": "/secret", "type": "bind", "options": ["rbind", "ro"]},
        {"destination": "/tmp", "type": "tmpfs"},
    ]
    ours = {"destination": "/c", "type": "bind", "options": ["ro", "nodev"]}
    named = {"mounts": ["/proc", "/secret", "/tmp", "/c"]}
    spec = recorded(named, mounts=[*kept, ours])
    change_record.take_back(spec)
    assert spec["mounts"] == kept


def test_variables_that_are_not_utf8_are_restored() -> None:
    """An entry of bytes that are not UTF-8 is recorded and restored unchanged."""
    raw = b'{"process":{"env":["PATH=/\xff"]}}'
    spec = created(fastjson.loads(raw), {"env": ["PATH=/new"]})
    written = fastjson.loads(fastjson.dumps(spec))
    assert change_record.take_back(written)
    assert fastjson.dumps(written) == raw


def test_undo_removes_bound_device_nodes() -> None:
    """A node that was bound in a user namespace is removed, another bind at its path is kept."""
    node = {"path": "/dev/gpu", "hostPath": "/dev/null"}
    linux = {"namespaces": [{"type": "user"}]}
    spec = created({"linux": linux, "mounts": []}, {"deviceNodes": [node]})
    (bound,) = spec["mounts"]
    other = {**bound, "options": ["bind", "rslave"]}
    spec["mounts"].append(other)
    change_record.take_back(spec)
    assert spec["mounts"] == [other]


@pytest.mark.parametrize("options", [None, 7, "nodev"])
def test_mount_with_malformed_options_is_kept(options: object) -> None:
    """The runtime reports such a mount."""
    mount = {"destination": "/c", "type": "bind", "options": options}
    spec = recorded({"mounts": ["/c"]}, mounts=[mount])
    change_record.take_back(spec)
    assert spec["mounts"] == [mount]
