# SPDX-License-Identifier: Apache-2.0
"""What of a request holds also where the container would be refused."""

from __future__ import annotations

from typing import Any

from gpuhook.diagnose.explain import jetpack
from gpuhook.errors import GpuhookError
from gpuhook.grant.resolve import Grant
from gpuhook.programs import granting as granted
from gpuhook.vendors.nvidia import words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.diagnose.explain.answer import Answer
    from gpuhook.programs.granting import Granting


def capabilities_of(spec: dict[str, Any]) -> frozenset[str]:
    """Return the driver capabilities of a container; the default where one is unknown."""
    try:
        return granted.capabilities_of(spec)
    except GpuhookError:
        return words.parse_capabilities(None)


def grant_of(answer: Answer, granting: Granting, capabilities: frozenset[str]) -> Grant:
    """Return what the container gets, or would get if those of its names that are known were all.

    An empty grant where it asks for nothing.
    """
    if answer.edited.grant is not None:
        return answer.edited.grant
    names = jetpack.names(answer, granting)
    known = [name for name in names if _is_known(name, granting, capabilities)]
    return granting.named(known, capabilities) if known else Grant()


def _is_known(name: str, granting: Granting, capabilities: frozenset[str]) -> bool:
    try:
        granting.named([name], capabilities)
    except GpuhookError:
        return False
    return True
