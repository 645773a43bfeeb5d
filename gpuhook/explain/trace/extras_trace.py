# SPDX-License-Identifier: Apache-2.0
"""What a container asks for beside its GPUs, what of that counts, and why the rest does not."""

from __future__ import annotations

from typing import Any

from gpuhook.errors import GpuhookError
from gpuhook.request import extra_requests, policy
from gpuhook.vendors.nvidia.hot import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.entry.plan_context import PlanContext
    from gpuhook.explain.simulate import SimulatedAnswer
    from gpuhook.request.extra_requests import Extra
    from gpuhook.vendors.nvidia.hot.nvidia_node import NvidiaNode

_WITHOUT_GPUS = "it counts for containers with GPUs alone, and nothing asks for these"
_NO_GRANT = "the container starts without its GPUs, and so without this"
_ELSEWHERE = "whether the node has it cannot be told from here"
_STARTS_WITHOUT = "the container starts without: "
_ABSENT = "absent"


def extras_trace(answer: SimulatedAnswer, context: PlanContext) -> list[dict[str, Any]]:
    """Return each of these with its result: won, refused, ignored or absent (not on this node)."""
    try:
        found = context.node.extra_requests(answer.asked, context.settings)
    except GpuhookError:
        return []  # that is why the container is refused
    return [_document(one, *_result(one, answer, context)) for one in found]


def names(told: list[dict[str, Any]], node: NvidiaNode) -> list[str]:
    """Return the names of those of `told`, as extras_trace() has them, that the container gets."""
    if not node.is_here:
        return []
    return [name for one in told if one["result"] == policy.WON for name in one["names"]]


def _result(one: Extra, answer: SimulatedAnswer, context: PlanContext) -> tuple[str, str]:
    if answer.verdict.chosen is None:
        return policy.IGNORED, _WITHOUT_GPUS
    if one.result != policy.WON:
        return one.result, one.reason
    if answer.fault is None and answer.edited.grant is None:
        return policy.IGNORED, _NO_GRANT
    try:
        policy.require_privilege(one.names, one.where, answer.asked, vocabulary.VOCABULARY)
    except GpuhookError as error:
        return policy.REFUSED, error.message
    if not context.node.is_here:
        return policy.WON, _ELSEWHERE
    reason = extra_requests.lack(one, context.node)
    return (policy.WON, "") if reason is None else (_ABSENT, _STARTS_WITHOUT + reason)


def _document(one: Extra, result: str, reason: str) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "where": one.where,
        "names": one.names,
        "result": result,
        "reason": reason,
    }
