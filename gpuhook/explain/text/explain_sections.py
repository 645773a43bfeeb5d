# SPDX-License-Identifier: Apache-2.0
"""The sections of a trace: what the document says of one container, each part as lines."""

from __future__ import annotations

import os
from typing import Any

from gpuhook.explain.text.explain_terms import SHOWN, called, counted, listed
from gpuhook.request.memory_request import amount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

WRAPPER = "wrapper"
_BY = {
    "name": "by that name",
    "alias": "another name of the same device",
    "short-form": "a short form of its name",
    "replica": "of which it is a replica",
    "all": "which is what `all` means",
}
_FILES_ONLY = "the driver's files, no device"


def refusal(told: dict[str, str] | None) -> Iterator[str]:
    """Yield why the container would not start."""
    if told is not None:
        yield f"{told['code']}: {told['message']}"
        yield f"hint: {told['hint']}"
        yield f"more: gpuhook explain {told['code']}"


def sources(container: dict[str, Any], *, is_pod: bool) -> Iterator[str]:
    """Yield who names devices, in the order in which they count, and what came of each."""
    # Where there is a fault, the sources may be what cannot be read.
    if not container["sources"] and not is_pod and container["fault"] is None:
        yield "no variable, annotation or mount names a device"
    for one in container["sources"]:
        why = one["reason"] or one["origin"]
        because = f": {why}" if why else ""
        yield f"{one['result']:<8}{_asking(one)} for {listed(one['names'])}{because}"
    for one in container["extras"]:
        because = f": {one['reason']}" if one["reason"] else ""
        yield f"{one['result']:<8}{_asking(one)} beside for {listed(one['names'])}{because}"


def _asking(source: dict[str, Any]) -> str:
    return f"{source['where']} {'ask' if ', ' in source['where'] else 'asks'}"


def capabilities(container: dict[str, Any], *, is_wide: bool) -> Iterator[str]:
    """Yield which parts of the driver it gets, by which rule, and what others would bring."""
    told = container["capabilities"]
    if not told["effective"] and not told["left_out"]:
        return
    yield f"{told['rule']} -> {', '.join(told['effective']) or 'none'}"
    by_need: dict[str, list[str]] = {}
    for one in told["left_out"]:
        paths = by_need.setdefault(" or ".join(one["needed_by"]), [])
        if one["path"] not in paths:
            paths.append(one["path"])
    if is_wide:
        for need, paths in by_need.items():
            yield f"left out, it needs {need}:"
            yield from (f"  {path}" for path in paths)
    elif by_need:
        counts = [f"{counted(len(paths), 'file')} of {need}" for need, paths in by_need.items()]
        yield f"left out: {', '.join(counts)} (-o wide has all)"


def devices(container: dict[str, Any], *, is_wide: bool) -> Iterator[str]:
    """Yield each name, what it means and where that is written; then what comes with any."""
    of_all = container["fault"]
    for one in container["devices"]:
        if one["fault"]:
            is_told = of_all is not None and of_all["message"] == one["fault"]["message"]
            why = "" if is_told else f": {one['fault']['message']}"
            yield f"{one['name']} -> nothing: {one['fault']['code']}{why}"
        elif one["device"] is None:
            yield f"{one['name']} -> {_FILES_ONLY}"
        else:
            yield f"{one['name']} -> {one['device']}, {_BY[one['by']]}"
            yield f"  from {_place(one)}: {_edits(one)}"
            yield from _files(one, container, is_wide=is_wide)
    if of_all is not None and not is_wide:
        return
    for one in container["specs"]:
        which = "with any device" if container["gpus"] else "without a device"
        yield f"{which} of {one['kind']}"
        yield f"  from {_place(one)}: {_edits(one)}"
        yield from _files(one, container, is_wide=is_wide)


def _place(one: dict[str, Any]) -> str:
    return f"{one['spec']}:{one['line']}" if one["line"] else str(one["spec"])


def _edits(one: dict[str, Any]) -> str:
    parts = [listed(one["nodes"], most=8)] if one["nodes"] else []
    if one["mounts"]:
        parts.append(_kinds([mount["path"] for mount in one["mounts"]]))
    return "; ".join([*parts, *(f"env {entry}" for entry in one["env"])]) or "nothing"


def _kinds(paths: list[str]) -> str:
    """Return how many mounts there are, and of what."""
    names = [os.path.basename(path) for path in paths]
    libraries = sum(".so" in name for name in names)
    programs = sum("/bin/" in path or "/sbin/" in path for path in paths)
    rest = len(paths) - libraries - programs
    kinds = (
        (libraries, counted(libraries, "library", "libraries")),
        (programs, counted(programs, "program")),
        (rest, counted(rest, "other") if libraries or programs else ""),
    )
    told = ", ".join(word for count, word in kinds if count and word)
    return counted(len(paths), "mount") + (f" ({told})" if told else "")


def _files(one: dict[str, Any], container: dict[str, Any], *, is_wide: bool) -> Iterator[str]:
    if is_wide:
        for mount in one["mounts"]:
            source = "" if mount["source"] == mount["path"] else f" (host: {mount['source']})"
            yield f"  mount {mount['path']}{source}"
    added = {hook["path"] for hook in container["changes"]["hooks"]}
    is_done = container["route"]["name"] == WRAPPER
    for hook in one["hooks"]:
        itself = is_done and hook["path"] not in added
        instead = "; gpuhook-runtime does its work itself" if itself else ""
        yield f"  hook {_hook(hook, is_wide=is_wide)}{instead}"


def _hook(hook: dict[str, Any], *, is_wide: bool) -> str:
    args = hook["args"][1:] if is_wide else hook["args"][1:2]
    more = "" if is_wide or len(hook["args"]) < 3 else " ..."
    return f"{hook['stage']}: {' '.join((hook['path'], *args))}{more}"


def requirements(container: dict[str, Any], *, is_wide: bool) -> Iterator[str]:
    """Yield what the image requires: the alternative that holds, or all that do not."""
    told = container["requirements"]
    if not told["items"]:
        return
    for one in told["items"]:
        yield f"{one['verdict']:<8}{one['variable']}" + (f"={one['text']}" if is_wide else "")
        shown = one["alternatives"] if is_wide else _telling(one)
        for alternative in shown:
            words = " and ".join(_term(term, alternative) for term in alternative["terms"])
            yield f"  {alternative['verdict']:<8}{words}"
        rest = len(one["alternatives"]) - len(shown)
        if rest:
            is_met = one["verdict"] == "met"
            why = "which need not hold" if is_met else "for GPUs of other brands"
            yield f"  and {counted(rest, 'alternative')} more, {why} (-o wide has all)"
    yield told["note"]


def _telling(one: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the alternatives that matter: the one that holds, else those for GPUs like these."""
    found: list[dict[str, Any]] = one["alternatives"]
    met = [alternative for alternative in found if alternative["verdict"] == "met"]
    if met and one["verdict"] == "met":
        return met[:1]
    own = [alternative for alternative in found if not _is_for_others(alternative)]
    return own or found


def _is_for_others(alternative: dict[str, Any]) -> bool:
    return any(
        term["term"].lower().startswith("brand") and term["verdict"] == "unmet"
        for term in alternative["terms"]
    )


def _term(term: dict[str, Any], alternative: dict[str, Any]) -> str:
    if term["trouble"]:
        return f"{term['term']} ({term['trouble']})"
    if not term["is"]:
        of = f" of {term['gpu']}" if term["gpu"] else ""
        return f"{term['term']} (not known{of})"
    whose = f"{term['gpu']} has" if term["gpu"] else "it is"
    # Before the alternative stands what becomes of it: said again only of a term that differs.
    own = "" if term["verdict"] == alternative["verdict"] else f"{term['verdict']}: "
    return f"{term['term']} ({own}{whose} {term['is']})"


def memory(container: dict[str, Any]) -> Iterator[str]:
    """Yield the limit of each GPU's memory, and who sets it."""
    for one in container["memory"]:
        limit = "no limit" if one["limit"] is None else f"at most {amount(one['limit'])}"
        kept = f", {amount(one['guaranteed'])} guaranteed" if one["guaranteed"] else ""
        yield f"{one['gpu']}: {limit}{kept}: {one['trouble'] or one['note']}"


def isolation(container: dict[str, Any]) -> Iterator[str]:
    """Yield how its GPUs are shared and what is isolated; not of what its manifest's part tells."""
    names = {one["gpu"]: called(one) for one in container["gpus"]}
    told = _told_with_pod(container)
    by_answers: dict[tuple[Any, ...], list[str]] = {}
    for one in container["isolation"]:
        if one["gpu"] in told:
            continue
        how = one["note"] or ("alone" if one["sharing"] == "none" else f"by {one['sharing']}")
        answers = (how, *one["isolation"].items())
        by_answers.setdefault(answers, []).append(names.get(one["gpu"], one["gpu"]))
    for answers, gpus in by_answers.items():
        yield f"{listed(gpus)}: {answers[0]}"
        yield from (f"  {name}: {text}" for name, text in answers[1:])


def _told_with_pod(container: dict[str, Any]) -> set[str]:
    allocation = (container["pod"] or {}).get("allocation") or {}
    return {one["uuid"] for given in allocation.get("resources", ()) for one in given["devices"]}


def config(container: dict[str, Any], *, is_wide: bool) -> Iterator[str]:
    """Yield what changes of config.json."""
    changes = container["changes"]
    for sign, key in (("-", "env_replaced"), ("+", "env")):
        yield from (f"{sign} env {entry}" for entry in changes[key])
    if changes["nodes"]:
        nodes = f", allowed in the device cgroup: {listed(changes['nodes'], 64 if is_wide else 8)}"
        yield f"+ {counted(len(changes['nodes']), 'device node')}{nodes}"
    if changes["mounts"]:
        yield f"+ {_kinds(changes['mounts'])}"
    for sign, key in (("-", "hooks_removed"), ("+", "hooks")):
        yield from (f"{sign} hook {_hook(hook, is_wide=is_wide)}" for hook in changes[key])


def root(container: dict[str, Any], *, is_wide: bool) -> Iterator[str]:
    """Yield what is made in the root file system before the container starts."""
    changes = container["changes"]
    found = changes["root"]
    if is_wide or len(found) <= SHOWN:
        yield from (f"+ {line}" for line in found)
    else:
        links = [line for line in found if line.startswith("link ")]
        if links:
            names = [os.path.basename(line.split(" ")[1]) for line in links]
            yield f"+ {counted(len(links), 'link')}: {', '.join(names[:4])}, ... (-o wide has all)"
        yield from (f"+ {line}" for line in found if line not in links)
    if found and not changes["root_is_known"]:
        yield "as in an empty one: it is not here, and what an image has of its own is not seen"


def warnings(container: dict[str, Any]) -> Iterator[str]:
    """Yield what gpuhook-runtime would log, and did not log when the container started."""
    known = [(one["code"], one["message"]) for one in container["start_warnings"]]
    for one in container["warnings"]:
        if (one["code"], one["message"]) not in known:
            yield f"{one['code']}: {one['message']}"
            yield f"  hint: {one['hint']}"


def start_warnings(container: dict[str, Any]) -> Iterator[str]:
    """Yield what gpuhook reported when the container started, with the hint that is known now."""
    hints = {(one["code"], one["message"]): one["hint"] for one in container["warnings"]}
    for one in container["start_warnings"]:
        yield f"{one['code']}: {one['message']}"
        hint = hints.get((one["code"], one["message"]))
        if hint:
            yield f"  hint: {hint}"
