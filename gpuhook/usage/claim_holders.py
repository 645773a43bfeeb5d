# SPDX-License-Identifier: Apache-2.0
"""The claims of Dynamic Resource Allocation that each container uses, from the kubelet."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    Container = tuple[str, str, str]  # namespace, pod, container


@dataclass(frozen=True, slots=True)
class ClaimHolders:
    """The devices of claims by container; `trouble` is why they cannot be read, "" if they can."""

    devices: Mapping[Container, list[dict[str, Any]]] = field(default_factory=dict)
    trouble: str = ""


def claim_holders(kubelet: str) -> ClaimHolders | None:
    """Return the devices that containers have from gpuhook's drivers.

    `kubelet` is the root directory of the kubelet, "" for none. None without a kubelet that has,
    or has had, such a driver.
    """
    drivers = {vendor.dra_driver for vendor in vendors()}
    plugins = os.path.join(kubelet, "plugins")
    if not kubelet or not any(os.path.isdir(os.path.join(plugins, one)) for one in drivers):
        return None
    try:
        from gpuhook.device_plugin.metrics import unit_holders

        holdings = unit_holders.holdings(kubelet)
    except ImportError as error:  # gRPC comes with the device plugin
        return ClaimHolders(trouble=str(error))
    found: dict[Container, list[dict[str, Any]]] = {}
    for holder, one in holdings.claims:
        if one.driver in drivers:
            found.setdefault((holder.namespace, holder.pod, holder.container), []).append(
                {
                    "namespace": one.namespace,
                    "claim": one.claim,
                    "request": "",
                    "device": one.device,
                    "share": one.share_id,
                }
            )
    return ClaimHolders(found, holdings.reason)


def confirmed(
    recorded: Iterable[dict[str, Any]], held: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the recorded devices of claims that the kubelet confirms, and its further ones.

    A record may come from a variable, which any container can set. The kubelet knows neither the
    request nor the UUID of the device: its further ones have the name of the pool's device.
    """
    left = list(held)
    found = []
    for one in recorded:
        same = (other for other in left if _identity(other) == _identity(one))
        match = next(same, None)
        if match is not None:
            left.remove(match)
            found.append(one)
    return [*found, *left]


def _identity(one: dict[str, Any]) -> tuple[str, str, str]:
    return one["namespace"], one["claim"], one["share"]
