# SPDX-License-Identifier: Apache-2.0
"""What attach, detach and repair did to a container, or would do."""

from __future__ import annotations

from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.apply.live.hotplug_plan import HotplugPlan
    from gpuhook.target.running_container import Target


class Report:
    """`steps` are what was done, or would be where it `is_dry`; `skipped` what cannot be had.

    `left` is what a container held on to of what was to be taken away.
    """

    def __init__(self, target: Target, plan: HotplugPlan, *, is_dry: bool) -> None:
        self.id = target.found.id
        self.pid = target.held.process.pid
        self.is_dry = is_dry
        self.steps = plan.describe()
        self.skipped = list(plan.skipped)
        self.notes: list[str] = []
        self.left: list[str] = []

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "container": self.id,
            "pid": self.pid,
            "dryRun": self.is_dry,
            "steps": self.steps,
            "skipped": self.skipped,
            "left": self.left,
            "notes": self.notes,
        }
