# SPDX-License-Identifier: Apache-2.0
"""`gpuhook health`: shows and clears the device plugin's marks of unhealthy GPUs."""

from __future__ import annotations

import time
from datetime import datetime, timezone

import click

from gpuhook.cli.options import command_sections, parameters
from gpuhook.device_plugin.health import health_marks
from gpuhook.device_plugin.health.health_marks import ALL, SERVICES
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
    """List the GPUs that are marked unhealthy, and clear the marks."""


@health.command()
@parameters.output("table", "json", "yaml", "name")
@parameters.no_headers
def show(output: str, no_headers: bool) -> None:
    """List the GPUs and MIG instances that are marked unhealthy, the reason and what to do.

    The device plugin records the marks in the state directory (GPUHOOK_STATE_DIR). Conditions
    that it checks every time are not recorded: a GPU that the driver does not list, a missing
    driver.
    """
    marks, requests = _stored()
    if output == "name":
        console.names(dict.fromkeys(mark.gpu for mark in marks))
    elif output != "table":
        listed = [_document(mark, requests) for mark in marks]
        console.document({"schema": "gpuhook/health/v1", "marks": listed}, output)
    elif marks:
        rows = [_row(mark, requests) for mark in marks]
        console.rows(HEADERS, rows, no_headers=no_headers)
    else:
        console.say(f"no GPU is marked unhealthy in {health_marks.directory()}")


@health.command()
@click.argument("gpu")
def clear(gpu: str) -> None:
    """Make the device plugin and the DRA driver offer a GPU again.

    Use this command after a GPU was reset or repaired if the driver cannot report it. GPU is an
    index, a UUID or a prefix of one, or `all`. The plugin or driver clears the mark at its next
    check (every 10s, pollInterval) or at its start. A later fault marks the GPU again.

    GPU can also be the device id of an AMD GPU or partition. The errors that it has counted so far
    are then no fault.
    """
    chosen = _marked_gpu(gpu, [mark for one in SERVICES for mark in health_marks.read(one)])
    health_marks.request_clear(chosen)
    name = "all GPUs" if chosen == ALL else chosen
    console.say(f"asked the device plugin to clear {name}")


def _stored() -> tuple[list[HealthMark], dict[str, float]]:
    """Return the marks of the device plugin and of the DRA driver, and the requests to clear."""
    marks: dict[tuple[object, ...], HealthMark] = {}
    requests: dict[str, float] = {}
    for service in reversed(SERVICES):  # the plugin's apply last
        marks |= {(m.gpu, m.instance, m.source): m for m in health_marks.stored_marks(service)}
        requests |= health_marks.clear_requests(service)
    return sorted(marks.values(), key=lambda mark: mark.since), requests


def _marked_gpu(name: str, marks: Sequence[HealthMark]) -> str:
    """Return the UUID of the marked GPU `name`, or ALL; GH1861 for no or several GPUs."""
    if name == ALL or health_marks.POLLED.fullmatch(name):
        return name
    exact = {mark.gpu for mark in marks if name in (mark.gpu, str(mark.index))}
    begun = {mark.gpu for mark in marks if len(name) > len("GPU-") and mark.gpu.startswith(name)}
    found = exact or begun
    if len(found) != 1:
        raise fault("GH1861", name=name)
    return found.pop()


def _row(mark: HealthMark, requests: dict[str, float]) -> tuple[str, ...]:
    since = datetime.fromtimestamp(mark.since, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    to_do = "is being cleared" if _is_clearing(mark, requests) else mark.remedy or "-"
    index = "-" if mark.index is None else str(mark.index)
    return index, mark.gpu, _instance(mark) or "-", mark.reason, to_do, since


def _document(mark: HealthMark, requests: dict[str, float]) -> dict[str, Any]:
    return {
        "gpu": mark.gpu,
        "index": mark.index,
        "instance": _instance(mark),
        "source": mark.source,
        "reason": mark.reason,
        "remedy": mark.remedy or None,
        "since": mark.since,
        "clearing": _is_clearing(mark, requests),
    }


def _instance(mark: HealthMark) -> str | None:
    if mark.instance is None:
        return None
    return ":".join("*" if number is None else str(number) for number in mark.instance)


def _is_clearing(mark: HealthMark, requests: dict[str, float]) -> bool:
    times = [when for name, when in requests.items() if name in (mark.gpu, ALL)]
    return any(mark.is_before(when, time.time()) for when in times)
