# SPDX-License-Identifier: Apache-2.0
"""The claims of a manifest as text: the answer, and which device each request can have and why."""

from __future__ import annotations

from typing import Any

from gpuhook.dra.pool.pool_device import MEMORY
from gpuhook.explain.claims.claim_objects import ALL
from gpuhook.explain.text.explain_sections import listed
from gpuhook.explain.text.pod_text import objection_lines
from gpuhook.request.memory_request import amount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_DEVICES = 8
_SENTENCES = {
    "allocated": "this node can satisfy it",
    "pending": "this node cannot satisfy it",
    "error": "the scheduler fails on this node",
    "refused": "Kubernetes refuses it",
    "not-judged": "not judged",
}
_VERDICTS = {
    "matches": "matches",
    "excludes": "excluded",
    "error": "error",
    "not-judged": "not judged",
}


def lines(answer: dict[str, Any]) -> Iterator[str]:
    """Yield the lines on the claims that are allocated together."""
    named = [_title(one) for one in answer["claims"]] or ["no claim of the manifest"]
    pod = f" for {answer['pod']}" if answer["pod"] else ""
    yield ""
    yield f"{'Claims' if len(named) > 1 else 'Claim'}: {', '.join(named)}{pod}"
    reason = f": {answer['reason']}" if answer["reason"] else ""
    yield f"Answer: {_SENTENCES[answer['result']]}{reason}"
    for note in answer["notes"]:
        yield f"  note: {note}"
    for line in objection_lines(answer["objections"]):
        yield f"  {line}"
    for request in answer["requests"]:
        yield from (f"  {line}" for line in _request(request))


def _title(one: dict[str, Any]) -> str:
    where = f" ({one['where']})" if one["where"] else ""
    return f"{one['claim']}{where}"


def _request(one: dict[str, Any]) -> Iterator[str]:
    count = "all devices" if one["mode"] == ALL else str(one["count"])
    more = "".join(f", {name} {value}" for name, value in one["capacity"].items())
    admin = ", admin access" if one["admin_access"] else ""
    place = f" ({one['class_from']})" if one["class_from"] else ""
    yield f"request {one['request']}: {count} of class {one['class']}{place}{more}{admin}"
    for device in one["allocated"]:
        consumed = ", ".join(_amount(*item) for item in device["consumes"].items())
        yield f"  gets {_name(device)}" + (f", consumes {consumed}" if consumed else "")
    groups: dict[tuple[str, str, str], list[str]] = {}
    for device in one["devices"]:
        groups.setdefault((device["driver"], *_why(device)), []).append(device["device"])
    for (driver, verdict, why), names in groups.items():
        yield f"  {verdict}: {listed(names, _MOST_DEVICES)} of {driver}"
        if why:
            yield f"    {why}"


def _why(device: dict[str, str]) -> tuple[str, str]:
    place = f" ({device['where']})" if device["where"] else ""
    why = f"by {device['by']}{place}: {device['reason']}" if device["by"] else ""
    return _VERDICTS[device["verdict"]], why


def _name(device: dict[str, Any]) -> str:
    return f"{device['device']} of {device['driver']}"


def _amount(name: str, value: int) -> str:
    return f"{name} {amount(value) if name == MEMORY else value}"
