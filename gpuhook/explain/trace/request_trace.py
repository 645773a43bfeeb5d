# SPDX-License-Identifier: Apache-2.0
"""What of a request holds also where the container would be refused."""

from __future__ import annotations

from typing import Any

from gpuhook.errors import GpuhookError
from gpuhook.request import parse
from gpuhook.request.resolve import Grant
from gpuhook.vendors.nvidia.hot import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.entry.granting import Granting
    from gpuhook.explain.simulate import Answer


_BY_DEFAULT = "request.defaultDriverCapabilities applies ({})"
_OF_OLD = (
    f"an image of old ({vocabulary.VOCABULARY.image_version_env} without "
    f"{vocabulary.VOCABULARY.image_requirement_env}) gets all"
)


def capabilities_of(spec: dict[str, Any], granting: Granting) -> frozenset[str]:
    """Return the driver capabilities of a container; the default where it asks for wrong ones."""
    try:
        return granting.capabilities(spec)
    except GpuhookError:
        return granting.parsed_capabilities(None)


def rule_of(spec: dict[str, Any], granting: Granting) -> str:
    """Return by which rule a container has its driver capabilities, and what limits them."""
    environment = parse.environment(spec)
    text = environment.get(vocabulary.VOCABULARY.capabilities_env)
    is_of_old = parse.is_of_old(environment, vocabulary.VOCABULARY)
    if text is None and is_of_old and granting.settings.legacy_images:
        rule = _OF_OLD
    elif text and text.strip(" ,") and not _is_ignored(text, granting):
        rule = f"{vocabulary.VOCABULARY.capabilities_env}={text}"
    else:
        state = "not set" if text is None else "empty"
        if text and text.strip(" ,"):
            state = f"{text}, which names no known capability"
        default = ", ".join(granting.settings.default_driver_capabilities)
        rule = f"{vocabulary.VOCABULARY.capabilities_env} is {state}: {_BY_DEFAULT.format(default)}"
    allowed = granting.settings.driver_capabilities
    if allowed:
        rule += f", of what request.driverCapabilities allows ({', '.join(allowed)})"
    return rule


def _is_ignored(text: str, granting: Granting) -> bool:
    """Return whether the settings ignore every word of a list of capabilities."""
    unknown: list[str] = []
    try:
        granting.parsed_capabilities(text, unknown)
    except GpuhookError:
        return False
    return all(word.strip() in ("", *unknown) for word in text.split(","))


def grant_of(
    answer: Answer, names: list[str], granting: Granting, capabilities: frozenset[str]
) -> Grant:
    """Return what the container gets, or would get if those of `names` that are known were all.

    An empty grant where it asks for nothing.
    """
    if answer.edited.grant is not None:
        return answer.edited.grant
    known = [name for name in names if _is_known(name, granting, capabilities)]
    return granting.named(known, capabilities) if known else Grant()


def _is_known(name: str, granting: Granting, capabilities: frozenset[str]) -> bool:
    try:
        granting.named([name], capabilities)
    except GpuhookError:
        return False
    return True
