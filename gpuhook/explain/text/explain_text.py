# SPDX-License-Identifier: Apache-2.0
"""The document gpuhook/explain/v1 as text, with the answer first.

A wide text has whole lists of files, others only their number.
"""

from __future__ import annotations

from typing import Any

from gpuhook.entry.create import WRAPPER
from gpuhook.errors import printable
from gpuhook.explain.pods.pod_requests import NO_HANDLER
from gpuhook.explain.pods.scheduling.placement import NOT_JUDGED
from gpuhook.explain.question import CONTAINER
from gpuhook.explain.text import claim_text, pod_text
from gpuhook.explain.text import explain_sections as sections
from gpuhook.explain.text.explain_sections import gpus_of, listed
from gpuhook.explain.trace import outcome
from gpuhook.host.text_table import counted
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_LINE = 4096
_MOST_ANSWERS = 20
# Results by Kubernetes, and the result of the objections that cause them.
_KUBERNETES_RESULTS = {outcome.NOT_CREATED: "refused", outcome.NEVER_SCHEDULED: "pending"}
_ROUTES = {
    "cdi": ", by the engine's CDI",
    "cdi+wrapper": ", by the engine's CDI",
    "unknown": ", by its config.json",
}
_BY_CLAIM = ", by Dynamic Resource Allocation"
_NONE = "none"  # requests only the driver's files
_REASONS = ("GH1007", "GH1008")  # why a container starts without what it requests
_NOT_GRANTED = "no request is granted"
_SHARED = {
    "none": "exclusively",
    "time-slicing": "shared by time slicing",
    "mps": "shared by MPS",
    "memory-units": "shared by memory units",
}


def lines(document: dict[str, Any], *, is_wide: bool = False) -> Iterator[str]:
    """Yield the lines of the text."""
    containers = document["containers"]
    common = _common(containers)
    for line in (*_node(document["node"], common), *_overview(document)):
        yield printable(line, _MAX_LINE)
    for claim in document.get("claims", ()):
        for line in claim_text.lines(claim):
            yield printable(line, _MAX_LINE)
    for container in containers:
        for line in _container(container, common, is_wide=is_wide):
            yield printable(line, _MAX_LINE)


def _common(containers: list[dict[str, Any]]) -> list[str]:
    if len(containers) < 2:
        return []
    first = containers[0]["notes"]
    return [note for note in first if all(note in one["notes"] for one in containers)]


def _node(node: dict[str, Any], common: list[str]) -> Iterator[str]:
    driver = f", driver {node['driver']}" if node["driver"] else ""
    cuda = f", CUDA {node['cuda']}" if node["cuda"] else ""
    gpus = "" if node["gpus"] is None else f", {counted(node['gpus'], 'GPU')}"
    yield f"Node: {node['where']} ({node['by']}){gpus}{driver}{cuda}"
    for note in (*node["notes"], *common):
        yield f"  note: {note}"
    for one in node["broken"]:
        yield f"  broken spec: {one['code']}: {one['message']}"


def _overview(document: dict[str, Any]) -> Iterator[str]:
    """Yield the answers of several containers, first those that do not start."""
    containers, contention = document["containers"], document["contention"]
    if len(containers) < 2:
        return
    is_bad = [one["result"] in outcome.NOT_STARTED for one in containers]
    order = sorted(range(len(containers)), key=lambda number: not is_bad[number])
    found = [containers[number] for number in order]
    yield ""
    number = len(found) - sum(is_bad) - sum(len(one["pending"]) for one in contention)
    yield f"Answers: {number} of {counted(len(found), 'container')} would start"
    for one in found[:_MOST_ANSWERS]:
        yield f"  {one['where']}: {_answer(one)}"
    if len(found) > _MOST_ANSWERS:
        yield f"  and {len(found) - _MOST_ANSWERS} more below"
    yield from map(_together, contention)


def _together(one: dict[str, Any]) -> str:
    """Return the line on a resource of which the pods request more than the node offers."""
    number = len(one["pending"])
    stays = counted(number, "container stays", "containers stay")
    waiting = f"; {stays} Pending" if number else ""
    return (
        f"Together they request {one['requested']} {one['resource']}; "
        f"this node offers {one['offered']}{waiting} (each answer is for the pod alone on the node)"
    )


def _container(container: dict[str, Any], common: list[str], *, is_wide: bool) -> Iterator[str]:
    yield ""
    yield f"Container: {container['where']}"
    yield f"Answer: {_answer(container)}"
    notes = [note for note in container["notes"] if note not in common]
    shown = {**container, "notes": notes}
    for title, found in _sections(shown, is_wide=is_wide):
        if found:
            yield ""
            yield title
            yield from (f"  {line}" for line in found)


def _answer(container: dict[str, Any]) -> str:
    result = container["result"]
    sentence = outcome.SENTENCES[result]
    if result == outcome.GETS:
        gpus = gpus_of(container["gpus"])
        return f"it gets {gpus}{_route(container)}{_sharing(container)}{_condition(container)}"
    if result == outcome.REFUSED:
        return f"{sentence}: {container['fault']['code']}"
    if result == outcome.UNKNOWN and container["pod"]["claims"]:
        return f"{sentence}: a driver of Dynamic Resource Allocation selects them"
    if result == outcome.UNKNOWN:
        return f"{sentence}: no GPU of this node is known (see --inventory)"
    if result == outcome.STARTS_WITHOUT:
        return _without(container)
    others = container["because_of"]
    because = f", because of a fault of {listed(others)} in the same pod" if others else ""
    return sentence + (because or _objection(container))


def _without(container: dict[str, Any]) -> str:
    if _is_allocated(container):
        return "it starts without the GPUs that are allocated to it"
    names = [name for one in container["sources"] for name in one["names"]]
    what = "the driver's files" if names == [_NONE] else "a GPU"
    reasons = [one for one in container["warnings"] if one["code"] in _REASONS]
    why = f"{reasons[0]['code']}: {reasons[0]['message']}" if reasons else _NOT_GRANTED
    return f"it starts without {what}: {why}"


def _objection(container: dict[str, Any]) -> str:
    """Return the first objection that causes a result by Kubernetes, "" for other results."""
    word = _KUBERNETES_RESULTS.get(container["result"])
    for one in container["pod"]["objections"] if word else ():
        if one["result"] == word:
            return f": {one['said']}"
    return ""


def _is_allocated(container: dict[str, Any]) -> bool:
    allocation = (container["pod"] or {}).get("allocation")
    return bool(allocation and allocation["resources"])


def _route(container: dict[str, Any]) -> str:
    """Return what added the GPUs of a running container instead of gpuhook-runtime."""
    if container["route"]["name"] == outcome.DRA:
        return _BY_CLAIM
    is_running = container["kind"] == CONTAINER
    hooks = {one.traces.HOOK_INJECTOR: f", by {one.title}'s hook" for one in vendors()}
    return {**hooks, **_ROUTES}.get(container["route"]["name"], "") if is_running else ""


def _sharing(container: dict[str, Any]) -> str:
    """Return how all its GPUs are shared, "" if that differs or is unknown."""
    ways = {(one["sharing"], bool(one["note"])) for one in container["isolation"]}
    if len(ways) != 1:
        return ""
    sharing, is_open = next(iter(ways))
    return ", not exclusively" if is_open else f", {_SHARED[sharing]}"


def _condition(container: dict[str, Any]) -> str:
    """Return the condition under which a pod gets its GPUs, "" without one."""
    pod = container["pod"]
    if pod is None:
        return ""
    if pod["scheduling"] and pod["scheduling"]["verdict"] == NOT_JUDGED:
        return ", if the node meets the pod's requirements that were not evaluated"
    if container["route"]["name"] != WRAPPER:
        return ""
    if any(one["id"] == NO_HANDLER for one in pod["objections"]):
        return f", if RuntimeClass {pod['runtime_class']} refers to a handler of the engine"
    if pod["runtime_class"]:
        return ""
    return ", if the node's default runtime or NRI plugin adds GPUs: it has no runtimeClassName"


def _sections(container: dict[str, Any], *, is_wide: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield the sections; for a container that does not start, those with the reason."""
    is_made = container["result"] not in outcome.NOT_STARTED
    pod = container["pod"]
    yield "Refused", list(sections.refusal(container["fault"]))
    yield "Kubernetes", list(pod_text.lines(pod, is_wide=is_wide)) if pod else []
    yield "Notes", container["notes"]
    if container["result"] not in _KUBERNETES_RESULTS or is_wide:
        yield "Request", list(sections.sources(container, is_pod=bool(pod)))
        yield "Devices", list(sections.devices(container, is_wide=is_wide))
    if is_made or is_wide:
        yield "Capabilities", list(sections.capabilities(container, is_wide=is_wide))
    if container["result"] not in _KUBERNETES_RESULTS or is_wide:
        yield "Requirements", list(sections.requirements(container, is_wide=is_wide))
    if is_made or is_wide:
        yield "Memory", list(sections.memory(container))
        yield "Isolation", list(sections.isolation(container))
        yield "config.json", list(sections.config(container, is_wide=is_wide))
        yield "Root file system", list(sections.root(container, is_wide=is_wide))
        if container["gpus"] or is_wide:
            yield "Integration", [container["route"]["note"]]
    yield "Ignored", container["ignored"]
    yield "Warnings", list(sections.warnings(container))
    yield "Warnings at its start", list(sections.start_warnings(container))
