# SPDX-License-Identifier: Apache-2.0
"""What of a request holds also where the container would be refused."""

from __future__ import annotations

from typing import Any

from gpuhook.errors import GpuhookError
from gpuhook.request import parse, plan
from gpuhook.request.resolve import Grant, resolve_names
from gpuhook.vendors.nvidia.hot import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.entry.plan_context import PlanContext
    from gpuhook.explain.simulate import SimulatedAnswer
    from gpuhook.vendors.nvidia.hot.nvidia_node import NvidiaNode


_BY_DEFAULT = "request.defaultDriverCapabilities applies ({})"
_OF_OLD = (
    f"an image of old ({vocabulary.VOCABULARY.image_version_env} without "
    f"{vocabulary.VOCABULARY.image_requirement_env}) gets all"
)


def capabilities_of(spec: dict[str, Any], context: PlanContext) -> frozenset[str]:
    """Return the driver capabilities of a container; the default where it asks for wrong ones."""
    try:
        return plan.capabilities(spec, context.settings, context.node)
    except GpuhookError:
        return plan.parse_capabilities(None, context.settings, context.node)


def rule_of(spec: dict[str, Any], context: PlanContext) -> str:
    """Return by which rule a container has its driver capabilities, and what limits them."""
    environment = parse.environment(spec)
    text = environment.get(vocabulary.VOCABULARY.capabilities_env)
    is_legacy = parse.is_legacy(environment, vocabulary.VOCABULARY)
    if text is None and is_legacy and context.settings.legacy_images:
        rule = _OF_OLD
    elif text and text.strip(" ,") and not _is_ignored(text, context):
        rule = f"{vocabulary.VOCABULARY.capabilities_env}={text}"
    else:
        state = "not set" if text is None else "empty"
        if text and text.strip(" ,"):
            state = f"{text}, which names no known capability"
        default = ", ".join(context.settings.default_driver_capabilities)
        rule = f"{vocabulary.VOCABULARY.capabilities_env} is {state}: {_BY_DEFAULT.format(default)}"
    allowed = context.settings.driver_capabilities
    if allowed:
        rule += f", of what request.driverCapabilities allows ({', '.join(allowed)})"
    return rule


def _is_ignored(text: str, context: PlanContext) -> bool:
    """Return whether the settings ignore every word of a list of capabilities."""
    unknown: list[str] = []
    try:
        plan.parse_capabilities(text, context.settings, context.node, unknown)
    except GpuhookError:
        return False
    return all(word.strip() in ("", *unknown) for word in text.split(","))


def grant_of(
    answer: SimulatedAnswer, names: list[str], node: NvidiaNode, capabilities: frozenset[str]
) -> Grant:
    """Return what the container gets, or would get if those of `names` that are known were all.

    An empty grant where it asks for nothing.
    """
    if answer.edited.grant is not None:
        return answer.edited.grant
    known = [name for name in names if _is_known(name, node, capabilities)]
    return resolve_names(known, capabilities, node) if known else Grant()


def _is_known(name: str, node: NvidiaNode, capabilities: frozenset[str]) -> bool:
    try:
        resolve_names([name], capabilities, node)
    except GpuhookError:
        return False
    return True
