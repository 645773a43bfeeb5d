# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes section of explain: a container's request, the objections and the allocation."""

from __future__ import annotations

from typing import Any

from gpuhook.explain.text.explain_sections import gpu_name, listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_WORST_FIRST = ("refused", "pending", "warning")
_VERDICTS = {"matches": "matches", "differs": "does not match", "not-judged": "not judged"}
_MOST_UNITS = 8
_MOST_MOUNTS = 4
_MOST_NODES = 12


def lines(pod: dict[str, Any], *, is_wide: bool = False) -> Iterator[str]:
    """Yield the lines on the document of a pod's container; only a wide text has all mounts."""
    for name, count in pod["gpus"].items():
        yield f"requests {count} of {name}"
    if not pod["gpus"] and not pod["claims"]:
        yield "requests no GPU in its resources"
    if pod["runtime_class"]:
        yield f"runs with runtimeClassName {pod['runtime_class']}"
    yield from objection_lines(pod["objections"])
    yield from _placement(pod["scheduling"])
    for note in pod["notes"]:
        yield f"note: {note}"
    if pod["allocation"] and pod["allocation"]["resources"]:
        yield from _allocation(pod["allocation"], is_wide=is_wide)


def objection_lines(objections: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines on objections, the worst first."""
    for one in sorted(objections, key=lambda one: _WORST_FIRST.index(one["result"])):
        yield f"{one['result']} by the {one['by']}: {one['said']}"
        yield f"  at {one['where']}; write instead: {one['instead']}"


def _placement(scheduling: dict[str, Any] | None) -> Iterator[str]:
    """Yield the requirements of the node; objections have those that the node does not meet."""
    judged = scheduling["requirements"] if scheduling else ()
    for one in judged:
        verdict = _VERDICTS[one["verdict"]]
        yield f"{one['origin']} {one['requirement']}: {verdict}, {one['reason']}"
    if judged and scheduling:
        yield f"  compared with {scheduling['node']}"


def _allocation(given: dict[str, Any], *, is_wide: bool) -> Iterator[str]:
    for resource in given["resources"]:
        yield from _resource(resource)
    for name, value in given["env"].items():
        yield f"the device plugin sets {name}={value}"
    mounts = given["mounts"]
    if is_wide or len(mounts) <= _MOST_MOUNTS:
        for mount in mounts:
            yield f"the device plugin mounts {mount['source']} at {mount['path']}"
    else:
        some = ", ".join(mount["path"] for mount in mounts[:2])
        yield f"the device plugin mounts {len(mounts)} files: {some}, ... (-o wide shows all)"
    if given["devices"]:
        paths = listed((device["path"] for device in given["devices"]), _MOST_NODES)
        yield f"the device plugin passes {paths}"
    for name, value in given["annotations"].items():
        yield f"the device plugin annotates {name}={value}"
    if given["cdi_devices"]:
        names = listed(given["cdi_devices"], _MOST_UNITS)
        yield f"the device plugin passes the CDI devices {names} to the engine"


def _resource(one: dict[str, Any]) -> Iterator[str]:
    shared = "" if one["sharing"] == "none" else f", shared by {one['sharing']}"
    what = f"{len(one['units'])} of {one['resource']}"
    gpus = listed(map(gpu_name, one["devices"]), _MOST_UNITS)
    yield f"the device plugin allocates {what}{shared}: {gpus}"
    yield f"  as {listed(one['units'], _MOST_UNITS)}"
    for note in one["isolation"]:
        some = f" (GPU {', '.join(note['devices'])})" if note["devices"] else ""
        for question, sentence in note.items():
            if question not in ("devices", "hint"):
                yield f"  {question}{some}: {sentence}"
        if note["hint"]:
            yield f"  to limit the memory: {note['hint']}"
