# SPDX-License-Identifier: Apache-2.0
"""Containers of Kubernetes' manifests as questions, with what a device plugin would add."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuhook.diagnose.explain import question as kinds
from gpuhook.diagnose.explain.question import Question
from gpuhook.diagnose.pods import answers, container_spec, documents, manifests
from gpuhook.diagnose.pods.asked import PENDING, REFUSED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.diagnose.pods.answers import Allocated
    from gpuhook.diagnose.pods.asked import Asked
    from gpuhook.kubernetes.config.configuration import Configuration
    from gpuhook.vendors.nvidia.inventory import Node

_IMAGE = "what its image says is not in a manifest: give the image's variables with --env"


def questions(text: str, where: str) -> list[Question]:
    """Return the question of each container in manifests: pods, and what makes pods.

    What a device plugin adds is not in them: allotted() adds it. Raises GH1930, GH1931.
    """
    return [
        Question(
            kinds.POD,
            f"{one.workload or 'Pod/' + one.pod}, container {one.container} ({one.where})",
            container_spec.as_spec(one),
            notes=(_IMAGE,),
            asked=one,
        )
        for one in manifests.read(text, where)
    ]


def allotted(
    found: Sequence[Question],
    node: Node | None,
    configuration: Configuration,
    image_env: Sequence[str] = (),
) -> list[Question]:
    """Return the questions with what our device plugin would answer for their containers.

    `image_env` are the variables of their image. Each pod is taken to be alone on the node. Where
    the node's facts are not known, no plugin answers; others than pods stay as they are. Raises
    what answers.of_pods() does.
    """
    asked = [one.asked for one in found if one.asked is not None]
    given: list[Allocated | None] = [None] * len(asked)
    if node is not None and asked:
        given = list(answers.of_pods(asked, node, configuration))
    rest = zip(asked, given, strict=True)
    return [one if one.asked is None else _with(one, *next(rest), node, image_env) for one in found]


def _with(
    question: Question,
    asked: Asked,
    given: Allocated | None,
    node: Node | None,
    image_env: Sequence[str],
) -> Question:
    allocation = given.allocation if given else None
    spec = container_spec.as_spec(asked, allocation, node, image_env=image_env)
    notes = () if image_env else question.notes
    named = container_spec.cdi_devices(allocation) if allocation else ()
    if named:
        notes += (f"the engine adds what its CDI specs have of {', '.join(named)}: not shown here",)
    return replace(question, spec=spec, notes=notes, allocated=given)


def document(question: Question) -> dict[str, Any] | None:
    """Return what the manifest says of the container, None for a question of another kind."""
    if question.asked is None:
        return None
    return dict(documents.document(question.asked, question.allocated))


def outcome(question: Question) -> str:
    """Return what Kubernetes makes of the container: REFUSED, PENDING, or "" where it runs."""
    own = question.asked.objections if question.asked else ()
    found = {one.result for one in (*own, *(_of_node(question)))}
    return next((result for result in (REFUSED, PENDING) if result in found), "")


def _of_node(question: Question) -> tuple[Any, ...]:
    return question.allocated.objections if question.allocated else ()
