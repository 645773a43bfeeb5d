# SPDX-License-Identifier: Apache-2.0
"""JSON text that is edited in place: a set or removed member, and unchanged other members."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuhook.engines.configure.docker import json_text

KEYS = st.sampled_from(["a", "b", "runtimes", "nvidia", "é", 'q"', "{", "}, "])
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=4)
PATHS = st.lists(KEYS, min_size=1, max_size=3)
INDENTS = st.sampled_from([None, 0, 1, 2, 4, "\t"])
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" ,", " : ")])
LINES = st.sampled_from(["\n", "\r\n"])


def formatted(document: Any, indent: Any, separators: Any, newline: str) -> str:
    text = json.dumps(document, indent=indent, separators=separators, ensure_ascii=False)
    return text.replace("\n", newline)


def expected(document: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    """Return the document with a set value; parents that are not objects are replaced."""
    name, *inner = path
    if inner:
        current = document.get(name)
        value = expected(current if isinstance(current, dict) else {}, inner, value)
    return {**document, name: value}


@given(DOCUMENTS, PATHS, VALUES, INDENTS, SEPARATORS, LINES)
def test_set_member_keeps_all_others(
    document: dict[str, Any], path: list[str], value: Any, indent: Any, sep: Any, newline: str
) -> None:
    text = formatted(document, indent, sep, newline)
    after = json_text.with_member(text, path, value)
    assert json.loads(after) == expected(document, path, value)


@given(DOCUMENTS, KEYS, VALUES, INDENTS, SEPARATORS, LINES)
def test_removal_of_a_set_member_restores_the_text(
    document: dict[str, Any], name: str, value: Any, indent: Any, sep: Any, newline: str
) -> None:
    document.pop(name, None)
    text = formatted(document, indent, sep, newline)
    back = json_text.without_member(json_text.with_member(text, [name], value), [name])
    assert back == text


@given(DOCUMENTS, INDENTS, SEPARATORS, LINES)
def test_removed_member_keeps_all_others(
    document: dict[str, Any], indent: Any, sep: Any, newline: str
) -> None:
    text = formatted(document, indent, sep, newline)
    for name in document:
        left = json.loads(json_text.without_member(text, [name]))
        assert left == {key: value for key, value in document.items() if key != name}
