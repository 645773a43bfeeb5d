# SPDX-License-Identifier: Apache-2.0
"""The document gpuhook/explain/v1 as a trace that people read from top to bottom.

The answer comes first; lists of files are counted, and printed whole where a trace is wide.
"""

from __future__ import annotations

from typing import Any

from gpuhook.errors import printable
from gpuhook.errors.catalogue import with_angle_brackets
from gpuhook.explain.text import explain_sections as sections
from gpuhook.explain.text.explain_terms import counted, gpus_of, listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_LINE = 4096
_MOST_ANSWERS = 20
_STARTS_WITHOUT = "starts-without"
_GETS, _FILES_ONLY, _REFUSED, _UNKNOWN = "gets", "files-only", "refused", "unknown"
# Results of Kubernetes' making, and of which objections they come.
_OF_KUBERNETES = {"not-created": "refused", "pending": "pending"}
_ANSWERS = {
    _FILES_ONLY: "it gets the driver's files, and no GPU",
    _REFUSED: "it does not start",
    "not-created": "Kubernetes does not create it",
    "pending": "Kubernetes never schedules it",
    "nothing": "it asks for nothing, and gets nothing",
    _UNKNOWN: "which GPUs it is given cannot be told here",
}
_RUNNING = "container"  # what was named is a running container
_GIVERS = {
    "cdi": ", by the engine's CDI",
    "cdi+wrapper": ", by the engine's CDI",
    "nvidia-legacy": ", by NVIDIA's hook",
    "unknown": ", by its config.json",
}
_NONE = "none"  # requests the driver's files alone
_REASONS = ("GH1007", "GH1008")  # why a container starts without what it requests
_NOT_GRANTED = "nothing that it requests is granted"
_SHARED = {
    "none": "for itself alone",
    "time-slicing": "shared in turns with others",
    "mps": "shared with others by MPS",
    "memory-units": "shared with others by its memory",
}


def lines(
    document: dict[str, Any], pods: list[list[str]], *, is_wide: bool = False
) -> Iterator[str]:
    """Yield the lines of the trace; `pods` has for each container what its manifest says."""
    containers = document["containers"]
    common = _common(containers)
    for line in (*_node(document["node"], common), *_overview(containers)):
        yield printable(line, _MAX_LINE)
    for container, pod in zip(containers, pods, strict=True):
        for line in _container(container, pod, common, is_wide=is_wide):
            yield printable(line, _MAX_LINE)


def of_code(told: dict[str, Any]) -> Iterator[str]:
    """Yield the lines on the code of a fault; facts of a case stand where it has <names>."""
    if "reason" in told:
        yield from _retired_code(told)
        return
    hint = with_angle_brackets(told["hint"])
    yield f"{told['code']}: {with_angle_brackets(told['message'])}"
    yield f"({told['kind']})"
    if not hint.startswith("<"):
        yield f"hint: {hint}"
    for title in ("cause", "cure", "example"):
        if not told[title]:
            continue
        yield ""
        yield title.capitalize()
        yield from (f"  {line}".rstrip() for line in told[title].splitlines())


def _retired_code(document: dict[str, Any]) -> Iterator[str]:
    yield f"{document['code']}: no longer used"
    yield f"reason: {document['reason']}"
    if document["replacement"]:
        yield f"replaced by: {document['replacement']}"


def _common(containers: list[dict[str, Any]]) -> list[str]:
    """Return the notes that every one of several containers has."""
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


def _overview(containers: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the answers of several containers, those that do not start first."""
    if len(containers) < 2:
        return
    is_bad = [one["result"] in (_REFUSED, *_OF_KUBERNETES) for one in containers]
    order = sorted(range(len(containers)), key=lambda number: not is_bad[number])
    found = [containers[number] for number in order]
    yield ""
    yield f"Answers: {counted(len(found), 'container')}, of which {sum(is_bad)} cannot start"
    for one in found[:_MOST_ANSWERS]:
        yield f"  {one['where']}: {_answer(one)}"
    if len(found) > _MOST_ANSWERS:
        yield f"  and {len(found) - _MOST_ANSWERS} more below"


def _container(
    container: dict[str, Any], pod: list[str], common: list[str], *, is_wide: bool
) -> Iterator[str]:
    yield ""
    yield f"Container: {container['where']}"
    yield f"Answer: {_answer(container)}"
    notes = [note for note in container["notes"] if note not in common]
    told = {**container, "notes": notes}
    for title, found in _sections(told, pod, is_wide=is_wide):
        if found:
            yield ""
            yield title
            yield from (f"  {line}" for line in found)


def _answer(container: dict[str, Any]) -> str:
    result = container["result"]
    if result == _GETS:
        gpus = gpus_of(container["gpus"])
        return f"it gets {gpus}{_giver(container)}{_sharing(container)}{_condition(container)}"
    if result == _REFUSED:
        return f"{_ANSWERS[result]}: {container['fault']['code']}"
    if result == _UNKNOWN and container["pod"]["claims"]:
        return f"{_ANSWERS[result]}: a driver of Dynamic Resource Allocation chooses them"
    if result == _UNKNOWN:
        return f"{_ANSWERS[result]}: no GPU of this node is known (--inventory names another node)"
    if result == _STARTS_WITHOUT:
        return _without(container)
    others = container["because_of"]
    because = f", because of what is wrong with {listed(others)} in the same pod" if others else ""
    return _ANSWERS[result] + (because or _objection(container))


def _without(container: dict[str, Any]) -> str:
    """Return what it starts without, and why."""
    if _is_booked(container):
        return "it starts without the GPUs that are booked for it"
    names = [name for one in container["sources"] for name in one["names"]]
    what = "the driver's files" if names == [_NONE] else "a GPU"
    reasons = [one for one in container["warnings"] if one["code"] in _REASONS]
    why = f"{reasons[0]['code']}: {reasons[0]['message']}" if reasons else _NOT_GRANTED
    return f"it starts without {what}: {why}"


def _objection(container: dict[str, Any]) -> str:
    """Return what keeps Kubernetes from it, the first such thing; "" where nothing does."""
    word = _OF_KUBERNETES.get(container["result"])
    for one in container["pod"]["objections"] if word else ():
        if one["result"] == word:
            return f": {one['said']}"
    return ""


def _is_booked(container: dict[str, Any]) -> bool:
    allocation = (container["pod"] or {}).get("allocation")
    return bool(allocation and allocation["resources"])


def _giver(container: dict[str, Any]) -> str:
    """Return who gave a running container what gpuhook-runtime did not."""
    is_running = container["kind"] == _RUNNING
    return _GIVERS.get(container["route"]["name"], "") if is_running else ""


def _sharing(container: dict[str, Any]) -> str:
    """Return how it has them, in a few words; nothing where that differs, or nobody knows."""
    ways = {(one["sharing"], bool(one["note"])) for one in container["isolation"]}
    if len(ways) != 1:
        return ""
    sharing, is_open = next(iter(ways))
    return ", not reserved for it" if is_open else f", {_SHARED[sharing]}"


def _condition(container: dict[str, Any]) -> str:
    """Return what it hangs on that a container of a pod meets the runtime that gives it GPUs."""
    pod = container["pod"]
    if pod is None or pod["runtime_class"] or container["route"]["name"] != sections.WRAPPER:
        return ""
    return ", if the node's default runtime hands out GPUs: it has no runtimeClassName"


def _sections(
    container: dict[str, Any], pod: list[str], *, is_wide: bool
) -> Iterator[tuple[str, list[str]]]:
    """Yield the sections; of a container that does not start, those that say why."""
    is_made = container["result"] not in (_REFUSED, *_OF_KUBERNETES)
    yield "Refused", list(sections.refusal(container["fault"]))
    yield "Kubernetes", pod
    yield "Notes", container["notes"]
    if container["result"] not in _OF_KUBERNETES or is_wide:
        yield "Request", list(sections.sources(container, is_pod=bool(container["pod"])))
        yield "Devices", list(sections.devices(container, is_wide=is_wide))
    if is_made or is_wide:
        yield "Capabilities", list(sections.capabilities(container, is_wide=is_wide))
    if container["result"] not in _OF_KUBERNETES or is_wide:
        yield "Requirements", list(sections.requirements(container, is_wide=is_wide))
    if is_made or is_wide:
        yield "Memory", list(sections.memory(container))
        yield "Isolation", list(sections.isolation(container))
        yield "config.json", list(sections.config(container, is_wide=is_wide))
        yield "Root file system", list(sections.root(container, is_wide=is_wide))
        if container["gpus"] or is_wide:
            yield "Given by", [container["route"]["note"]]
    yield "Ignored", container["ignored"]
    yield "Warnings", list(sections.warnings(container))
    yield "Warnings when it started", list(sections.start_warnings(container))
