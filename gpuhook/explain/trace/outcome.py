# SPDX-License-Identifier: Apache-2.0
"""The result for a container, and the integration that adds its GPUs.

A pod is created, scheduled and admitted as a whole: a fault of one of its containers prevents the
others from starting too.
"""

from __future__ import annotations

from typing import Any

from gpuhook.entry.create import ENGINE, WRAPPER
from gpuhook.explain.pods.pod_requests import PENDING
from gpuhook.explain.pods.pod_requests import REFUSED as OBJECTED
from gpuhook.request import parse
from gpuhook.usage import injection_route
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.explain.question import Question
    from gpuhook.explain.simulate import SimulatedAnswer

GETS, FILES_ONLY, STARTS_WITHOUT = "gets", "files-only", "starts-without"
REFUSED, NOTHING, UNKNOWN = "refused", "nothing", "unknown"
NOT_CREATED, NEVER_SCHEDULED = "not-created", "pending"  # by Kubernetes
CDI, DEVICE_PLUGIN, DRA, NONE = "cdi", "device-plugin", "dra", "none"
UNKNOWN_ROUTE = injection_route.UNKNOWN
_NODES_ONLY = "nodes-only"  # the plugin's devices need no files
_LIMITED = "limited"  # the same, with a memory limit
_OURS = "ours"  # the devices need no files, and gpuhook's spec or plugin has them
_HOOK = "hook"  # refuses a container that the runtime does not see
NOT_STARTED = (REFUSED, NOT_CREATED, NEVER_SCHEDULED)
SENTENCES = {
    GETS: "it gets these",
    FILES_ONLY: "it gets the driver's files, but no GPU",
    STARTS_WITHOUT: "it starts without a GPU",
    REFUSED: "it does not start",
    NOTHING: "it requests nothing, and gets nothing",
    UNKNOWN: "its GPUs are unknown here",
    NOT_CREATED: "Kubernetes does not create it",
    NEVER_SCHEDULED: "Kubernetes does not schedule it to this node",
}
_NOTES = {
    WRAPPER: "gpuhook-runtime edits config.json before the low-level runtime starts",
    ENGINE: "the engine has applied a CDI spec of gpuhook; gpuhook-runtime checks it and writes"
    " the ledger",
    DEVICE_PLUGIN: "the device plugin passes the devices and the driver's files to the kubelet; "
    "the runtime adds nothing",
    DRA: "the driver of Dynamic Resource Allocation writes a CDI spec for the claim, and the "
    "engine applies it",
    _LIMITED: "the device plugin passes the device nodes to the kubelet; gpuhook-runtime limits "
    "the memory",
    _NODES_ONLY: "the device plugin passes the device nodes to the kubelet, and the driver has no "
    "files for containers; the runtime adds nothing",
    UNKNOWN_ROUTE: "config.json has the device nodes; gpuhook did not add them",
    _OURS: "config.json has the device nodes of a CDI spec or a device plugin of gpuhook",
    CDI: "config.json has the edits of a CDI spec, which the engine applied",
    NONE: "gpuhook-runtime does not change config.json",
    REFUSED: "gpuhook-runtime fails with that error, and the container is not created",
    _HOOK: "gpuhook-hook, which the engine's CDI spec names, fails with that error, and the "
    "container is not created",
}
_BY_HOOK = "{}'s hook mounted the devices and the driver's files into the container"


def outcomes(answers: Sequence[SimulatedAnswer]) -> list[dict[str, Any]]:
    """Return the outcome of each container: its `result`, one of SENTENCES, and `because_of`.

    `because_of` are containers of the same pod whose faults prevent this one from starting.
    """
    objected: dict[int, dict[str, str]] = {}
    for answer in answers:
        asked, word = answer.question.asked, _by_kubernetes(answer.question)
        if asked is not None and word:
            objected.setdefault(_pod(answer), {})[asked.container] = word
    return [_outcome(answer, objected.get(_pod(answer), {})) for answer in answers]


def _by_kubernetes(question: Question) -> str:
    """Return NOT_CREATED, NEVER_SCHEDULED, or "" if Kubernetes runs the container."""
    found = {one.result for one in question.objections}
    if OBJECTED in found:
        return NOT_CREATED
    return NEVER_SCHEDULED if PENDING in found else ""


def _is_open(question: Question) -> bool:
    """Return whether the devices of a pod are unknown.

    The node's GPUs are unknown, or a driver of Dynamic Resource Allocation selects devices.
    """
    asked = question.asked
    if asked is None:
        return False
    if asked.claims and question.claimed is None:
        return True
    return bool(asked.gpus) and question.allocated is None


def route(answer: SimulatedAnswer) -> dict[str, str]:
    """Return the integration that adds the GPUs: a name and a sentence."""
    if answer.fault is not None:
        by = _HOOK if answer.question.plugin.cdi_devices else REFUSED
        return {"name": NONE, "note": _NOTES[by]}
    name = answer.edited.route or _other_route(answer)
    named = ", ".join(answer.question.plugin.cdi_devices)
    if named:
        return {"name": CDI, "note": f"the engine applies the CDI edits of {named}"}
    return {"name": name, "note": _note(name, answer)}


def _note(name: str, answer: SimulatedAnswer) -> str:
    """Return the sentence on an integration, or on the hook of a vendor with this name."""
    titles = {vendor.traces.HOOK_INJECTOR: vendor.title for vendor in vendors()}
    return _BY_HOOK.format(titles[name]) if name in titles else _NOTES[_note_of(name, answer)]


def _note_of(name: str, answer: SimulatedAnswer) -> str:
    """Return the key of the note on an integration, the name itself for most."""
    plugin = answer.question.plugin
    if name == CDI and answer.held is not None and _is_void(answer):
        return _OURS
    if name not in (DEVICE_PLUGIN, ENGINE) or not plugin.is_complete or plugin.allocation.has_files:
        return name
    is_limited = bool(answer.edited.memory) or any(one.limits for one in plugin.answers)
    return _LIMITED if is_limited else _NODES_ONLY


def _is_void(answer: SimulatedAnswer) -> bool:
    """Return whether the variable of a vendor without files has the value that gpuhook sets."""
    environment = parse.environment(answer.before)
    own = [one.vocabulary for one in vendors() if not one.traces.HAS_FILES]
    return any(environment.get(words.devices_env) == "void" for words in own)


def _pod(answer: SimulatedAnswer) -> int:
    """Return the position of the pod in the manifest, -1 outside of pods."""
    asked = answer.question.asked
    return asked.position if asked else -1


def _outcome(answer: SimulatedAnswer, objected: dict[str, str]) -> dict[str, Any]:
    asked = answer.question.asked
    for word in (NOT_CREATED, NEVER_SCHEDULED):
        others = [name for name, one in objected.items() if one == word]
        if asked is not None and others:
            return {"result": word, "because_of": [] if asked.container in others else others}
    return {"result": _own_result(answer), "because_of": []}


def _own_result(answer: SimulatedAnswer) -> str:
    edited = answer.edited
    if answer.fault is not None:
        return REFUSED
    if edited.route:
        is_without = edited.grant is not None and not edited.grant.devices
        return FILES_ONLY if is_without else GETS
    if _other_route(answer) != NONE:
        return GETS
    if _is_open(answer.question):
        return UNKNOWN
    is_denied = edited.requests or any(verdict.refused for _, verdict in answer.judged)
    is_booked = answer.question.plugin.devices
    return STARTS_WITHOUT if is_denied or is_booked else NOTHING


def _other_route(answer: SimulatedAnswer) -> str:
    """Return the integration that adds or added the GPUs without gpuhook-runtime."""
    if answer.question.plugin.cdi_devices:
        return CDI
    if answer.question.by_claims.uuids:
        return DRA
    if answer.held is not None:
        environment = parse.environment(answer.before)
        names = [vendor.vocabulary.devices_env for vendor in vendors()]
        is_void = any(environment.get(name) == "void" for name in names)
        return _given_route(answer.held.given_by) or (CDI if is_void else UNKNOWN_ROUTE)
    return DEVICE_PLUGIN if answer.question.plugin.is_complete else NONE


def _given_route(by: str) -> str:
    """Return the integration of a program that added GPUs, or the vendor's hook; "" if unknown."""
    traces = [vendor.traces for vendor in vendors()]
    if by == injection_route.OURS or any(by in one.SPEC_HOOKS.values() for one in traces):
        return CDI
    return by if any(by == one.HOOK_INJECTOR for one in traces) else ""
