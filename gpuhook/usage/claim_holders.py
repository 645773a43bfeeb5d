# SPDX-License-Identifier: Apache-2.0
"""The claims of Dynamic Resource Allocation that each container uses, from the kubelet."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field

from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Container = tuple[str, str, str]  # namespace, pod, container

_SOCKET = "pod-resources/kubelet.sock"


@dataclass(frozen=True, slots=True)
class ClaimHolders:
    """The devices of claims by container; `trouble` is why they cannot be read, "" if they can."""

    devices: Mapping[Container, list[dict[str, Any]]] = field(default_factory=dict)
    trouble: str = ""


def claim_holders(kubelet: str) -> ClaimHolders:
    """Return the devices that containers have from gpuhook's drivers.

    `kubelet` is the root directory of the kubelet, "" for none. A kubelet that never had such a
    driver is not queried.
    """
    drivers = {vendor.dra_driver for vendor in vendors()}
    plugins = os.path.join(kubelet, "plugins")
    if not kubelet or not any(os.path.isdir(os.path.join(plugins, one)) for one in drivers):
        return ClaimHolders()
    try:
        from gpuhook.device_plugin.metrics import unit_holders

        holdings = asyncio.run(unit_holders.ask(os.path.join(kubelet, _SOCKET)))
    except ImportError as error:  # gRPC comes with the device plugin
        return ClaimHolders(trouble=str(error))
    found: dict[Container, list[dict[str, Any]]] = {}
    for holder, one in holdings.claims:
        if one.driver in drivers:
            found.setdefault((holder.namespace, holder.pod, holder.container), []).append(
                {
                    "namespace": one.namespace,
                    "name": one.claim,
                    "driver": one.driver,
                    "pool": one.pool,
                    "device": one.device,
                    "share": one.share_id or None,
                }
            )
    return ClaimHolders(found, holdings.reason)
