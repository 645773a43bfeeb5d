# SPDX-License-Identifier: Apache-2.0
"""The sections of the text of explain: the parts of the document of one container."""

from __future__ import annotations

import os
from typing import Any

from gpuhook.entry.create import WRAPPER
from gpuhook.host.text_table import counted
from gpuhook.request.memory_request import amount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_BY = {
    "name": "by that name",
    "alias": "another name of the same device",
    "short-form": "a short form of its name",
    "replica": "a replica of it",
    "all": "selected by `all`",
}
_FILES_ONLY = "the driver's files, no device"


def refusal(fault: dict[str, str] | None) -> Iterator[str]:
    if fault is not None:
        yield f"{fault['code']}: {fault['message']}"
        yield f"hint: {fault['hint']}"
        yield f"more: gpuhook explain {fault['code']}"


def sources(container: dict[str, Any], *, is_pod: bool) -> Iterator[str]:
    """Yield the sources that name devices in the order of precedence, with their results."""
    # With a fault, the sources may be unreadable.
    if not container["sources"] and not is_pod and container["fault"] is None:
        yield "no variable, annotation or mount names a device"
    for one in container["sources"]:
        why = one["reason"] or one["origin"]
        because = f": {why}" if why else ""
        yield f"{one['result']:<8}{_requests(one)} {listed(one['names'])}{because}"
    for one in container["extras"]:
        because = f": {one['reason']}" if one["reason"] else ""
        yield f"{one['result']:<8}{_requests(one)} {listed(one['names'])} in addition{because}"


def _requests(source: dict[str, Any]) -> str:
    return f"{source['where']} {'request' if ', ' in source['where'] else 'requests'}"


def capabilities(container: dict[str, Any], *, is_wide: bool) -> Iterator[str]:
    """Yield the driver capabilities, their rule, and what other capabilities would add."""
    found = container["capabilities"]
    if not found["effective"] and not found["left_out"]:
        return
    yield f"{found['rule']} -> {', '.join(found['effective']) or 'none'}"
    by_need: dict[str, list[str]] = {}
    for one in found["left_out"]:
        paths = by_need.setdefault(" or ".join(one["needed_by"]), [])
        if one["path"] not in paths:
            paths.append(one["path"])
    if is_wide:
        for need, paths in by_need.items():
            yield f"left out, it needs {need}:"
            yield from (f"  {path}" for path in paths)
    elif by_need:
        counts = [f"{counted(len(paths), 'file')} of {need}" for need, paths in by_need.items()]
        yield f"omitted: {', '.join(counts)} (-o wide shows all)"


def devices(container: dict[str, Any], *, is_wide: bool) -> Iterator[str]:
    """Yield each name, its device and the line of its spec; then the edits for all devices."""
    fatal = container["fault"]
    for one in container["devices"]:
        if one["fault"]:
            is_printed = fatal is not None and fatal["message"] == one["fault"]["message"]
            why = "" if is_printed else f": {one['fault']['message']}"
            yield f"{one['name']} -> nothing: {one['fault']['code']}{why}"
        elif one["device"] is None:
            yield f"{one['name']} -> {_FILES_ONLY}"
        else:
            yield f"{one['name']} -> {one['device']}, {_BY[one['by']]}"
            yield f"  from {_place(one)}: {_edits(one)}"
            yield from _files(one, container, is_wide=is_wide)
    if fatal is not None and not is_wide:
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
    libraries = sum(".so" in os.path.basename(path) for path in paths)
    programs = sum("/bin/" in path or "/sbin/" in path for path in paths)
    rest = len(paths) - libraries - programs
    kinds = (
        (libraries, counted(libraries, "library", "libraries")),
        (programs, counted(programs, "program")),
        (rest, counted(rest, "other") if libraries or programs else ""),
    )
    shown = ", ".join(word for count, word in kinds if count and word)
    return counted(len(paths), "mount") + (f" ({shown})" if shown else "")


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
    """Yield the requirements of the image: the met alternative, or all unmet ones."""
    found = container["requirements"]
    if not found["items"]:
        return
    for one in found["items"]:
        yield f"{one['verdict']:<8}{one['variable']}" + (f"={one['text']}" if is_wide else "")
        shown = one["alternatives"] if is_wide else _relevant(one)
        for alternative in shown:
            words = " and ".join(_term(term, alternative) for term in alternative["terms"])
            yield f"  {alternative['verdict']:<8}{words}"
        rest = len(one["alternatives"]) - len(shown)
        if rest:
            is_met = one["verdict"] == "met"
            why = "not needed" if is_met else "for GPUs of other brands"
            yield f"  and {counted(rest, 'alternative')} more, {why} (-o wide shows all)"
    yield found["note"]


def _relevant(one: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the met alternative, else the alternatives for GPUs of this brand."""
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
    # The line begins with the verdict of the alternative: only a different one is repeated.
    own = "" if term["verdict"] == alternative["verdict"] else f"{term['verdict']}: "
    return f"{term['term']} ({own}{whose} {term['is']})"


def memory(container: dict[str, Any]) -> Iterator[str]:
    for one in container["memory"]:
        limit = "no limit" if one["limit"] is None else f"at most {amount(one['limit'])}"
        kept = f", {amount(one['guaranteed'])} guaranteed" if one["guaranteed"] else ""
        yield f"{one['gpu']}: {limit}{kept}: {one['trouble'] or one['note']}"


def isolation(container: dict[str, Any]) -> Iterator[str]:
    """Yield the sharing and the isolation of its GPUs, except those in the Kubernetes section."""
    names = {one["gpu"]: gpu_name(one) for one in container["gpus"]}
    allocated = _allocated_gpus(container)
    by_answers: dict[tuple[Any, ...], list[str]] = {}
    for one in container["isolation"]:
        if one["gpu"] in allocated:
            continue
        how = one["note"] or (
            "exclusive" if one["sharing"] == "none" else f"shared by {one['sharing']}"
        )
        answers = (how, *one["isolation"].items())
        by_answers.setdefault(answers, []).append(names.get(one["gpu"], one["gpu"]))
    for answers, gpus in by_answers.items():
        yield f"{listed(gpus)}: {answers[0]}"
        yield from (f"  {name}: {text}" for name, text in answers[1:])


def _allocated_gpus(container: dict[str, Any]) -> set[str]:
    allocation = (container["pod"] or {}).get("allocation") or {}
    return {one["uuid"] for given in allocation.get("resources", ()) for one in given["devices"]}


def config(container: dict[str, Any], *, is_wide: bool) -> Iterator[str]:
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
    """Yield the changes of the root file system before the container starts."""
    changes = container["changes"]
    found = changes["root"]
    if is_wide or len(found) <= SHOWN:
        yield from (f"+ {line}" for line in found)
    else:
        links = [line for line in found if line.startswith("link ")]
        if links:
            names = [os.path.basename(line.split(" ")[1]) for line in links]
            yield (
                f"+ {counted(len(links), 'link')}: {', '.join(names[:4])}, ... (-o wide shows all)"
            )
        yield from (f"+ {line}" for line in found if line not in links)
    if found and not changes["root_is_known"]:
        yield "for an empty root file system: the real one is not available"


def warnings(container: dict[str, Any]) -> Iterator[str]:
    """Yield the warnings that gpuhook-runtime would log, without those of the container's start."""
    known = [(one["code"], one["message"]) for one in container["start_warnings"]]
    for one in container["warnings"]:
        if (one["code"], one["message"]) not in known:
            yield f"{one['code']}: {one['message']}"
            yield f"  hint: {one['hint']}"


def start_warnings(container: dict[str, Any]) -> Iterator[str]:
    """Yield the warnings from the container's start, with the present hints."""
    hints = {(one["code"], one["message"]): one["hint"] for one in container["warnings"]}
    for one in container["start_warnings"]:
        yield f"{one['code']}: {one['message']}"
        if hint := hints.get((one["code"], one["message"])):
            yield f"  hint: {hint}"


SHOWN = 6  # items of a list in a line
_MOST_GPUS = 16


def gpus_of(gpus: Sequence[dict[str, Any]]) -> str:
    """Return a display name of GPUs: "GPU 0 (Tesla T4)", "8 GPUs: 0, 1, ... (NVIDIA H100)"."""
    by_model: dict[str | None, list[dict[str, Any]]] = {}
    for one in gpus:
        by_model.setdefault(one["model"], []).append(one)
    return " and ".join(_alike(found) for found in by_model.values()) or "GPUs"


def _alike(gpus: Sequence[dict[str, Any]]) -> str:
    if len(gpus) == 1:
        return gpu_name(gpus[0])
    is_divided = all(":" in (one["index"] or "") for one in gpus)
    is_mig = any(one["gpu"] == one["index"] or one["gpu"].startswith("MIG-") for one in gpus)
    kind = "GPU" if not is_divided else "MIG instance" if is_mig else "partition"
    names = listed((one["index"] or one["gpu"] for one in gpus), _MOST_GPUS)
    model = gpus[0]["model"]
    return f"{counted(len(gpus), kind)}: {names}" + (f" ({model})" if model else "")


def gpu_name(gpu: dict[str, Any]) -> str:
    """Return a display name of a GPU or an instance: index and model, else UUID or CDI name."""
    if gpu["index"] is None:
        return f"GPU {gpu['gpu']}" if gpu["gpu"][:1].isdigit() else str(gpu["gpu"])
    return f"GPU {gpu['index']}" + (f" ({gpu['model']})" if gpu["model"] else "")


def listed(found: Iterable[str], most: int = SHOWN) -> str:
    """Return the first `most` of a list, and the total number."""
    names = list(dict.fromkeys(found))
    more = f", ... {len(names)} in total" if len(names) > most else ""
    return ", ".join(names[:most]) + more
