# SPDX-License-Identifier: Apache-2.0
"""Containers of Kubernetes' manifests as questions, with what a device plugin would add."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuhook.diagnose.explain import question as kinds
from gpuhook.diagnose.explain.question import Question

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.diagnose.pods.answers import Allocated
    from gpuhook.diagnose.pods.asked import Asked
    from gpuhook.vendors.nvidia.inventory import Node

NOT_CREATED, NEVER_SCHEDULED = "not-created", "pending"
_IMAGE = "what its image says is not in a manifest: give the image's variables with --env"


def questions(text: str, where: str) -> list[Question]:
    """Return the question of each container in manifests: pods, and what makes pods.

    What a device plugin adds is not in them: allotted() adds it. Raises GH1930, GH1931.
    """
    from gpuhook.diagnose import pods

    return [
        Question(
            kinds.POD,
            f"{one.workload or 'Pod/' + one.pod}, container {one.container} ({one.where})",
            pods.as_spec(one),
            notes=(_IMAGE,),
            asked=one,
        )
        for one in pods.read(text, where)
    ]


def allotted(
    found: Sequence[Question],
    node: Node | None,
    plugin_config: str | None,
    image_env: Sequence[str] = (),
) -> list[Question]:
    """Return the questions with what our device plugin would answer for their containers.

    `plugin_config` is the path of the plugin's configuration, None for its defaults; `image_env`
    are the variables of the containers' image. Each pod is taken to be alone on the node. Where
    the node's facts are not known, no plugin answers; others than pods stay as they are. Raises
    what pods.configuration() and pods.of_pods() do.
    """
    asked = [one.asked for one in found if one.asked is not None]
    if not asked:
        return list(found)
    from gpuhook.diagnose import pods

    given: list[Allocated | None] = [None] * len(asked)
    chosen = pods.configuration(plugin_config)
    if node is not None:
        given = list(pods.of_pods(asked, node, chosen))
    rest = zip(asked, given, strict=True)
    return [one if one.asked is None else _with(one, *next(rest), node, image_env) for one in found]


def _with(
    question: Question,
    asked: Asked,
    given: Allocated | None,
    node: Node | None,
    image_env: Sequence[str],
) -> Question:
    from gpuhook.diagnose import pods

    spec = pods.as_spec(asked, given, node, image_env=image_env)
    notes = () if image_env else question.notes
    named = pods.cdi_devices(given) if given else ()
    if named:
        notes += (f"the engine adds what its CDI specs have of {', '.join(named)}: not shown here",)
    return replace(question, spec=spec, notes=notes, allocated=given)


def document(question: Question) -> dict[str, Any] | None:
    """Return what the manifest says of the container, None for a question of another kind."""
    if question.asked is None:
        return None
    from gpuhook.diagnose import pods

    return dict(pods.document(question.asked, question.allocated))


def outcome(question: Question) -> str:
    """Return what Kubernetes makes of the container, "" where it runs."""
    if question.asked is None:
        return ""
    from gpuhook.diagnose.pods.asked import PENDING, REFUSED

    own = question.asked.objections
    found = {one.result for one in (*own, *(_of_node(question)))}
    if REFUSED in found:
        return NOT_CREATED
    return NEVER_SCHEDULED if PENDING in found else ""


def _of_node(question: Question) -> tuple[Any, ...]:
    return question.allocated.objections if question.allocated else ()
