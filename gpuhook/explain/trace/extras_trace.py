# SPDX-License-Identifier: Apache-2.0
"""What a container asks for beside its GPUs, what of that counts, and why the rest does not."""

from __future__ import annotations

from typing import Any

from gpuhook.entry import extra_devices
from gpuhook.errors import GpuhookError
from gpuhook.request import extra_requests
from gpuhook.vendors.nvidia.hot import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.entry.granting import Granting
    from gpuhook.explain.simulate import Answer

_WITHOUT_GPUS = "it counts for containers with GPUs alone, and nothing asks for these"
_NO_GRANT = "the container starts without its GPUs, and so without this"
_ELSEWHERE = "whether the node has it cannot be told from here"
_STARTS_WITHOUT = "the container starts without: "
_ABSENT = "absent"


def of(answer: Answer, granting: Granting) -> list[dict[str, Any]]:
    """Return each of these with its result: won, refused, ignored or absent (not on this node)."""
    try:
        found = extra_devices.asked(answer.asked, granting.settings)
    except GpuhookError:
        return []  # that is why the container is refused
    return [_document(one, *_result(one, answer, granting)) for one in found]


def names(told: list[dict[str, Any]], granting: Granting) -> list[str]:
    """Return the names of those of `told`, as of() has them, that the container gets."""
    if not granting.is_here:
        return []
    return [name for one in told if one["result"] == extra_requests.WON for name in one["names"]]


def _result(one: extra_requests.Extra, answer: Answer, granting: Granting) -> tuple[str, str]:
    if answer.verdict.chosen is None:
        return extra_requests.IGNORED, _WITHOUT_GPUS
    if one.result != extra_requests.WON:
        return one.result, one.reason
    if answer.fault is None and answer.edited.grant is None:
        return extra_requests.IGNORED, _NO_GRANT
    try:
        extra_requests.require_privilege(one.names, one.where, answer.asked, vocabulary.VOCABULARY)
    except GpuhookError as error:
        return extra_requests.REFUSED, error.message
    if not granting.is_here:
        return extra_requests.WON, _ELSEWHERE
    reason = extra_devices.lack(granting, one)
    return (extra_requests.WON, "") if reason is None else (_ABSENT, _STARTS_WITHOUT + reason)


def _document(one: extra_requests.Extra, result: str, reason: str) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "where": one.where,
        "names": one.names,
        "result": result,
        "reason": reason,
    }
