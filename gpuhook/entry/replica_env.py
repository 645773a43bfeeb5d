# SPDX-License-Identifier: Apache-2.0
"""The replicas that a device plugin says a container holds: they go into the ledger.

NVIDIA's own runtime knows no replica ids, so the plugin names plain devices where devices are asked
for, and the replicas in a variable of their own.
"""

from __future__ import annotations

from gpuhook.request import parse, replicas
from gpuhook.vendors.nvidia.hot import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Any


def replicas_of(
    spec: dict[str, Any], devices: Iterable[str], others: Callable[[], Collection[str]]
) -> list[str]:
    """Return the replica ids that the variable tells, as far as the container has their devices.

    Anybody may set the variable, so it can say no more than which replica of a granted device.
    `devices` are the qualified names of those; `others` returns their further names, as the UUID
    where a GPU was asked for by its index, and is only called for a replica of none of the former.
    """
    told = parse.environment(spec).get(vocabulary.VOCABULARY.replicas_env, "")
    names = dict.fromkeys(name.strip() for name in told.split(",")[: parse.MAX_NAMES])
    granted = {qualified.partition("=")[2] for qualified in devices}
    wanted = {device for device in map(replicas.device_of, names) if device}
    if not wanted <= granted:
        granted.update(others())
    return [name for name in names if replicas.device_of(name) in granted]
