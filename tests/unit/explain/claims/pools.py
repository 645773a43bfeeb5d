# SPDX-License-Identifier: Apache-2.0
"""Pools of simulated devices, and answers for claims on them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from gpuhook.dra.pool.pool_device import Capacity, Pool, PoolDevice, Taint, Version
from gpuhook.explain.claims import claim_manifests
from gpuhook.explain.claims.claim_answers import ClaimAnswer, claim_answers
from gpuhook.vendors.plugin.vendor_device import Device

DRIVER = "gpu.nvidia.com"
GIB = 1 << 30
SHARES = {
    "memory": Capacity(16 * GIB, default=4 * GIB, least=GIB, step=GIB),
    "slots": Capacity(4, default=1, least=1, step=1),
}


def device(
    number: int = 0,
    *,
    memory: int = 16,
    shared: bool = False,
    taints: tuple[Taint, ...] = (),
    counters: Mapping[str, Mapping[str, int]] | None = None,
    extra: Mapping[str, Any] | None = None,
    **attributes: Any,
) -> PoolDevice:
    """Return GPU `number`, with `memory` in GiB; `shared` by four claims."""
    own = Device(f"GPU-{number}", str(number), f"GPU-{number}", number, (), ())
    found: dict[str, Any] = {
        "type": "gpu",
        "uuid": own.uuid,
        "index": number,
        "driverVersion": Version("580.1.2"),
    }
    return PoolDevice(
        f"gpu-{number}",
        own,
        {**found, **attributes, **(extra or {})},
        SHARES if shared else {"memory": Capacity(memory * GIB)},
        counters or {},
        taints,
        is_shared=shared,
    )


def pool(*devices: PoolDevice, sets: Mapping[str, Mapping[str, int]] | None = None) -> Pool:
    return Pool(DRIVER, "node1", devices, sets or {})


def claim(requests: str, further: str = "", name: str = "c") -> str:
    """Return a claim of resource.k8s.io/v1 with these requests, in YAML."""
    body = textwrap.indent(textwrap.dedent(requests).strip(), "    ")
    more = textwrap.indent(textwrap.dedent(further).strip(), "    ")
    return (
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\n"
        f"metadata: {{name: {name}}}\nspec:\n  devices:\n    requests:\n{body}\n{more}\n"
    )


def answers(text: str, pools: Sequence[Pool]) -> list[ClaimAnswer]:
    """Return the answers for the manifest on a node with these pools."""
    return list(claim_answers(claim_manifests.read(text, "claim.yaml"), pools).answers)


def answer(text: str, *devices: PoolDevice, sets: Any = None) -> ClaimAnswer:
    """Return the only answer for a manifest on a node with these devices."""
    (found,) = answers(text, [pool(*devices, sets=sets)])
    return found


def chosen(found: ClaimAnswer) -> list[tuple[str, str]]:
    """Return (request, device) of the allocation."""
    return [(one.request.name, one.match.node_device.device.name) for one in found.outcome.chosen]
