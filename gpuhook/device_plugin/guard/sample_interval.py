# SPDX-License-Identifier: Apache-2.0
"""How long to wait for the next look: briefly near a limit, ever longer while all are far below."""

from __future__ import annotations

from gpuhook.device_plugin.guard import guard_policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.gpuhook_section import Guard
    from gpuhook.device_plugin.guard.guard_policy import Sight

NEAR = 0.8  # of a limit
_LEAST = 0.05  # seconds


def is_near(sight: Sight) -> bool:
    """Return whether somebody uses much of its share."""
    return any(
        guard_policy.used(guard_policy.of_container(sight, key) or ()).used >= share.hard * NEAR
        for key, share in sight.shares.items()
    )


def interval(before: float, *, is_near: bool, settings: Guard) -> float:
    """Return how many seconds to wait, after a wait of `before` seconds (0: somebody is new).

    >>> from gpuhook.device_plugin.config.gpuhook_section import Guard
    >>> interval(2.0, is_near=False, settings=Guard())
    4.0
    """
    shortest = max(_LEAST, settings.shortest_interval)
    longest = max(shortest, settings.longest_interval)
    return shortest if is_near else min(max(before * 2, shortest), longest)
