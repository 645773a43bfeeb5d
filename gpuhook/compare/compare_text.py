# SPDX-License-Identifier: Apache-2.0
"""Comparisons as text."""

from __future__ import annotations

import click

from gpuhook.errors import printable
from gpuhook.host import console
from gpuhook.host.text_table import shortened
from gpuhook.usage.display_names import short_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_HEADERS = ("DIFFERENCE", "WHAT", "NAME", "THERE", "GPUHOOK")
_WIDE = (*_HEADERS, "KNOWN")
_WORDS = {"only-there": "only there", "only-gpuhook": "only gpuhook", "differs": "differs"}
_MAX_LINE = 4096
_NAMES = 8


def container(one: dict[str, Any], *, is_wide: bool, no_headers: bool) -> None:
    """Print one container: a line on it, and its differences; with `is_wide` the known ones too."""
    click.echo(printable(f"{_title(one, is_wide)}: {counted(one['counts'])}", _MAX_LINE))
    for note in one["notes"]:
        console.warn(note)
    shown = [i for i in one["items"] if i["verdict"] != "same" and (is_wide or not i["reason"])]
    if not shown:
        return
    lines = [[*_sides(i), *([i["reason"] or "-"] if is_wide else [])] for i in shown]
    console.rows(_WIDE if is_wide else _HEADERS, lines, no_headers=no_headers)


def counted(counts: dict[str, int]) -> str:
    """Return counts in words: "78 alike, 31 known differences, 1 difference"."""
    known, wrong = counts["known"], counts["differences"]
    told = [f"{counts['same']:,} alike"]
    told += [f"{known:,} known {_plural('difference', known)}"] if known else []
    return ", ".join([*told, f"{wrong:,} {_plural('difference', wrong)}"])


def total(compared: list[dict[str, Any]]) -> str:
    """Return the line that ends a comparison of several containers."""
    keys = ("same", "known", "differences")
    counts = {key: sum(one["counts"][key] for one in compared) for key in keys}
    number = len(compared)
    return f"{number:,} {_plural('container', number)} with GPUs: {counted(counts)}"


def _title(one: dict[str, Any], is_wide: bool) -> str:
    pod = "/".join(part for part in (one["namespace"], one["pod"], one["name"]) if part)
    request = one["request"]
    names = request["names"] if is_wide else [shortened(name) for name in request["names"]]
    identity = one["container"] if is_wide else short_id(one["container"])
    asked = ", ".join(names[:_NAMES]) + (", ..." if names[_NAMES:] else "")
    told = f"{identity}{f' ({pod})' if pod else ''}, given by {one['givenBy']}"
    return told + (f", asked for {asked} by {request['where']}" if names else "")


def _sides(item: dict[str, Any]) -> list[str]:
    verdict = _WORDS.get(item["verdict"], str(item["verdict"]))
    there, ours = item["there"] or "-", item["gpuhook"] or "-"
    return [verdict, item["kind"], item["name"], there, ours]


def _plural(word: str, number: int) -> str:
    return word if number == 1 else word + "s"
