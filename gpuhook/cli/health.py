# SPDX-License-Identifier: Apache-2.0
"""`gpuhook health`: the GPUs that the device plugin holds for unhealthy, and how to clear them."""

from __future__ import annotations

from datetime import datetime, timezone

import click

from gpuhook.cli.options import command_sections, parameters
from gpuhook.device_plugin.health import health_marks
from gpuhook.device_plugin.health.health_marks import ALL
from gpuhook.errors import fault
from gpuhook.host import console

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from gpuhook.device_plugin.health.health_marks import HealthMark

HEADERS = ("GPU", "UUID", "INSTANCE", "REASON", "TO-DO", "SINCE")


@click.group(cls=command_sections.Sentences)
def health() -> None:
    """List the GPUs that are held for unhealthy, and clear them."""


@health.command()
@parameters.output("table", "json", "yaml", "name")
@parameters.no_headers
def show(output: str, no_headers: bool) -> None:
    """List the unhealthy GPUs and MIG instances: why, and what to do.

    Reads what the device plugin noted last in the state directory (GPUHOOK_STATE_DIR). What it sees
    anew at each look is not noted: a GPU that the driver does not list, a driver that is gone.
    """
    marks = health_marks.stored_marks()
    asked = health_marks.clear_requests()
    if output == "name":
        console.names(dict.fromkeys(mark.gpu for mark in marks))
    elif output != "table":
        listed = [_document(mark, asked) for mark in marks]
        console.document({"schema": "gpuhook/health/v1", "marks": listed}, output)
    elif marks:
        rows = [_row(mark, asked) for mark in marks]
        console.rows(HEADERS, rows, no_headers=no_headers)
    else:
        console.say(f"no GPU is marked as unhealthy in {health_marks.directory()}")


@health.command()
@click.argument("gpu")
def clear(gpu: str) -> None:
    """Have GPU offered again, whatever made it unhealthy.

    For a GPU that was reset or repaired where the driver cannot say so. GPU is an index, a UUID or
    its beginning, or `all`. The device plugin does it at its next look (10s, pollInterval) or, if
    it does not run, when it starts. What goes wrong later counts again.
    """
    chosen = _chosen(gpu, health_marks.read())
    health_marks.request_clear(chosen)
    name = "all GPUs" if chosen == ALL else chosen
    console.say(f"asked the device plugin to clear {name}")


def _chosen(name: str, marks: Sequence[HealthMark]) -> str:
    """Return the UUID of the marked GPU that a person calls `name`, or ALL."""
    if name == ALL:
        return ALL
    exact = {mark.gpu for mark in marks if name in (mark.gpu, str(mark.index))}
    begun = {mark.gpu for mark in marks if len(name) > len("GPU-") and mark.gpu.startswith(name)}
    found = exact or begun
    if len(found) != 1:
        raise fault("GH1861", name=name)
    return found.pop()


def _row(mark: HealthMark, asked: dict[str, float]) -> tuple[str, ...]:
    since = datetime.fromtimestamp(mark.since, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    to_do = "is being cleared" if _is_asked(mark, asked) else mark.remedy or "-"
    index = "-" if mark.index is None else str(mark.index)
    return index, mark.gpu, _instance(mark) or "-", mark.reason, to_do, since


def _document(mark: HealthMark, asked: dict[str, float]) -> dict[str, Any]:
    return {
        "gpu": mark.gpu,
        "index": mark.index,
        "instance": _instance(mark),
        "source": mark.source,
        "reason": mark.reason,
        "remedy": mark.remedy or None,
        "since": mark.since,
        "clearing": _is_asked(mark, asked),
    }


def _instance(mark: HealthMark) -> str | None:
    if mark.instance is None:
        return None
    return ":".join("*" if number is None else str(number) for number in mark.instance)


def _is_asked(mark: HealthMark, asked: dict[str, float]) -> bool:
    return any(mark.since <= since for name, since in asked.items() if name in (mark.gpu, ALL))
