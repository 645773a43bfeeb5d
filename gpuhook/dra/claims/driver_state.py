# SPDX-License-Identifier: Apache-2.0
"""What claims are prepared from: a driver's pool and CDI spec at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.dra.claims.settings.claim_settings import NodeSharing
from gpuhook.dra.slices import server_features
from gpuhook.dra.slices.server_features import ServerFeatures
from gpuhook.dra.slices.server_form import server_form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.container_edits import Spec
    from gpuhook.dra.pool.pool_device import Pool, PoolDevice

_WITHOUT_SHARES = ServerFeatures().without([server_features.SHARES])


@dataclass(frozen=True, slots=True)
class DriverState:
    """The pool, and the CDI spec of its devices by UUID.

    `token` changes with the driver's files and devices. `trouble` is why no device can be given to
    containers. `sharing` is how claims share the devices.
    """

    pool: Pool
    spec: Spec
    token: str = ""
    trouble: str = ""
    sharing: NodeSharing = field(default_factory=NodeSharing)

    def device(self, name: str) -> PoolDevice | None:
        """Return the device with this name, also one of a GPU that has a device for each slot."""
        found = self.pool.device(name)
        if found is None:
            found = server_form(self.pool, _WITHOUT_SHARES).device(name)
        return found
