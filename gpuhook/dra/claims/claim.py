# SPDX-License-Identifier: Apache-2.0
"""A ResourceClaim as far as a driver reads it: its allocation."""

from __future__ import annotations

from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


FROM_CLASS, FROM_CLAIM = "FromClass", "FromClaim"  # the sources of parameters


@dataclass(frozen=True, slots=True)
class ClaimName:
    """Which claim it is: a claim that is created again under its name has another `uid`."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class AllocatedDevice:
    """A result of the allocation: a device of a pool, or a share of one.

    `consumed` are the consumed capacities, memory in bytes. An `is_admin` result observes the
    device, and does not use it. `requests_memory`: the claim itself requests the capacity `memory`.
    """

    request: str  # "gpu", without the subrequest: "gpu" for "gpu/small"
    driver: str
    pool: str
    device: str
    share_id: str = ""
    consumed: Mapping[str, int] = field(default_factory=dict)
    is_admin: bool = False
    subrequest: str = ""  # "small" of "gpu/small"
    requests_memory: bool = False


@dataclass(frozen=True, slots=True)
class OpaqueConfig:
    """Parameters for a driver: of the class or of the claim (`source`), for some `requests`.

    Empty `requests` are all; "gpu/small" is only that subrequest. `where` is the path in the claim:
    status.allocation.devices.config[0].opaque.parameters. `owner` is the object that the parameters
    come from, "DeviceClass shared" or "ResourceClaim team/mine", "" if it is unknown.
    """

    source: str  # FROM_CLASS or FROM_CLAIM
    parameters: Mapping[str, Any]
    requests: tuple[str, ...] = ()
    where: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """An allocated claim: the devices and the parameters of one driver, in the API's order."""

    name: ClaimName
    devices: tuple[AllocatedDevice, ...] = ()
    configs: tuple[OpaqueConfig, ...] = ()
