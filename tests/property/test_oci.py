# SPDX-License-Identifier: Apache-2.0
"""Properties of edits of an OCI spec: idempotent, limited to their fields, and reversible."""

from __future__ import annotations

import copy
import os
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuhook.apply.spec import change_record, oci_spec
from gpuhook.cdi.hot.container_edits import merged
from gpuhook.host.hot import fastjson

NAMES = st.sampled_from(["A", "AB", "PATH", "NVIDIA_VISIBLE_DEVICES", "ünï"])
ENV = st.lists(st.builds("{}={}".format, NAMES, st.text(max_size=5)), max_size=4)
NODES = st.sampled_from(["/dev/null", "/dev/zero", "/dev/full", "/dev/random"])
PATHS = st.sampled_from(["/usr/lib/a", "/usr/lib/b", "/usr//lib/a/", "/etc/c", "/run/s"])
OTHER = st.one_of(st.none(), st.integers(), st.text(max_size=5), st.lists(st.integers()))
UNKNOWN = st.dictionaries(st.sampled_from(["x-new", "y-new"]), OTHER, max_size=2)

NODE = st.fixed_dictionaries(
    {"path": NODES},
    optional={
        "hostPath": NODES,
        "permissions": st.sampled_from(["r", "rw", "rwm"]),
        "fileMode": st.just(0o666),
        "gid": st.integers(1, 99),
    },
)
# Mounts of gpuhook's specs have `nodev`, which distinguishes them from an engine's bind mounts.
MOUNT = st.fixed_dictionaries(
    {"hostPath": PATHS, "containerPath": PATHS, "options": st.just(["ro", "nodev", "bind"])}
)
HOOK = st.fixed_dictionaries(
    {
        "hookName": st.sampled_from(["createContainer", "prestart"]),
        "path": st.sampled_from(["/a", "/b"]),
        "args": st.lists(st.sampled_from("xy"), max_size=2),
    }
)
EDITS: Any = st.fixed_dictionaries(
    {},
    optional={
        "env": ENV,
        "deviceNodes": st.lists(NODE, max_size=4),
        "mounts": st.lists(MOUNT, max_size=4),
        "hooks": st.lists(HOOK, max_size=3),
        "additionalGids": st.lists(st.integers(0, 5), max_size=3),
        "netDevices": st.lists(
            st.fixed_dictionaries(
                {"hostInterfaceName": st.sampled_from(["e0", "e1"]), "name": st.just("n")}
            ),
            max_size=2,
        ),
    },
)
DEVICE = st.fixed_dictionaries(
    {"path": st.sampled_from(["/dev/null", "/dev/mine"]), "type": st.just("c")}
)
RULE = st.fixed_dictionaries({"allow": st.booleans(), "access": st.sampled_from(["r", "rwm"])})
SPEC_MOUNT = st.fixed_dictionaries(
    {"destination": st.one_of(PATHS, st.just("/proc")), "type": st.sampled_from(["proc", "bind"])}
)


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """Return a config.json with unknown fields, in any order."""
    parts: dict[str, Any] = draw(UNKNOWN)
    parts["process"] = {**draw(UNKNOWN), "env": draw(ENV), "user": {"uid": draw(st.integers(0, 2))}}
    parts["linux"] = {
        **draw(UNKNOWN),
        "devices": draw(st.lists(DEVICE, max_size=2)),
        "resources": {"devices": draw(st.lists(RULE, max_size=2))},
    }
    parts["mounts"] = draw(st.lists(SPEC_MOUNT, max_size=3))
    keys = draw(st.permutations(list(parts)))
    return {key: parts[key] for key in keys}


@given(specs(), EDITS)
def test_edits_are_idempotent(spec: dict[str, Any], edits: Any) -> None:
    """The second application does not change the order either."""
    oci_spec.apply(spec, edits)
    once = fastjson.dumps(spec)
    oci_spec.apply(spec, edits)
    assert fastjson.dumps(spec) == once


@given(specs(), st.lists(EDITS, min_size=2, max_size=3))
def test_merged_edits_equal_one_after_another(spec: dict[str, Any], parts: Any) -> None:
    """Of two items for one variable, node, mount or interface, the later one applies."""
    apart = copy.deepcopy(spec)
    for part in parts:
        oci_spec.apply(apart, part)
    oci_spec.apply(spec, merged(parts))
    assert effective(spec) == effective(apart)


def effective(spec: dict[str, Any]) -> list[Any]:
    """Return what a spec has for each variable, node, mount and interface."""
    mounts = {os.path.normpath(one["destination"]): one for one in spec["mounts"]}
    devices = {one["path"]: one for one in spec["linux"]["devices"]}
    variables = dict(entry.partition("=")[::2] for entry in spec["process"]["env"])
    return [variables, devices, mounts, spec["linux"].get("netDevices")]


@given(specs(), EDITS)
def test_edits_keep_other_fields_and_their_order(spec: dict[str, Any], edits: Any) -> None:
    before = copy.deepcopy(spec)
    oci_spec.apply(spec, edits)
    assert list(spec)[: len(before)] == list(before)
    assert {key: spec[key] for key in before if key.endswith("-new")} == {
        key: before[key] for key in before if key.endswith("-new")
    }
    for part in ("process", "linux"):
        assert list(spec[part])[: len(before[part])] == list(before[part])
    kept = [d for d in before["linux"]["devices"] if d["path"] == "/dev/mine"]
    assert [d for d in spec["linux"]["devices"] if d["path"] == "/dev/mine"] == kept
    rules = before["linux"]["resources"]["devices"]
    assert spec["linux"]["resources"]["devices"][: len(rules)] == rules
    proc = [m for m in before["mounts"] if m["destination"] == "/proc"]
    assert [m for m in spec["mounts"] if m["destination"] == "/proc"] == proc


@given(specs(), EDITS)
def test_edits_add_no_duplicates(spec: dict[str, Any], edits: Any) -> None:
    oci_spec.apply(spec, edits)
    paths = [d["path"] for d in spec["linux"]["devices"] if d["path"] != "/dev/mine"]
    wanted = {node["path"] for node in edits.get("deviceNodes", [])}
    assert sorted(p for p in paths if p in wanted) == sorted(wanted)
    destinations = [m["destination"] for m in spec["mounts"] if "source" in m]
    assert len(destinations) == len(set(destinations))
    for stage in spec.get("hooks", {}).values():
        assert all(stage.count(hook) == 1 for hook in stage)
    for entry in edits.get("env", []):
        name = entry.partition("=")[0] + "="
        assert sum(variable.startswith(name) for variable in spec["process"]["env"]) == 1


@st.composite
def new_edits(draw: st.DrawFn) -> tuple[dict[str, Any], Any]:
    """Return a spec without duplicate variables, and edits that the spec does not have yet."""
    spec, edits = draw(specs()), draw(EDITS)
    names = [entry.partition("=")[0] for entry in spec["process"]["env"]]
    spec["process"]["env"] = [
        entry for i, entry in enumerate(spec["process"]["env"]) if names.index(names[i]) == i
    ]
    own = {entry.partition("=")[0]: entry for entry in edits.get("env", [])}
    edits["env"] = [e for e in own.values() if e not in spec["process"]["env"]]
    spec["linux"]["devices"] = [d for d in spec["linux"]["devices"] if d["path"] == "/dev/mine"]
    spec["mounts"] = [m for m in spec["mounts"] if m["destination"] == "/proc"]
    for unrecorded in ("additionalGids", "netDevices"):
        edits.pop(unrecorded, None)
    marked = [oci_spec.HOOK_MARK + "apply"]
    edits["hooks"] = [
        {**hook, "hookName": "createContainer", "env": marked} for hook in edits.get("hooks", [])
    ]
    return spec, edits


@given(new_edits())
def test_change_record_restores_the_spec(case: tuple[dict[str, Any], Any]) -> None:
    """Added empty lists may remain."""
    spec, edits = case
    original = copy.deepcopy(spec)
    before = change_record.survey(spec)
    oci_spec.apply(spec, edits)
    change_record.write(spec, before, edits)
    again = fastjson.loads(fastjson.dumps(spec), exact=True)
    assert change_record.take_back(again)
    if "hooks" not in original and "hooks" in again:
        assert again.pop("hooks") == {"createContainer": []}
    assert fastjson.dumps(again) == fastjson.dumps(original)


FORGED = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=9), PATHS, NODES),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)
RECORD = st.one_of(
    FORGED,
    st.fixed_dictionaries(
        {},
        optional={
            "env": st.one_of(FORGED, st.lists(st.lists(ENV.map("".join), max_size=2), max_size=3)),
            "devices": st.one_of(FORGED, st.lists(NODES)),
            "mounts": st.one_of(FORGED, st.lists(PATHS)),
            "rules": st.one_of(FORGED, st.lists(RULE)),
        },
    ),
)


@given(specs(), RECORD)
def test_forged_change_record_adds_nothing(spec: dict[str, Any], record: Any) -> None:
    """It adds no device, rule or mount, and removes no denial."""
    before = copy.deepcopy(spec)
    spec[change_record.KEY] = record
    assert change_record.take_back(spec)
    assert list(spec) == list(before)
    for old, new in (
        (before["linux"]["devices"], spec["linux"]["devices"]),
        (before["linux"]["resources"]["devices"], spec["linux"]["resources"]["devices"]),
        (before["mounts"], spec["mounts"]),
    ):
        assert [item for item in old if item in new] == new
    denials = [rule for rule in before["linux"]["resources"]["devices"] if not rule["allow"]]
    remaining = [rule for rule in spec["linux"]["resources"]["devices"] if not rule["allow"]]
    assert remaining == denials
    # None of these mounts is a bind with `nodev`, so none is of gpuhook.
    assert spec["mounts"] == before["mounts"]
