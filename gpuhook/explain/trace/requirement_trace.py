# SPDX-License-Identifier: Apache-2.0
"""The requirements of the image on the driver: whether they apply, and what follows."""

from __future__ import annotations

from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpuhook.host.hot.settings import Settings
    from gpuhook.vendors.container_requests import JudgedRequirements
    from gpuhook.vendors.usage_device import UsageDevice

_UNASKED = "the container gets nothing from gpuhook, so its requirements are not checked"
_BY_SETTING = "request.disableRequirements waives them on this node"


def requirement_trace(
    judged: JudgedRequirements, settings: Settings, *, is_given: bool
) -> dict[str, Any]:
    """Return the requirements as the document has them.

    `is_given` is whether the container gets anything, also only the driver's files.
    """
    if not judged.items:
        note = "the image requires nothing"
    elif judged.waiver:
        note = judged.waiver
    elif settings.disable_requirements:
        note = _BY_SETTING
    elif not is_given:
        note = _UNASKED
    else:
        note = judged.effect
    return {
        "enforced": is_given and not (judged.waiver or settings.disable_requirements),
        "disabled": bool(judged.waiver),
        "verdict": judged.verdict,
        "note": note,
        "items": list(judged.items),
    }


def gpu_nodes(ids: Collection[str], devices: Iterable[UsageDevice]) -> list[str]:
    """Return the nodes of the GPUs of devices, which are GPUs or parts of one."""
    known = list(devices)
    gpus = {one.gpu for one in known if one.uuid in ids}
    return [one.node for one in known if one.uuid in gpus and one.node]
