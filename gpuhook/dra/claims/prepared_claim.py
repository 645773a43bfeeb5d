# SPDX-License-Identifier: Apache-2.0
"""A claim that the driver prepares or has prepared, with all that its end and a repair need."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from gpuhook.dra.claims.claim import AllocatedDevice, Claim, ClaimName, OpaqueConfig
from gpuhook.dra.claims.settings.device_share import DeviceShare, share_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from gpuhook.dra.pool.pool_device import PoolDevice


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """A device in the answer to the kubelet."""

    request: str
    pool: str
    device: str
    cdi_names: tuple[str, ...]
    share_id: str = ""


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """The device of this node that a result of the allocation names.

    `gpu` is the UUID of the GPU of an instance, "" for a device that is no instance. `part` is the
    share or the replica of the device that the claim has, "" for all of it.
    """

    name: str
    uuid: str
    gpu: str = ""
    part: str = ""
    is_admin: bool = False

    def excludes(self, other: HeldDevice) -> bool:
        """Return whether two claims cannot have these devices at the same time."""
        if self.is_admin or other.is_admin:
            return False
        if self.uuid == other.uuid:
            return not (self.part and other.part and self.part != other.part)
        return self.gpu == other.uuid or other.gpu == self.uuid


@dataclass(frozen=True, slots=True)
class PreparedClaim:
    """A claim with its devices and their shares, in the order of the allocation.

    `token` is that of the driver's files for which the CDI spec was written. A claim that is not
    `is_complete` is an intent: its spec may not be written yet.
    """

    claim: Claim
    held: tuple[HeldDevice, ...]
    token: str = ""
    is_complete: bool = False
    shares: tuple[DeviceShare, ...] = ()

    def conflict(self, others: Iterable[PreparedClaim]) -> tuple[HeldDevice, PreparedClaim] | None:
        """Return a device that another claim has, and that claim."""
        own = self.claim.name.uid
        pairs = (
            (held, other)
            for other in others
            if other.claim.name.uid != own
            for held in self.held
            if any(held.excludes(one) for one in other.held)
        )
        return next(pairs, None)

    def requests(self) -> Iterator[str]:
        """Yield the requests with devices, each one once."""
        yield from dict.fromkeys(device.request for device in self.claim.devices)

    def document(self) -> dict[str, Any]:
        """Return the claim as JSON has it; from_document() reads it."""
        return asdict(self)


def held(result: AllocatedDevice, found: PoolDevice) -> HeldDevice:
    """Return what a result of the allocation holds of the pool's device."""
    device = found.device
    part = result.share_id or ("" if found.replica is None else f"replica {found.replica}")
    is_instance = device.instance is not None
    return HeldDevice(
        found.name, device.uuid, device.gpu if is_instance else "", part, result.is_admin
    )


def from_document(document: Mapping[str, Any]) -> PreparedClaim:
    """Return the claim of a document; raises KeyError, TypeError or ValueError for another one."""
    claim = document["claim"]
    devices = tuple(AllocatedDevice(**one) for one in claim["devices"])
    configs = tuple(
        OpaqueConfig(**{**one, "requests": tuple(one["requests"])}) for one in claim["configs"]
    )
    found = PreparedClaim(
        Claim(ClaimName(**claim["name"]), devices, configs),
        tuple(HeldDevice(**one) for one in document["held"]),
        document["token"],
        document["is_complete"],
        tuple(share_of(one) for one in document["shares"]),
    )
    if len(found.held) != len(devices) or not devices or not found.claim.name.uid:
        raise ValueError("it lacks devices")
    return found
