# SPDX-License-Identifier: Apache-2.0
"""The replicas of a container, from the device plugin's variable, for the ledger.

NVIDIA's own runtime knows no replica ids, so the plugin names plain devices in the devices'
variable, and the replicas in another one.
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
    """Return the replica ids in the variable, as far as the container has their devices.

    Any user can set the variable, so it only says which replica of a granted device is meant.
    `devices` are the qualified names of those; `others` returns their other names, such as the UUID
    of a GPU that was requested by its index, and is only called for a replica of none of `devices`.
    """
    listed = parse.environment(spec).get(vocabulary.VOCABULARY.replicas_env, "")
    names = dict.fromkeys(name.strip() for name in listed.split(",")[: parse.MAX_NAMES])
    granted = {qualified.partition("=")[2] for qualified in devices}
    wanted = {device for device in map(replicas.device_of, names) if device}
    if not wanted <= granted:
        granted.update(others())
    return [name for name in names if replicas.device_of(name) in granted]
