# SPDX-License-Identifier: Apache-2.0
"""What the parameters and the shares of a claim add to the devices of one request."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.dra.claims.claim import Claim
    from gpuhook.dra.claims.prepared_claim import HeldDevice
    from gpuhook.dra.pool.pool_device import Pool


def edits(claim: Claim, request: str, devices: Sequence[HeldDevice], pool: Pool) -> ContainerEdits:
    """Return what a request adds to the edits of its devices.

    A container may name several requests and claims: a variable with several values is left out,
    so that what differs between them must be in mounts.
    """
    del claim, request, devices, pool
    return {}
