# SPDX-License-Identifier: Apache-2.0
"""What becomes of a container in the end, and who gives it its GPUs.

A pod is created, scheduled and admitted as a whole: what is wrong with one of its containers
keeps the others from starting too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuhook.entry.create import ENGINE, WRAPPER
from gpuhook.explain import manifest_questions
from gpuhook.request import parse
from gpuhook.usage import injection_route
from gpuhook.vendors.nvidia.hot import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.explain.simulate import SimulatedAnswer

GETS, FILES_ONLY, STARTS_WITHOUT = "gets", "files-only", "starts-without"
REFUSED, NOTHING, UNKNOWN = "refused", "nothing", "unknown"
CDI, DEVICE_PLUGIN, NONE = "cdi", "device-plugin", "none"
LEGACY, UNKNOWN_ROUTE = injection_route.LEGACY, injection_route.UNKNOWN
_HOOK = "hook"  # by whom a container is refused that the runtime does not see
_BAD = (REFUSED, manifest_questions.NOT_CREATED, manifest_questions.NEVER_SCHEDULED)
_NOTES = {
    WRAPPER: "gpuhook-runtime edits config.json before the low-level runtime starts",
    ENGINE: "the engine has applied a CDI spec of gpuhook's; gpuhook-runtime checks it and keeps"
    " the record",
    DEVICE_PLUGIN: "the device plugin passes the devices and the driver's files to the kubelet"
    " itself, and no runtime has to add anything",
    LEGACY: "NVIDIA's hook mounted the devices and the driver's files into the container",
    UNKNOWN_ROUTE: "config.json has the device nodes; gpuhook did not add them",
    CDI: "config.json has the edits of a CDI spec, which the engine applied",
    NONE: "gpuhook-runtime leaves config.json as it is",
    REFUSED: "gpuhook-runtime ends with that fault, and no container is made",
    _HOOK: "gpuhook-hook, which the engine's CDI spec names, ends with that fault, and no container"
    " is made",
}
_GIVEN_BY = {
    injection_route.CDI: CDI,
    injection_route.OURS: CDI,
    injection_route.LEGACY: LEGACY,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ends: `result` is one of the words above, `because_of` are other containers.

    Those are of the same pod, and why Kubernetes does not start this one either.
    """

    result: str
    because_of: tuple[str, ...] = ()


def of_all(found: Iterable[SimulatedAnswer]) -> list[Outcome]:
    """Return what becomes of each container."""
    answers = list(found)
    objected: dict[tuple[str, str, str], dict[str, str]] = {}
    for answer in answers:
        asked, word = answer.question.asked, manifest_questions.outcome(answer.question)
        if asked is not None and word:
            objected.setdefault(_pod(answer), {})[asked.container] = word
    return [_of(answer, objected.get(_pod(answer), {})) for answer in answers]


def is_well(result: str) -> bool:
    """Return whether a container with this result starts."""
    return result not in _BAD


def route(answer: SimulatedAnswer) -> dict[str, str]:
    """Return who gives the container its GPUs, in a word and in a sentence."""
    if answer.fault is not None:
        by = _HOOK if manifest_questions.engines_devices(answer.question) else REFUSED
        return {"name": NONE, "note": _NOTES[by]}
    name = answer.edited.route or _beside(answer)
    named = ", ".join(manifest_questions.engines_devices(answer.question))
    if named:
        return {"name": CDI, "note": f"the engine adds what its CDI specs say of {named}"}
    return {"name": name, "note": _NOTES[name]}


def _pod(answer: SimulatedAnswer) -> tuple[str, str, str]:
    asked = answer.question.asked
    return (asked.namespace, asked.workload, asked.pod) if asked else ("", "", "")


def _of(answer: SimulatedAnswer, objected: dict[str, str]) -> Outcome:
    asked = answer.question.asked
    for word in (manifest_questions.NOT_CREATED, manifest_questions.NEVER_SCHEDULED):
        others = [name for name, one in objected.items() if one == word]
        if asked is not None and others:
            return Outcome(word, () if asked.container in others else tuple(others))
    return Outcome(_of_itself(answer))


def _of_itself(answer: SimulatedAnswer) -> str:
    edited = answer.edited
    if answer.fault is not None:
        return REFUSED
    if edited.route:
        is_without = edited.grant is not None and not edited.grant.devices
        return FILES_ONLY if is_without else GETS
    if _beside(answer) != NONE:
        return GETS
    if manifest_questions.is_open(answer.question):
        return UNKNOWN
    is_denied = edited.source is not None or answer.verdict.refused
    is_booked = manifest_questions.reserved(answer.question)
    return STARTS_WITHOUT if is_denied or is_booked else NOTHING


def _beside(answer: SimulatedAnswer) -> str:
    """Return who gives or gave a container its GPUs without gpuhook-runtime having to."""
    if manifest_questions.engines_devices(answer.question):
        return CDI
    if answer.held is not None:
        is_void = parse.environment(answer.before).get(vocabulary.VOCABULARY.devices_env) == "void"
        return _GIVEN_BY.get(answer.held.given_by, CDI if is_void else UNKNOWN_ROUTE)
    return DEVICE_PLUGIN if manifest_questions.is_complete(answer.question) else NONE


def document(outcome: Outcome) -> dict[str, Any]:
    """Return it in the document's shape."""
    return {"result": outcome.result, "because_of": list(outcome.because_of)}
