# SPDX-License-Identifier: Apache-2.0
"""What a container lacks of its granted devices, as findings made from a repair plan."""

from __future__ import annotations

from gpuhook.apply.live.hotplug_steps import AccessStep
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.apply.live.hotplug_plan import HotplugPlan
    from gpuhook.errors import GpuhookError

_SHOWN = 4


def findings(container: str, plan: HotplugPlan) -> list[GpuhookError]:
    """Return the faults of `container`, those of device rules, the most frequent, first."""
    wrong: list[GpuhookError] = []
    for operation in plan.operations:
        if isinstance(operation, AccessStep):
            names = ", ".join(operation.names())
            wrong.insert(0, fault("GH1744", container=container, nodes=names))
        elif operation.describe():
            what = _few(operation.describe())
            wrong.append(fault("GH1740", container=container, what=what))
    return wrong


def _few(lines: list[str]) -> str:
    """Return lines as one phrase, without most of a long list of driver files."""
    more = len(lines) - _SHOWN
    return "; ".join(lines[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
