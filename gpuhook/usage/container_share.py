# SPDX-License-Identifier: Apache-2.0
"""What of a device's memory is a container's fair share, and by what.

Pure. Its limit where it has one; else the part of its replicas, of all that the kubelet has of the
device; else the device divided by those who hold it.
"""

from __future__ import annotations

from gpuhook.request import replicas

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

LIMIT, REPLICAS, HOLDERS = "limit", "replicas", "holders"


def fair_share(
    gpu: str,
    total: int | None,
    container: Mapping[str, Any],
    units: Sequence[str],
    holders: int,
) -> dict[str, Any] | None:
    """Return {"bytes", "by"}, None where the device's memory is not known.

    `container` is as `gpuhook ps` lists it, `units` are all that the kubelet has of the device, and
    `holders` how many containers have it now.
    """
    for told in container["memory"]:
        if told["gpu"] == gpu and told["limit"]:
            return {"bytes": told["limit"], "by": LIMIT}
    if total is None:
        return None
    held = [one for one in container["replicas"] if replicas.device_of(one) == gpu]
    if held and len(units) >= len(held):
        return {"bytes": total * len(held) // len(units), "by": REPLICAS}
    return {"bytes": total // max(1, holders), "by": HOLDERS}


def over(used: int | None, share: Mapping[str, Any] | None) -> bool:
    """Return whether a container uses more than its share."""
    return used is not None and share is not None and used > share["bytes"]
