# SPDX-License-Identifier: Apache-2.0
"""Claims on simulated nodes, for the tests of their settings and shares."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from gpuhook.device_plugin.config import config_reader
from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.dra.claims.claim import (
    FROM_CLAIM,
    FROM_CLASS,
    AllocatedDevice,
    Claim,
    ClaimName,
    OpaqueConfig,
)
from gpuhook.dra.claims.settings.claim_settings import NodeSharing
from gpuhook.dra.claims.settings.claim_shares import claim_shares
from gpuhook.dra.claims.settings.device_share import DeviceShare
from gpuhook.dra.pool.pool_device import Capacity, PoolDevice
from gpuhook.dra.pool.sharing_form import sharing_forms
from gpuhook.vendors.amd.inventory import amd_dump
from gpuhook.vendors.catalogue import vendor_of_resource
from gpuhook.vendors.nvidia.inventory import dump_file

GIB = 1 << 30
OWN: dict[str, Any] = {"apiVersion": "gpuhook.io/v1", "kind": "GpuConfig"}
NVIDIA: dict[str, Any] = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
SHARED = "{timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
UNENFORCED = {"nvidia.com": ("the driver is too old", "install driver 615")}


def configuration(sharing: str = SHARED, more: str = "") -> Configuration:
    text = f"version: v1\nmps: {{root: /run/nvidia/mps}}\nsharing: {sharing}\n{more}"
    reading = config_reader.read(text.encode(), "config.yaml")
    assert reading.configuration is not None, reading.findings
    return reading.configuration


class NodeOfClaims:
    """The node of a profile, and the shares that its claims have so far."""

    def __init__(self, sharing: str = SHARED, profile: str = "t4", more: str = "") -> None:
        loaded = configuration(sharing, more)
        is_amd = profile.startswith("mi")
        inventory = amd_dump.load(profile) if is_amd else dump_file.load(profile)
        forms = sharing_forms(loaded, inventory)
        self.sharing = NodeSharing(forms, loaded)
        self.devices = {
            f"gpu-{number}": PoolDevice(
                f"gpu-{number}",
                form.device,
                {"minor": number},
                form.capacity,
                is_shared=form.is_shared,
            )
            for number, form in enumerate(forms.forms.values())
        }
        self.driver = vendor_of_resource("amd.com" if is_amd else "nvidia.com").dra_driver
        self.held: list[DeviceShare] = []

    def without_driver_limits(self) -> NodeOfClaims:
        self.sharing = replace(self.sharing, unenforced=UNENFORCED)
        return self

    def result(self, device: str = "gpu-0", request: str = "gpu", **fields: Any) -> AllocatedDevice:
        """Return a result; of a shared device it consumes the default memory."""
        found = self.devices[device]
        memory = found.capacity.get("memory", Capacity(0)).default
        consumed = {"memory": memory} if found.is_shared and memory else {}
        values = {"consumed": consumed, **fields}
        return AllocatedDevice(request, self.driver, "node1", device, **values)

    def claim(
        self,
        name: str,
        *results: AllocatedDevice,
        of_class: Collection[object] = (),
        of_claim: Collection[object] = (),
    ) -> Claim:
        """Return a claim, by default of gpu-0; parameters are for all requests."""
        entries = [
            *((FROM_CLASS, one) for one in of_class),
            *((FROM_CLAIM, one) for one in of_claim),
        ]
        configs = tuple(
            one
            if isinstance(one, OpaqueConfig)
            else OpaqueConfig(
                source,
                one,  # type: ignore[arg-type]
                where=f"config[{number}]",
                owner="DeviceClass shared" if source == FROM_CLASS else "",
            )
            for number, (source, one) in enumerate(entries)
        )
        uid = f"{name}-uid"
        return Claim(ClaimName("team", name, uid), results or (self.result(),), configs)

    def shares(self, claim: Claim) -> tuple[DeviceShare, ...]:
        """Prepare a claim: return its shares, and keep them for the next ones."""
        found = claim_shares(claim, self.devices, self.sharing, self.held)
        self.held += found
        return found
