# SPDX-License-Identifier: Apache-2.0
"""Edited TOML has the settings and all other lines, and gpuhook's lines can be removed."""

from __future__ import annotations

import tomlkit
from hypothesis import assume, given
from hypothesis import strategies as st

from gpuhook.engines.read import toml_document
from gpuhook.engines.toml import toml_text
from gpuhook.engines.toml.toml_edit import Setting, edited
from gpuhook.errors import GpuhookError

NAMES = st.sampled_from(["a", "b", "io.x", "c-1", "runc", "options", "\u00e9"])
PLAIN = st.one_of(
    st.booleans(),
    st.integers(-9, 9),
    st.text("ab\"'\\#[]=\n\t\u00e9", max_size=6),
    st.lists(st.text("ab,]#", max_size=3), max_size=3),
)
TABLES = st.recursive(PLAIN, lambda inner: st.dictionaries(NAMES, inner, max_size=3), max_leaves=9)
DOCUMENTS = st.dictionaries(NAMES, TABLES, max_size=4)
COMMENTS = st.lists(st.sampled_from(["", "# note", '  # "x', "# [a]"]), max_size=3)
SETTINGS = st.lists(
    st.builds(Setting, st.lists(NAMES, min_size=1, max_size=3).map(tuple), PLAIN),
    min_size=1,
    max_size=3,
)


def toml_bytes(document: dict[str, object], comments: list[str], *, inline: bool) -> bytes:
    """Return a document with comments, in two styles."""
    if inline:
        lines = [
            f"{toml_text.dotted([name])} = {toml_text.value_text(v)}"
            for name, v in document.items()
        ]
        text = "\n".join(lines) + "\n"
    else:
        text = tomlkit.dumps(document)
    return ("\n".join([*comments, text])).encode()


def merged(document: dict[str, object], settings: list[Setting]) -> dict[str, object]:
    for one in settings:
        place: dict[str, object] = document
        for name in one.path[:-1]:
            inner = place.setdefault(name, {})
            assume(isinstance(inner, dict))
            assert isinstance(inner, dict)
            place = inner
        place[one.path[-1]] = one.value
    return document


@given(DOCUMENTS, COMMENTS, st.booleans(), SETTINGS)
def test_edited_file_has_the_settings_and_all_other_lines(
    document: dict[str, object], comments: list[str], inline: bool, settings: list[Setting]
) -> None:
    paths = [one.path for one in settings]
    assume(not any(a == b[: len(a)] for a in paths for b in paths if a is not b))
    before = toml_bytes(document, comments, inline=inline)
    assume(toml_document.parsed(before) == document)
    wanted = merged(toml_document.parsed(before), settings)
    try:
        after = edited("x", before, settings)
    except GpuhookError:
        return  # the file is not written
    assert toml_document.parsed(after) == wanted
    assert toml_text.without_marked_lines(after).rstrip() == before.rstrip()
    assert edited("x", after, settings) == after


@given(DOCUMENTS)
def test_table_is_read_back(document: dict[str, object]) -> None:
    text = "\n".join(toml_text.table_lines(("x", "y z"), document))
    assert toml_document.parsed(text.encode()) == {"x": {"y z": document}}
