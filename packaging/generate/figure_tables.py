# SPDX-License-Identifier: Apache-2.0
"""Tables of figures. What all rows have in common is in the head, or in a sentence below."""

from __future__ import annotations

import os
import re

from generate.pages import table_row

_NUMBER = re.compile(r"(\d+(?:[.,]\d+)*)")
_LONG_NUMBER = re.compile(r"(?<![\w.,])\d{4,}(?![\w,])")
_FEWEST_WORDS = 3  # of a beginning that is written once
_FEWEST_COLUMNS = 2  # of figures
# The heads of columns whose numbers have only a unit.
_HEADS = {"/s": "per second", "ms": "slowest, ms", "MiB": "memory, MiB"}


def lines(rows: list[dict[str, str]]) -> list[str]:
    """Return the lines of the table of these figures, each with what, value and limit."""
    names = [one["what"] for one in rows]
    values = [_readable(one["value"]) for one in rows]
    limits = [_readable(one["limit"]) for one in rows]
    matrix = _matrix(names, values, limits)
    if matrix:
        return matrix
    begin, end = _beginning(names), _end(names)
    names = [name[len(begin) : len(name) - len(end)] for name in names]
    head = begin.rstrip(": ") + ("" if begin.endswith(": ") or not begin else " ...")
    heads, cells = _columns(values, end.removeprefix(": "))
    table = [[name, *figures] for name, figures in zip(names, cells, strict=True)]
    is_wide = len(heads) > 1
    foot = [] if not is_wide or len(set(limits)) > 1 else ["", f"The limit of each is {limits[0]}."]
    if any(limits) and not foot:
        heads = [*heads, "limit"]
        table = [[*row, limit] for row, limit in zip(table, limits, strict=True)]
    default = "case" if is_wide else "what was measured"
    made = _table([head or default, *heads], sorted(table) if is_wide else table)
    return [*made, *(foot if any(limits) else [])]


def _table(heads: list[str], rows: list[list[str]]) -> list[str]:
    return [table_row(*heads), f"|{'---|' * len(heads)}", *(table_row(*row) for row in rows)]


def _readable(text: str) -> str:
    return _LONG_NUMBER.sub(lambda found: f"{int(found[0]):,}", text)


def _beginning(names: list[str]) -> str:
    """Return what all names begin with: up to a colon, or some words."""
    common = os.path.commonprefix(names)  # noqa: RUF071 # of texts
    if len(names) == 1:
        return ""
    if ": " in common:
        return common[: common.rindex(": ") + 2]
    words = common[: common.rfind(" ") + 1]
    return words if len(words.split()) >= _FEWEST_WORDS else ""


def _end(names: list[str]) -> str:
    """Return what all names end with, from a colon on."""
    ends = {name[name.find(": ") :] if ": " in name else "" for name in names}
    return ends.pop() if len(names) > 1 and len(ends) == 1 else ""


def _columns(values: list[str], first: str) -> tuple[list[str], list[list[str]]]:
    """Return heads and cells: a column for each number, if all values have the same words.

    `first` is the head of a number without a word, or of the only column.
    """
    split = [_NUMBER.split(value) for value in values]
    words = split[0][2::2]
    heads = [_HEADS.get(one, one.removesuffix(" at")) for one in (w.strip(" ,()") for w in words)]
    is_same = all(one[::2] == split[0][::2] for one in split) and not split[0][0]
    if not is_same or len(words) < _FEWEST_COLUMNS or "to" in heads:
        return [first or "figure"], [[value] for value in values]
    return [head or first or "figure" for head in heads], [one[1::2] for one in split]


def _matrix(names: list[str], values: list[str], limits: list[str]) -> list[str]:
    """Return a table with a column for each case, "name, case"; [] unless all have all cases."""
    pairs = [name.partition(", ")[::2] for name in names]
    things, cases = (list(dict.fromkeys(part)) for part in zip(*pairs, strict=True))
    if len(cases) < _FEWEST_COLUMNS or len(things) < _FEWEST_COLUMNS:
        return []
    found = {
        pair: f"{value} (limit {limit})" if limit else value
        for pair, value, limit in zip(pairs, values, limits, strict=True)
    }
    if len(found) != len(things) * len(cases):
        return []
    rows = [[thing, *(found[thing, case] for case in cases)] for thing in things]
    return _table(["what was measured", *cases], rows)
