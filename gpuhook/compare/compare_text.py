# SPDX-License-Identifier: Apache-2.0
"""Comparisons as text."""

from __future__ import annotations

import click

from gpuhook.errors import printable
from gpuhook.host import console
from gpuhook.host.text_table import counted
from gpuhook.usage.display_names import short_id, short_image

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.usage.display_names import GpuNames

_HEADERS = ("DIFFERENCE", "WHAT", "NAME", "THERE", "GPUHOOK")
_WIDE = (*_HEADERS, "KNOWN")
_MAX_LINE = 4096


def container(one: dict[str, Any], gpus: GpuNames, *, is_wide: bool, no_headers: bool) -> None:
    """Print a container and its differences; with `is_wide` also the known ones."""
    click.echo(printable(f"{_title(one, gpus, is_wide)}: {count_text(one['counts'])}", _MAX_LINE))
    for note in one["notes"]:
        console.warn(note)
    shown = [i for i in one["items"] if i["verdict"] != "same" and (is_wide or not i["reason"])]
    if not shown:
        return
    lines = [[*_sides(i), *([i["reason"] or "-"] if is_wide else [])] for i in shown]
    console.rows(_WIDE if is_wide else _HEADERS, lines, no_headers=no_headers, is_wide=is_wide)


def count_text(counts: dict[str, int]) -> str:
    """Return counts as text: "78 alike, 31 known differences, 1 difference"."""
    known, wrong = counts["known"], counts["differences"]
    parts = [f"{counts['same']:,} alike"]
    parts += [counted(known, "known difference")] if known else []
    return ", ".join([*parts, counted(wrong, "difference")])


def total(compared: list[dict[str, Any]]) -> str:
    """Return the last line of a comparison: the totals of all containers."""
    keys = ("same", "known", "differences")
    counts = {key: sum(one["counts"][key] for one in compared) for key in keys}
    return f"{counted(len(compared), 'container')} with GPUs: {count_text(counts)}"


def _title(one: dict[str, Any], gpus: GpuNames, is_wide: bool) -> str:
    name = "/".join(part for part in (one["namespace"], one["pod"], one["name"]) if part)
    image = one["image"] if is_wide or not one["image"] else short_image(one["image"])
    called = ", ".join(filter(None, (name, image)))
    request = one["request"]
    names = request["names"]
    identity = one["container"] if is_wide else short_id(one["container"])
    requested = ", ".join(names) if is_wide else gpus.listed(names)
    title = f"{identity}{f' ({called})' if called else ''}, GPUs added by {one['givenBy']}"
    return title + (f", {requested} requested by {request['where']}" if names else "")


def _sides(item: dict[str, Any]) -> list[str]:
    verdict = item["verdict"].replace("-", " ")
    there, ours = item["there"] or "-", item["gpuhook"] or "-"
    return [verdict, item["kind"], item["name"], there, ours]
