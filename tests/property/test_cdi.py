# SPDX-License-Identifier: Apache-2.0
"""Properties of CDI specs: rules, files and the compiled form."""

from __future__ import annotations

import json
import os
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuhook.cdi import spec_file
from gpuhook.cdi.hot import compiled_spec, names, spec_rules, spec_versions
from gpuhook.errors import GpuhookError
from tests.depth import depth

TEXT = st.text(
    st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\u2028\u2029\ufeff"),
    max_size=12,
)
WORD = TEXT.filter(bool)
NAME = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_.:-]{0,10}[A-Za-z0-9])?", fullmatch=True)
_PART = r"[A-Za-z]([a-z0-9_.-]{0,8}[a-z0-9])?"
KIND = st.from_regex(f"{_PART}/{_PART}", fullmatch=True)
ENV = st.lists(st.builds("{}={}".format, WORD.filter(lambda t: "=" not in t), TEXT), max_size=3)
NODE = st.fixed_dictionaries(
    {"path": WORD},
    optional={
        "hostPath": TEXT,
        "type": st.sampled_from(["c", "b", ""]),
        "fileMode": st.integers(0, 0o7777),
        "permissions": st.sampled_from(["", "r", "rw", "rwm"]),
        "major": st.integers(-1, 1 << 31),
    },
)
HOOK = st.fixed_dictionaries(
    {"hookName": st.sampled_from(spec_rules.HOOK_NAMES), "path": WORD},
    optional={"args": st.lists(TEXT, max_size=3), "env": ENV, "timeout": st.integers(1, 100)},
)
EDITS = st.fixed_dictionaries(
    {},
    optional={
        "env": ENV,
        "deviceNodes": st.lists(NODE, max_size=2),
        "mounts": st.lists(
            st.fixed_dictionaries(
                {"hostPath": WORD, "containerPath": WORD}, optional={"type": TEXT}
            ),
            max_size=2,
        ),
        "hooks": st.lists(HOOK, max_size=2),
        "additionalGids": st.lists(st.integers(0, 1 << 31), max_size=2),
    },
)
DEVICES: st.SearchStrategy[Any] = st.lists(NAME, min_size=1, max_size=4, unique=True).flatmap(
    lambda found: st.tuples(
        *(
            st.builds(
                lambda name, edits: {"name": name, "containerEdits": edits},
                st.just(name),
                EDITS.filter(lambda edits: any(edits.values())),
            )
            for name in found
        )
    ).map(list)
)


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """Return a valid spec of the lowest possible version."""
    spec: dict[str, Any] = {"cdiVersion": "", "kind": draw(KIND), "devices": draw(DEVICES)}
    spec["containerEdits"] = draw(EDITS)
    spec["cdiVersion"] = spec_versions.lowest(spec)
    return spec


def code_of(document: object) -> str:
    """Return the code of the fault that the rules report for `document`, "" without one."""
    try:
        spec_rules.check(document, "x")
    except GpuhookError as error:
        return error.code
    return ""


@given(specs())
def test_valid_spec_passes_from_its_lowest_version(spec: dict[str, Any]) -> None:
    assert code_of(spec) == ""
    below = spec_versions.VERSIONS[: spec_versions.VERSIONS.index(spec["cdiVersion"])]
    for version in below[2:]:
        assert code_of({**spec, "cdiVersion": version}) == "GH1108"


@given(specs(), st.sampled_from(spec_file.FORMATS))
@settings(max_examples=depth(10, 100))
def test_spec_file_is_read_back(spec: dict[str, Any], fmt: str) -> None:
    """gpuhook and other parsers read both formats as the same spec."""
    text = spec_file.document(spec, fmt)  # type: ignore[arg-type]  # a spec by construction
    assert spec_file.parser("x." + fmt)(text.encode(), "x") == spec
    assert (json.loads(text) if fmt == "json" else yaml.safe_load(text)) == spec


@given(specs())
def test_compiled_spec_equals_its_source(spec: dict[str, Any]) -> None:
    found = os.stat("/")
    data = compiled_spec.encoded("/etc/cdi/x.yaml", found, spec)  # type: ignore[arg-type]  # as above
    compiled = compiled_spec.Compiled("/etc/cdi/x.yaml", data)
    assert (compiled.kind, compiled.version) == (spec["kind"], spec["cdiVersion"])
    assert compiled.edits == spec["containerEdits"]
    assert compiled.names() == [device["name"] for device in spec["devices"]]
    for device in spec["devices"]:
        assert compiled.device(device["name"]) == device["containerEdits"]
    assert compiled.device(spec["devices"][0]["name"] + "x:") is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from([
            "cdiVersion", "kind", "devices", "name", "containerEdits", "env", "mounts", "hooks",
            "deviceNodes", "path", "annotations", "intelRdt", "netDevices", "x",
        ]),
        inner,
        max_size=5,
    ),
    max_leaves=25,
)  # fmt: skip


CODES = ("", "GH1106", "GH1107", "GH1108")


@given(JSON)
def test_any_document_passes_or_is_a_fault(document: object) -> None:
    """No other exception is raised."""
    assert code_of(document) in CODES


@given(specs(), JSON, st.randoms())
def test_spec_with_a_replaced_value_passes_or_is_a_fault(
    spec: dict[str, Any], junk: object, random: Any
) -> None:
    place: Any = spec
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = random.choice(keys)
        if not isinstance(place[key], (dict, list)) or random.random() < 0.3:
            place[key] = junk
            break
        place = place[key]
    assert code_of(spec) in CODES


@given(KIND, NAME)
def test_qualified_name_is_split_into_its_parts(kind: str, device: str) -> None:
    assert names.split(f"{kind}={device}") == (*kind.split("/"), device)


@given(st.text(alphabet="aZ0/=_-.: \n\0é", max_size=12))
def test_any_text_is_a_qualified_name_or_none(text: str) -> None:
    """The parts of a name give the text."""
    parts = names.split(text)
    assert parts is None or "{}/{}={}".format(*parts) == text
