# SPDX-License-Identifier: Apache-2.0
"""What a container asks for beside its GPUs, what of that counts, and why the rest does not."""

from __future__ import annotations

from typing import Any

from gpuhook.errors import GpuhookError
from gpuhook.grant import extras
from gpuhook.programs import beside
from gpuhook.vendors.nvidia import words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.diagnose.explain.answer import Answer
    from gpuhook.programs.granting import Granting

_WITHOUT_GPUS = "it counts for containers with GPUs alone, and nothing asks for these"
_NO_GRANT = "the container starts without its GPUs, and so without this"
_ELSEWHERE = "whether the node has it cannot be told from here"
_STARTS_WITHOUT = "the container starts without: "
_ABSENT = "absent"


def of(answer: Answer, granting: Granting) -> list[dict[str, Any]]:
    """Return each of these with its result: won, refused, ignored or absent (not on this node)."""
    try:
        found = beside.asked(answer.asked, granting.settings)
    except GpuhookError:
        return []  # that is why the container is refused
    return [_document(one, *_result(one, answer, granting)) for one in found]


def names(told: list[dict[str, Any]], granting: Granting) -> list[str]:
    """Return the names of those of `told`, as of() has them, that the container gets."""
    if not granting.is_here:
        return []
    return [name for one in told if one["result"] == extras.WON for name in one["names"]]


def _result(one: extras.Extra, answer: Answer, granting: Granting) -> tuple[str, str]:
    if answer.verdict.chosen is None:
        return extras.IGNORED, _WITHOUT_GPUS
    if one.result != extras.WON:
        return one.result, one.reason
    if answer.fault is None and answer.edited.grant is None:
        return extras.IGNORED, _NO_GRANT
    try:
        extras.require_privilege(one.names, one.where, answer.asked, words.VOCABULARY)
    except GpuhookError as error:
        return extras.REFUSED, error.message
    if not granting.is_here:
        return extras.WON, _ELSEWHERE
    reason = beside.lack(granting, one)
    return (extras.WON, "") if reason is None else (_ABSENT, _STARTS_WITHOUT + reason)


def _document(one: extras.Extra, result: str, reason: str) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "where": one.where,
        "names": one.names,
        "result": result,
        "reason": reason,
    }
