# SPDX-License-Identifier: Apache-2.0
"""Short names of containers for tables."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_ENGINES = re.compile(r"[0-9a-f]{64}$")
_SHORT = 12  # characters, as engines print them; commands accept the beginning of an id


def short_id(identity: str) -> str:
    """Return the beginning of an id that an engine generated, or the whole of a chosen name.

    >>> short_id("4c1f0a9be27d" + 52 * "0"), short_id("gpu-trainer-green")
    ('4c1f0a9be27d', 'gpu-trainer-green')
    """
    return identity[:_SHORT] if _ENGINES.match(identity) else identity


def pod_container(names: Mapping[str, object]) -> str:
    """Return POD/CONTAINER, which commands accept as a name; "-" outside of a pod."""
    return "/".join(str(names[key]) for key in ("pod", "container") if names.get(key)) or "-"
