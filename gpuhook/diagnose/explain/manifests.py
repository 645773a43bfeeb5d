# SPDX-License-Identifier: Apache-2.0
"""Containers of Kubernetes' manifests as questions, with what a device plugin would add."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

from gpuhook.diagnose.explain import question as kinds
from gpuhook.diagnose.explain.question import Question
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory import Node

_READER = "gpuhook.diagnose.pods"


def questions(text: str, where: str) -> list[Question]:
    """Return the question of each container in manifests: pods, and what makes pods.

    Without what a device plugin adds: allotted() adds that. Raises what the reader raises, and
    GH1910 where no pod is described.
    """
    pods = _reader(where)
    found = [
        Question(kinds.POD, asked.where, pods.as_spec(asked, None), pod=asked)
        for asked in pods.read(text, where)
    ]
    if not found:
        raise fault("GH1910", where=where, reason="no object in it describes a pod")
    return found


def allotted(question: Question, node: Node | None, configuration: Any) -> Question:
    """Return the question with what our device plugin would answer for its container.

    Nothing is added where the node's facts are not known. Raises what the plugin would.
    """
    if question.pod is None or node is None:
        return question
    pods = _reader(question.where)
    answer = pods.allocated(question.pod, node, configuration)
    return replace(question, spec=pods.as_spec(question.pod, answer))


def document(question: Question) -> dict[str, Any] | None:
    """Return what the manifest says of the container, None for a question of another kind."""
    if question.pod is None:
        return None
    told: dict[str, Any] = _reader(question.where).document(question.pod)
    return told


def _reader(where: str) -> Any:
    """Return the package that reads manifests; GH1914 in an installation without it."""
    try:
        return importlib.import_module(_READER)
    except ModuleNotFoundError as error:
        raise fault("GH1914", where=where) from error
