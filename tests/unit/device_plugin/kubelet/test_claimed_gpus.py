# SPDX-License-Identifier: Apache-2.0
"""The device plugin assigns no GPU that a claim has, as the checkpoint of a DRA driver says."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from gpuhook.device_plugin.config.sharing_section import MPS, TIME_SLICING, SharedResource
from gpuhook.device_plugin.kubelet import claimed_gpus
from gpuhook.device_plugin.kubelet.claimed_gpus import ClaimedGpus
from gpuhook.device_plugin.offer.offered_devices import Resource, UnitMemory
from gpuhook.device_plugin.triggers import Reason, Triggers
from gpuhook.dra.claims.checkpoint import checkpoint_file
from gpuhook.dra.claims.checkpoint.checkpoint_file import Checkpoint
from gpuhook.dra.claims.claim import AllocatedDevice, Claim
from gpuhook.dra.claims.prepared_claim import HeldDevice, PreparedClaim
from gpuhook.dra.pool.pool_device import MEMORY
from gpuhook.errors import GpuhookError
from tests.kubelet.allocated_claims import named
from tests.unit.offering import H100, divided, offer

DRIVER = "gpu.nvidia.com"
UUIDS = [str(gpu.uuid) for gpu in H100.gpus]


class Claims:
    """A driver's checkpoint, and a plugin that reads it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "proc/sys/kernel/random").mkdir(parents=True)
        (place / "plugins" / DRIVER).mkdir(parents=True)
        self.boot("boot-1")
        self.checkpoint = Checkpoint(str(place / "plugins" / DRIVER), "boot-1")
        self.triggers = Triggers()
        self.plugin = self.started()

    def boot(self, name: str) -> None:
        (self.place / "proc/sys/kernel/random/boot_id").write_text(name + "\n", encoding="utf-8")

    def started(self) -> ClaimedGpus:
        return ClaimedGpus(str(self.place / "plugins"), self.triggers, str(self.place))

    def add(self, name: str, *held: HeldDevice, memory: int | None = None) -> None:
        """Add the intent of a claim."""
        consumed = {} if memory is None else {MEMORY: memory}
        devices = tuple(
            AllocatedDevice("gpu", DRIVER, "node1", one.name, one.part, consumed) for one in held
        )
        made = PreparedClaim(Claim(named(name), devices), held)
        self.checkpoint.change(lambda claims: claims.update({made.claim.name.uid: made}))

    def remove(self, name: str) -> None:
        self.checkpoint.change(lambda claims: claims.__delitem__(named(name).uid))


@pytest.fixture
def claims(tmp_path: Path) -> Claims:
    return Claims(tmp_path)


def resource(sharing: str = "none", replicas: int = 1) -> Resource:
    """Return the resource of eight GPUs."""
    entries = [SharedResource("nvidia.com/gpu", replicas)] if replicas > 1 else []
    (found,) = offer(H100, *entries).resources
    return replace(found, sharing=sharing)


def refused(claims: Claims, offered: Resource, identifier: str) -> str:
    """Return why a unit is refused, "" if it is not."""
    try:
        claims.plugin.check(offered, [identifier])
    except GpuhookError as error:
        return error.message if error.code == "GH2642" else error.code
    return ""


def test_claimed_gpu_is_neither_offered_nor_allocated(claims: Claims) -> None:
    offered = resource()
    assert claims.plugin.unavailable([offered]) == {}
    claims.add("mine", HeldDevice("gpu-2", UUIDS[2]))
    assert refused(claims, offered, UUIDS[2]) == (
        f"{UUIDS[2]} of nvidia.com/gpu cannot be assigned: claim default/mine has the GPU"
    )
    assert refused(claims, offered, UUIDS[1]) == ""
    assert claims.plugin.unavailable([offered]) == {UUIDS[2]: f"claim default/mine has {UUIDS[2]}"}
    claims.remove("mine")
    assert refused(claims, offered, UUIDS[2]) == ""
    assert claims.plugin.unavailable([offered]) == {}


def test_change_triggers_a_turn_once(claims: Claims) -> None:
    async def pending() -> frozenset[Reason]:
        claims.plugin.on_poll()
        return frozenset(claims.triggers._pulled)

    assert asyncio.run(pending()) == frozenset()
    claims.add("mine", HeldDevice("gpu-2", UUIDS[2]))
    assert asyncio.run(pending()) == {Reason.HEALTH}
    claims.triggers._pulled.clear()
    claims.plugin.unavailable([resource()])
    assert asyncio.run(pending()) == frozenset()


@pytest.mark.parametrize(
    ("sharing", "part", "memory", "limit", "is_refused"),
    [
        (TIME_SLICING, "share", 0, None, False),
        (TIME_SLICING, "share", 4 << 30, None, True),  # the claim's memory may be taken
        (TIME_SLICING, "share", 0, 4 << 30, True),  # the replica's memory may be taken
        (TIME_SLICING, "share", None, None, True),  # an MPS server of the claim
        (TIME_SLICING, "", None, None, True),
        (MPS, "share", 0, None, True),
    ],
)
def test_time_sliced_shares_without_limits_can_meet(
    claims: Claims,
    sharing: str,
    part: str,
    memory: int | None,
    limit: int | None,
    is_refused: bool,
) -> None:
    offered = resource(sharing, 4)
    limits = {} if limit is None else {UUIDS[2]: UnitMemory(limit, limit)}
    offered = replace(offered, memory=limits)
    claims.add("mine", HeldDevice("gpu-2", UUIDS[2], part=part), memory=memory)
    assert bool(refused(claims, offered, f"{UUIDS[2]}::1")) is is_refused
    assert bool(claims.plugin.unavailable([offered])) is is_refused


def test_instance_and_its_gpu_exclude_each_other(claims: Claims) -> None:
    found = offer(divided(H100, 0, "1g.10gb", "1g.10gb"), mig="mixed").resources
    (instances,) = (one for one in found if one.is_mig)
    first, second = instances.units
    claims.add("part", HeldDevice("gpu-0-mig", first.device.uuid, UUIDS[0]))
    assert refused(claims, instances, first.id)
    assert not refused(claims, instances, second.id)
    assert refused(claims, resource(), UUIDS[0])
    claims.remove("part")
    claims.add("whole", HeldDevice("gpu-0", UUIDS[0]))
    assert refused(claims, instances, second.id)


def test_admin_access_does_not_occupy_a_gpu(claims: Claims) -> None:
    claims.add("monitor", HeldDevice("gpu-2", UUIDS[2], is_admin=True))
    assert not refused(claims, resource(), UUIDS[2])


def test_claims_of_another_boot_have_nothing(claims: Claims) -> None:
    """The driver may start after the plugin; the kubelet prepares the claims again."""
    claims.add("mine", HeldDevice("gpu-2", UUIDS[2]))
    claims.boot("boot-2")
    claims.plugin = claims.started()
    assert not refused(claims, resource(), UUIDS[2])


@pytest.mark.parametrize("text", ["", "{", "{}\n{}", '{"boot": "boot-1"}\n[]', "\xff\n\xff"])
def test_damaged_checkpoint_has_its_last_content(claims: Claims, text: str) -> None:
    claims.add("mine", HeldDevice("gpu-2", UUIDS[2]))
    assert refused(claims, resource(), UUIDS[2])
    Path(claims.checkpoint.path).write_text(text, encoding="latin-1")
    assert refused(claims, resource(), UUIDS[2])
    assert claims.started().unavailable([resource()]) == {}


def test_name_of_the_checkpoint_is_the_drivers() -> None:
    assert claimed_gpus.CHECKPOINT == checkpoint_file.NAME
