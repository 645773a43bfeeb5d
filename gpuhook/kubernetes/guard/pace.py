# SPDX-License-Identifier: Apache-2.0
"""How long to wait for the next look: briefly near a limit, ever longer while all are far below."""

from __future__ import annotations

from gpuhook.kubernetes.guard import judgement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.kubernetes.config.configuration import Guard
    from gpuhook.kubernetes.guard.judgement import Sight

NEAR = 0.8  # of a limit
_LEAST = 0.05  # seconds


def is_near(sight: Sight) -> bool:
    """Return whether somebody uses much of its share."""
    return any(
        judgement.used(judgement.of_container(sight, key) or ()).used >= share.hard * NEAR
        for key, share in sight.shares.items()
    )


def interval(before: float, *, is_near: bool, settings: Guard) -> float:
    """Return how many seconds to wait, after a wait of `before` seconds (0: somebody is new).

    >>> from gpuhook.kubernetes.config.configuration import Guard
    >>> interval(2.0, is_near=False, settings=Guard())
    4.0
    """
    shortest = max(_LEAST, settings.shortest_interval)
    longest = max(shortest, settings.longest_interval)
    return shortest if is_near else min(max(before * 2, shortest), longest)
