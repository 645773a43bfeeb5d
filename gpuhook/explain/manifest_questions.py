# SPDX-License-Identifier: Apache-2.0
"""Containers of Kubernetes manifests as questions, with the device plugin's allocation."""

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
_IMAGE = "a manifest does not have the image's variables: pass them with --env"


def questions(text: str, where: str) -> list[Question]:
    """Return the question of each container in manifests of pods and workloads.

    allotted() adds the allocation of the device plugin. Raises GH1930 to GH1932.
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
    """Return the questions with the allocation of gpuhook's device plugin.

    `plugin_config` is the path of the plugin's configuration, None for its defaults; `image_env`
    are the variables of the containers' image. Each pod is alone on the node. Without the node's
    facts there is no allocation. Questions other than pods are unchanged. Raises what
    pods.configuration() and pods.of_pods() raise.
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
    """Return whether the devices of a pod are unknown.

    The node's GPUs are unknown, or a driver of Dynamic Resource Allocation selects devices.
    """
    asked = question.asked
    if asked is None:
        return False
    return bool(asked.claims) or (bool(asked.gpus) and question.allocated is None)


def engines_devices(question: Question) -> tuple[str, ...]:
    """Return the names of the CDI devices that the engine adds for the device plugin."""
    if question.allocated is None:
        return ()
    from gpuhook.explain import pods

    return pods.cdi_devices(question.allocated)


def is_complete(question: Question) -> bool:
    """Return whether the device plugin itself adds devices and driver (host-files)."""
    if question.allocated is None:
        return False
    given = question.allocated.allocation
    has_files = any(mount.host_path != os.devnull for mount in given.mounts)
    return bool(given.devices) and has_files


def reserved(question: Question) -> frozenset[str]:
    """Return the UUIDs of the GPUs and instances that the device plugin allocates."""
    answers = question.allocated.answers if question.allocated else ()
    return frozenset(device.uuid for answer in answers for device in answer.devices)


def plugin_devices(question: Question) -> list[str]:
    """Return the UUIDs of the devices that the container gets without the runtime."""
    if not engines_devices(question) and not is_complete(question):
        return []
    return sorted(reserved(question))


def replicas(question: Question) -> list[str]:
    """Return the replicas that the device plugin allocates, "<uuid>::<number>"."""
    units = question.allocated.units if question.allocated else ()
    return [unit for unit in units if SEPARATOR in unit]


def document(question: Question) -> dict[str, Any] | None:
    """Return the document of a pod's container, None for another kind of question."""
    if question.asked is None:
        return None
    from gpuhook.explain import pods

    return dict(pods.document(question.asked, question.allocated))


def outcome(question: Question) -> str:
    """Return NOT_CREATED, NEVER_SCHEDULED, or "" if Kubernetes runs the container."""
    if question.asked is None:
        return ""
    from gpuhook.explain.pods.pod_requests import PENDING, REFUSED

    own = question.asked.objections
    found = {one.result for one in (*own, *(_node_objections(question)))}
    if REFUSED in found:
        return NOT_CREATED
    return NEVER_SCHEDULED if PENDING in found else ""


def _node_objections(question: Question) -> tuple[Any, ...]:
    return question.allocated.objections if question.allocated else ()
