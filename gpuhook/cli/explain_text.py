# SPDX-License-Identifier: Apache-2.0
"""The document gpuhook/explain/v1 as a trace that people read from top to bottom."""

from __future__ import annotations

from typing import Any

from gpuhook.errors import printable
from gpuhook.grant.amounts import amount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MAX_LINE = 4096
_SHOWN = 6  # of a list: the documents have all of them
_RESULTS = {
    "gets": "it gets its GPUs",
    "starts-without": "it starts without a GPU",
    "refused": "it does not start",
    "nothing": "it asks for nothing, and gets nothing",
}
_BY = {
    "name": "by that name",
    "alias": "as generate-cdi noted: another name of the same GPU",
    "replica": "a replica of it",
    "all": "by `all`",
    "files-only": "the driver's files, no device",
}


def lines(document: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the trace."""
    for line in (*_node(document["node"]), *_containers(document["containers"])):
        yield printable(line, _MAX_LINE)


def of_code(told: dict[str, Any]) -> Iterator[str]:
    """Yield the lines on the code of a fault."""
    yield f"{told['code']}: {told['message']}"
    yield f"about: {told['about']}"
    yield f"hint: {told['hint']}"


def _node(node: dict[str, Any]) -> Iterator[str]:
    driver = f", driver {node['driver']}" if node["driver"] else ""
    cuda = f", CUDA {node['cuda']}" if node["cuda"] else ""
    yield f"Node: {node['where']} ({node['by']}){driver}{cuda}"
    for note in node["notes"]:
        yield f"  note: {note}"
    for one in node["broken"]:
        yield f"  broken spec: {one['message']}"


def _containers(containers: list[dict[str, Any]]) -> Iterator[str]:
    for container in containers:
        yield ""
        yield f"Container: {container['where']}: {_RESULTS[container['result']]}"
        for title, found in _sections(container):
            if found:
                yield ""
                yield title
                for line in found:
                    yield f"  {line}"


def _sections(container: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    yield "Supposed", container["notes"]
    yield "Refused", list(_fault(container["fault"]))
    yield "Request", list(_sources(container["sources"]))
    yield "Capabilities", list(_capabilities(container["capabilities"]))
    yield "Requirements", list(_requirements(container["requirements"]))
    yield "Devices", list(_devices(container["devices"]))
    yield "With each device of", list(_specs(container["specs"]))
    yield "config.json", list(_config(container["changes"]))
    yield "Root file system", list(_root(container["changes"]))
    yield "Memory", list(_memory(container["memory"]))
    yield "Isolation", list(_isolation(container["isolation"]))
    yield "Route", [container["route"]["note"]]
    yield "Ignored", container["ignored"]
    yield "Warnings", [f"{one['code']}: {one['message']}" for one in container["warnings"]]


def _fault(fault: dict[str, str] | None) -> Iterator[str]:
    if fault is not None:
        yield f"{fault['code']}: {fault['message']}"
        yield f"hint: {fault['hint']}"


def _sources(sources: list[dict[str, Any]]) -> Iterator[str]:
    if not sources:
        yield "no variable, annotation or mount names a device"
    for one in sources:
        because = f": {one['reason']}" if one["reason"] else ""
        yield f"{one['result']:<8}{one['where']} asks for {_listed(one['names'])}{because}"


def _capabilities(told: dict[str, Any]) -> Iterator[str]:
    if not told["effective"]:
        return
    asked = "not said" if told["asked"] is None else f"NVIDIA_DRIVER_CAPABILITIES={told['asked']}"
    yield f"{asked} -> {', '.join(told['effective'])}"
    by_need: dict[str, list[str]] = {}
    for one in told["left_out"]:
        by_need.setdefault(" or ".join(one["needed_by"]), []).append(one["path"])
    for need, paths in by_need.items():
        yield f"left out, for {need}: {_listed(paths)}"


def _requirements(told: dict[str, Any]) -> Iterator[str]:
    if not told["items"]:
        return
    for one in told["items"]:
        yield f"{one['verdict']:<8}{one['variable']}={one['text']}"
        for alternative in one["alternatives"]:
            words = " and ".join(_term(term) for term in alternative["terms"])
            yield f"  {alternative['verdict']:<8}{words}"
    yield told["note"]


def _term(term: dict[str, Any]) -> str:
    if term["trouble"]:
        return f"{term['term']} ({term['trouble']})"
    whose = f" of {term['gpu']}" if term["gpu"] else ""
    return f"{term['term']} ({term['verdict']}: it is {term['is'] or 'unknown'}{whose})"


def _devices(devices: list[dict[str, Any]]) -> Iterator[str]:
    for one in devices:
        if one["fault"]:
            yield f"{one['name']} -> nothing: {one['fault']['code']}: {one['fault']['message']}"
            continue
        if one["device"] is None:
            yield f"{one['name']} -> {_BY[one['by']]}"
            continue
        yield f"{one['name']} -> {one['device']}, {_BY[one['by']]}"
        yield f"  {_place(one)}"
        yield from (f"  {line}" for line in _edits(one))


def _specs(specs: list[dict[str, Any]]) -> Iterator[str]:
    for one in specs:
        yield _place(one)
        yield from (f"  {line}" for line in _edits(one))


def _place(one: dict[str, Any]) -> str:
    return f"{one['spec']}:{one['line']}" if one["line"] else str(one["spec"])


def _edits(one: dict[str, Any]) -> Iterator[str]:
    if one["nodes"]:
        yield f"nodes: {_listed(one['nodes'], most=16)}"
    if one["mounts"]:
        count, paths = len(one["mounts"]), [mount["path"] for mount in one["mounts"]]
        yield f"{_counted(count, 'mount')}: {_listed(paths)}"
    if one["env"]:
        yield f"env: {_listed(one['env'])}"
    for hook in one["hooks"]:
        yield f"hook: {_hook(hook)}"


def _config(changes: dict[str, Any]) -> Iterator[str]:
    for sign, key in (("-", "env_replaced"), ("+", "env")):
        yield from (f"{sign} env {entry}" for entry in changes[key])
    if changes["nodes"]:
        yield f"+ {_counted(len(changes['nodes']), 'device node')}, allowed in the device cgroup"
    if changes["mounts"]:
        yield f"+ {_counted(len(changes['mounts']), 'mount')}"
    yield from (f"- hook {hook['stage']} {_hook(hook)}" for hook in changes["hooks_removed"])
    yield from (f"+ hook {hook['stage']} {_hook(hook)}" for hook in changes["hooks"])


def _root(changes: dict[str, Any]) -> Iterator[str]:
    found = changes["root"]
    yield from (f"+ {line}" for line in found[:_SHOWN])
    if len(found) > _SHOWN:
        yield f"... and {len(found) - _SHOWN} more (-o json has all)"
    if found and not changes["root_is_known"]:
        yield "as for an empty one: it is not here, and what an image has of its own is not seen"


def _hook(hook: dict[str, Any]) -> str:
    words = " ".join(hook["args"][:4])
    return f"{hook['path']} ({words}{' ...' if len(hook['args']) > 4 else ''})"


def _memory(limits: list[dict[str, Any]]) -> Iterator[str]:
    for one in limits:
        limit = "no limit" if one["limit"] is None else f"at most {amount(one['limit'])}"
        kept = f", {amount(one['guaranteed'])} guaranteed" if one["guaranteed"] else ""
        yield f"{one['gpu']}: {limit}{kept}: {one['trouble'] or one['note']}"


def _isolation(told: list[dict[str, Any]]) -> Iterator[str]:
    by_answers: dict[tuple[Any, ...], list[str]] = {}
    for one in told:
        note = [("note", one["note"])] if one["note"] else []
        answers = (one["sharing"], *note, *one["isolation"].items())
        by_answers.setdefault(answers, []).append(one["gpu"])
    for answers, gpus in by_answers.items():
        yield f"{_listed(gpus, most=16)}: sharing {answers[0]}"
        yield from (f"  {name}: {text}" for name, text in answers[1:])


def _listed(found: Iterable[str], most: int = _SHOWN) -> str:
    names = list(dict.fromkeys(found))
    more = f", ... {len(names)} in all" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")
