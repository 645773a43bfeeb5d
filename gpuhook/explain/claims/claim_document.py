# SPDX-License-Identifier: Apache-2.0
"""The part `claims` of the document gpuhook/explain/v1."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gpuhook.explain.pods.pod_requests import REFUSED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuhook.explain.claims.claim_answers import ClaimAnswer, ClaimAnswers
    from gpuhook.explain.claims.claim_objects import ClassRequest
    from gpuhook.explain.pods.pod_requests import Objection


def claim_documents(
    found: ClaimAnswers, objections: Iterable[tuple[str, Objection]]
) -> list[dict[str, Any]]:
    """Return a document for each answer; `objections` are by the title of the object."""
    by_title: dict[str, list[dict[str, Any]]] = {}
    for title, one in objections:
        by_title.setdefault(title, []).append(asdict(one))
    return [_answer(one, found, by_title) for one in found.answers]


def _answer(
    answer: ClaimAnswer, found: ClaimAnswers, objections: dict[str, list[dict[str, Any]]]
) -> dict[str, Any]:
    group, outcome = answer.group, answer.outcome
    own = [one for claim in group.claims for one in objections.get(claim.title, ())]
    is_refused = any(one["result"] == REFUSED for one in own)
    return {
        "pod": group.pod,
        "claims": [
            {
                "claim": one.title,
                "namespace": one.namespace,
                "where": one.where,
                "constraints": [
                    {"kind": c.kind, "attribute": c.attribute, "requests": list(c.requests)}
                    for c in one.constraints
                ],
            }
            for one in group.claims
        ],
        "result": REFUSED if is_refused else outcome.result,
        "reason": own[0]["said"] if is_refused else outcome.reason,
        "requests": list(_requests(answer, found)),
        "objections": own,
        "notes": list(answer.notes),
    }


def _requests(answer: ClaimAnswer, found: ClaimAnswers) -> Iterator[dict[str, Any]]:
    for index, claim in enumerate(answer.group.claims):
        for request in (choice for one in claim.requests for choice in one.choices):
            device_class = found.classes.get(request.device_class)
            yield {
                "claim": claim.title,
                "request": request.name,
                "where": request.where,
                "class": request.device_class,
                "class_from": device_class.source if device_class else None,
                "mode": request.mode,
                "count": request.count,
                "capacity": dict(request.capacity),
                "admin_access": request.is_admin,
                "devices": [*_devices(answer, index, request)],
                "allocated": [*_allocated(answer, index, request)],
            }


def _devices(answer: ClaimAnswer, index: int, request: ClassRequest) -> Iterator[dict[str, str]]:
    for one in answer.matches.get((index, request.name), ()):
        yield {
            "driver": one.node_device.pool.driver,
            "device": one.node_device.device.name,
            "uuid": one.node_device.device.device.uuid,
            "verdict": one.verdict,
            "by": one.by,
            "where": one.where,
            "reason": one.reason,
        }


def _allocated(answer: ClaimAnswer, index: int, request: ClassRequest) -> Iterator[dict[str, Any]]:
    for one in answer.outcome.chosen:
        if one.claim == index and one.request is request:
            device = one.match.node_device
            consumed = {} if request.is_admin else dict(one.match.consumes)
            yield {
                "driver": device.pool.driver,
                "device": device.device.name,
                "uuid": device.device.device.uuid,
                "consumes": consumed,
            }
