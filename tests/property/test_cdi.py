# SPDX-License-Identifier: Apache-2.0
"""Properties of CDI specs: nothing is lost on the way to a file, or to the compiled form."""

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
    """Return a valid spec of the lowest version that fits."""
    made: dict[str, Any] = {"cdiVersion": "", "kind": draw(KIND), "devices": draw(DEVICES)}
    made["containerEdits"] = draw(EDITS)
    made["cdiVersion"] = spec_versions.lowest(made)
    return made


def code_of(document: object) -> str:
    """Return the code of the fault that the rules find in `document`, "" if they pass it."""
    try:
        spec_rules.check(document, "x")
    except GpuhookError as error:
        return error.code
    return ""


@given(specs())
def test_valid_specs_pass(made: dict[str, Any]) -> None:
    """A spec of valid parts passes in the version that `lowest` names, and in no lower one."""
    assert code_of(made) == ""
    below = spec_versions.VERSIONS[: spec_versions.VERSIONS.index(made["cdiVersion"])]
    for version in below[2:]:
        assert code_of({**made, "cdiVersion": version}) == "GH1108"


@given(specs(), st.sampled_from(spec_file.FORMATS))
@settings(max_examples=60)
def test_files_lose_nothing(made: dict[str, Any], fmt: str) -> None:
    """What is written in either format is read as the same spec, by us and by other readers."""
    text = spec_file.document(made, fmt)  # type: ignore[arg-type]  # a spec by construction
    assert spec_file.parser("x." + fmt)(text.encode(), "x") == made
    assert (json.loads(text) if fmt == "json" else yaml.safe_load(text)) == made


@given(specs())
def test_the_compiled_form_equals_the_source(made: dict[str, Any]) -> None:
    """Every device, the common edits, the kind and the version come out as they went in."""
    found = os.stat("/")
    data = compiled_spec.encoded("/etc/cdi/x.yaml", found, made)  # type: ignore[arg-type]  # as above
    compiled = compiled_spec.Compiled("/etc/cdi/x.yaml", data)
    assert (compiled.kind, compiled.version) == (made["kind"], made["cdiVersion"])
    assert compiled.edits == made["containerEdits"]
    assert compiled.names() == [device["name"] for device in made["devices"]]
    for device in made["devices"]:
        assert compiled.device(device["name"]) == device["containerEdits"]
    assert compiled.device(made["devices"][0]["name"] + "x:") is None


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
def test_any_document_is_judged(document: object) -> None:
    """Whatever a file holds, the rules pass it or name what is wrong: no other exception."""
    assert code_of(document) in CODES


@given(specs(), JSON, st.randoms())
def test_a_damaged_spec_is_judged(made: dict[str, Any], junk: object, random: Any) -> None:
    """A valid spec with one value replaced by anything is passed or refused, never a crash."""
    place: Any = made
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = random.choice(keys)
        if not isinstance(place[key], (dict, list)) or random.random() < 0.3:
            place[key] = junk
            break
        place = place[key]
    assert code_of(made) in CODES


@given(KIND, NAME)
def test_names_round_trip(kind: str, device: str) -> None:
    """A qualified name splits into the parts it was made of."""
    assert names.split(f"{kind}={device}") == (*kind.split("/"), device)


@given(st.text(alphabet="aZ0/=_-.: \n\0é", max_size=12))
def test_any_text_is_a_name_or_not(text: str) -> None:
    """Any text splits into parts that make it up again, or is no name: it never raises."""
    parts = names.split(text)
    assert parts is None or "{}/{}={}".format(*parts) == text
