# SPDX-License-Identifier: Apache-2.0
"""Requests in addition to GPUs: which of them apply, and why the others do not."""

from __future__ import annotations

from typing import Any

from gpuhook.errors import GpuhookError
from gpuhook.request import extra_requests, policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.entry.plan_context import PlanContext
    from gpuhook.explain.simulate import SimulatedAnswer
    from gpuhook.request.extra_requests import Extra
    from gpuhook.vendors.interface import VendorNode

_WITHOUT_GPUS = "it applies only to containers with GPUs, but this container requests none"
_NO_GRANT = "the container starts without its GPUs, and without this"
_ELSEWHERE = "it is unknown here whether the node has it"
_STARTS_WITHOUT = "the container starts without: "
_ABSENT = "absent"


def extras_trace(answer: SimulatedAnswer, context: PlanContext) -> list[dict[str, Any]]:
    """Return each request with its result: won, refused, ignored or absent (not on this node)."""
    try:
        found = context.node.extra_requests(answer.asked, context.settings)
    except GpuhookError:
        return []  # the same fault refuses the container
    return [_document(one, *_result(one, answer, context)) for one in found]


def granted_names(extras: list[dict[str, Any]], node: VendorNode) -> list[str]:
    """Return the names of those of `extras`, as of extras_trace(), that the container gets."""
    if not node.is_here:
        return []
    return [name for one in extras if one["result"] == policy.WON for name in one["names"]]


def _result(one: Extra, answer: SimulatedAnswer, context: PlanContext) -> tuple[str, str]:
    if answer.verdict.chosen is None:
        return policy.IGNORED, _WITHOUT_GPUS
    if one.result != policy.WON:
        return one.result, one.reason
    if answer.fault is None and answer.edited.grant is None:
        return policy.IGNORED, _NO_GRANT
    try:
        policy.require_privilege(one.names, one.where, answer.asked, context.node.vocabulary)
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
