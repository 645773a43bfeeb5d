# SPDX-License-Identifier: Apache-2.0
"""Containers of Kubernetes' manifests as questions, with what a device plugin would add."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from gpuhook.explain import question as kinds
from gpuhook.explain.question import Question
from gpuhook.request.replicas import SEPARATOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.explain.pods.pod_answers import Allocated
    from gpuhook.explain.pods.pod_requests import PodRequest
    from gpuhook.vendors.nvidia.inventory.inventory import Node

NOT_CREATED, NEVER_SCHEDULED = "not-created", "pending"
_IMAGE = "what its image says is not in a manifest: give the image's variables with --env"


def questions(text: str, where: str) -> list[Question]:
    """Return the question of each container in manifests: pods, and what makes pods.

    What a device plugin adds is not in them: allotted() adds it. Raises GH1930 to GH1932.
    """
    from gpuhook.explain import pods

    return [
        Question(
            kinds.POD,
            one.title,
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
    from gpuhook.explain import pods

    given: list[Allocated | None] = [None] * len(asked)
    chosen = pods.configuration(plugin_config)
    if node is not None:
        given = list(pods.of_pods(asked, node, chosen))
    rest = zip(asked, given, strict=True)
    return [one if one.asked is None else _with(one, *next(rest), node, image_env) for one in found]


def _with(
    question: Question,
    asked: PodRequest,
    given: Allocated | None,
    node: Node | None,
    image_env: Sequence[str],
) -> Question:
    from gpuhook.explain import pods

    spec = pods.as_spec(asked, given, node, image_env=image_env)
    notes = () if image_env else question.notes
    return replace(question, spec=spec, notes=notes, allocated=given)


def is_open(question: Question) -> bool:
    """Return whether a pod asks for devices and nobody here can tell which it is given.

    The node's GPUs are not known then, or a driver of Dynamic Resource Allocation chooses.
    """
    asked = question.asked
    if asked is None:
        return False
    return bool(asked.claims) or (bool(asked.gpus) and question.allocated is None)


def engines_devices(question: Question) -> tuple[str, ...]:
    """Return the CDI devices that the device plugin has the engine add, by their names."""
    if question.allocated is None:
        return ()
    from gpuhook.explain import pods

    return pods.cdi_devices(question.allocated)


def is_complete(question: Question) -> bool:
    """Return whether the device plugin itself passes devices and driver, as by host-files."""
    if question.allocated is None:
        return False
    given = question.allocated.allocation
    has_files = any(mount.host_path != os.devnull for mount in given.mounts)
    return bool(given.devices) and has_files


def reserved(question: Question) -> frozenset[str]:
    """Return the UUIDs of the GPUs and instances that the device plugin books for the container."""
    answers = question.allocated.answers if question.allocated else ()
    return frozenset(device.uuid for answer in answers for device in answer.devices)


def beside(question: Question) -> list[str]:
    """Return the UUIDs of what comes to the container without the runtime's doing."""
    if not engines_devices(question) and not is_complete(question):
        return []
    return sorted(reserved(question))


def replicas(question: Question) -> list[str]:
    """Return the replicas that the device plugin books, "<uuid>::<number>"."""
    units = question.allocated.units if question.allocated else ()
    return [unit for unit in units if SEPARATOR in unit]


def document(question: Question) -> dict[str, Any] | None:
    """Return what the manifest says of the container, None for a question of another kind."""
    if question.asked is None:
        return None
    from gpuhook.explain import pods

    return dict(pods.document(question.asked, question.allocated))


def outcome(question: Question) -> str:
    """Return what Kubernetes makes of the container, "" where it runs."""
    if question.asked is None:
        return ""
    from gpuhook.explain.pods.pod_requests import PENDING, REFUSED

    own = question.asked.objections
    found = {one.result for one in (*own, *(_of_node(question)))}
    if REFUSED in found:
        return NOT_CREATED
    return NEVER_SCHEDULED if PENDING in found else ""


def _of_node(question: Question) -> tuple[Any, ...]:
    return question.allocated.objections if question.allocated else ()
