# SPDX-License-Identifier: Apache-2.0
"""What containers are called where there is little room."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_ENGINES = re.compile(r"[0-9a-f]{64}$")
_SHORT = 12  # characters, as engines show them; commands take the beginning of an id


def short_id(identity: str) -> str:
    """Return the beginning of an id that an engine has made; a name that somebody gave is whole.

    >>> short_id("4c1f0a9be27d" + 52 * "0"), short_id("gpu-trainer-green")
    ('4c1f0a9be27d', 'gpu-trainer-green')
    """
    return identity[:_SHORT] if _ENGINES.match(identity) else identity


def pod_container(names: Mapping[str, object]) -> str:
    """Return POD/CONTAINER, which commands take as a container's name; "-" outside of a pod."""
    return "/".join(str(names[key]) for key in ("pod", "container") if names.get(key)) or "-"
