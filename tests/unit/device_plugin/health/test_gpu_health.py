# SPDX-License-Identifier: Apache-2.0
"""The health of GPUs, their replicas and their MIG instances."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuhook.device_plugin.config.gpuhook_section import Health
from gpuhook.device_plugin.health import affected_pods
from gpuhook.device_plugin.health.gpu_health import GpuHealth
from gpuhook.device_plugin.health.health_marks import (
    ALL,
    Evidence,
    HealthMark,
    document,
    from_document,
)
from gpuhook.device_plugin.metrics.unit_holders import Holder
from gpuhook.device_plugin.offer.offered_devices import Device, Resource, Unit
from gpuhook.vendors.nvidia.inventory.inventory import Gpu
from gpuhook.vendors.nvidia.plugin.nvml_watcher import XidReport

GPUS = tuple(Gpu(n, f"GPU-{n}") for n in range(4))
WHOLE = tuple(Device(f"GPU-{n}", str(n), f"GPU-{n}", n, (), ()) for n in range(4))
MIG = tuple(Device(f"MIG-{n}", f"0:{n}", "GPU-0", 0, (), (), instance=(7 + n, 0)) for n in range(7))
FIRST = Evidence("boot-1", "driver-1", {"GPU-0": "slot-1"})


def gpu_health(settings: Health | None = None, evidence: Evidence = FIRST) -> GpuHealth:
    health = GpuHealth(settings or Health(), evidence)
    assert health.update_gpus(GPUS, 0.0) == ()
    for gpu in health.gpus_to_query():
        assert health.update_action(gpu, None, 0.0) == ()
    return health


def xid(
    number: int, uuid: str | None = "GPU-0", instance: tuple[int | None, int | None] = (None, None)
) -> XidReport:
    return XidReport(uuid, number, *instance)


def replicas(devices: tuple[Device, ...], count: int) -> Resource:
    units = [Unit(f"{d.uuid}::{n}", d, n) for d in devices for n in range(count)]
    return Resource("nvidia.com/gpu", tuple(units), "time-slicing")


def test_xid_makes_all_replicas_of_its_gpu_unhealthy() -> None:
    """XID 79 marks the three replicas of its GPU, and no replica of another GPU."""
    health = gpu_health()
    before = health.version
    assert health.add_xid(xid(79), None, 1.0).unhealthy
    assert health.version == before + 1
    unhealthy = health.unhealthy(WHOLE)
    assert unhealthy == {"GPU-0": "XID 79 (the GPU has fallen off the bus)"}
    hit = affected_pods.affected([replicas(WHOLE, 3)], unhealthy)
    assert hit == (
        affected_pods.Affected("nvidia.com/gpu", ("GPU-0::0", "GPU-0::1", "GPU-0::2"), 12),
    )


def test_xid_without_a_gpu_marks_no_gpu() -> None:
    """It is reported, and the node is probed."""
    health = gpu_health()
    before = health.version
    verdict = health.add_xid(xid(79, None), None, 1.0)
    assert not verdict.unhealthy
    assert "does not identify" in verdict.reason
    assert health.needs_probe
    assert health.unhealthy(WHOLE) == {}
    assert health.version == before
    health.update_gpus(GPUS, 2.0)
    assert not health.needs_probe


def test_lost_gpu_is_identified_by_its_index() -> None:
    """A lost GPU may have no UUID; the other GPUs remain healthy."""
    health = gpu_health()
    lost = (GPUS[0], Gpu(1, lost="fallen off the bus"), *GPUS[2:])
    assert health.update_gpus(lost, 1.0) == ("GPU 1 (GPU-1) is lost: fallen off the bus",)
    assert health.unhealthy(WHOLE) == {"GPU-1": "lost: fallen off the bus"}
    assert health.update_gpus(lost, 2.0) == ()


def test_lost_gpu_without_a_known_uuid_is_reported() -> None:
    """No device can be marked for it."""
    health = gpu_health()
    stranger = Gpu(7, lost="needs a reset")
    reported = ("GPU 7 is lost: needs a reset",)
    assert health.update_gpus((*GPUS, stranger), 1.0) == reported
    assert health.update_gpus((*GPUS, stranger), 2.0) == ()
    health.update_gpus(GPUS, 3.0)
    assert health.update_gpus((*GPUS, stranger), 4.0) == reported
    assert health.unhealthy(WHOLE) == {}


def test_contained_error_marks_its_mig_instance_only() -> None:
    """An error contained in an instance takes that one, whichever of the seven it is."""
    for hit in MIG:
        health = gpu_health()
        assert hit.instance
        health.add_xid(xid(95, "GPU-0", hit.instance), None, 1.0)
        assert list(health.unhealthy(MIG)) == [hit.uuid]


def test_xid_of_the_whole_gpu_marks_all_mig_instances() -> None:
    """The GPU has fallen off the bus, whichever instance reported it."""
    health = gpu_health()
    health.add_xid(xid(79, "GPU-0", (8, 0)), None, 1.0)
    assert set(health.unhealthy(MIG)) == {device.uuid for device in MIG}
    assert health.unhealthy(WHOLE[1:]) == {}


def test_driver_action_marks_all_mig_instances() -> None:
    """A reset concerns the whole GPU, although one instance reported the XID."""
    health = gpu_health()
    health.add_xid(xid(95, "GPU-0", (8, 0)), "reset", 1.0)
    assert len(health.unhealthy(MIG)) == 7


def test_xid_of_a_gpu_instance_marks_its_compute_instances() -> None:
    """An event without a compute instance concerns all compute instances."""
    health = gpu_health()
    health.add_xid(xid(95, "GPU-0", (8, None)), None, 1.0)
    both = (MIG[1], replace(MIG[1], uuid="MIG-x", instance=(8, 1)), MIG[2])
    assert list(health.unhealthy(both)) == ["MIG-1", "MIG-x"]


def test_answering_gpu_stays_unhealthy_without_evidence() -> None:
    """An XID or a lost GPU needs a reboot, a driver reload or a replacement."""
    health = gpu_health()
    health.add_xid(xid(79), None, 1.0)
    health.update_gpus((*GPUS[:2], Gpu(2, "GPU-2", lost="needs a reset"), GPUS[3]), 2.0)
    for moment in range(3, 9):
        health.update_gpus(GPUS, float(moment))
        health.update_evidence(FIRST)
        health.set_driver_trouble("")
        health.update_action("GPU-0", None, float(moment))
    assert set(health.unhealthy(WHOLE)) == {"GPU-0", "GPU-2"}


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (replace(FIRST, boot="boot-2"), "the node was rebooted"),
        (replace(FIRST, driver="driver-2"), "the driver was reloaded"),
        (replace(FIRST, slots={"GPU-0": "slot-2"}), "the GPU was reconnected"),
    ],
)
def test_evidence_removes_marks(now: Evidence, words: str) -> None:
    """A reboot, a driver reload or a replugged GPU makes the GPU healthy."""
    health = gpu_health()
    health.add_xid(xid(79), None, 1.0)
    assert health.update_evidence(Evidence()) == ()  # unreadable facts are no evidence
    assert [ended.evidence for ended in health.update_evidence(now)] == [words]
    assert health.unhealthy(WHOLE) == {}
    health.add_xid(xid(79), None, 2.0)
    assert health.update_evidence(now) == ()  # a mark that is newer than the evidence remains


def test_replugged_lost_gpu_is_healthy() -> None:
    """Its slot is known from before it was lost."""
    health = gpu_health()
    health.update_evidence(Evidence("boot-1"))
    health.update_gpus((Gpu(0, lost="fallen off the bus"), *GPUS[1:]), 1.0)
    assert health.update_evidence(FIRST) == ()
    assert len(health.update_evidence(replace(FIRST, slots={"GPU-0": "slot-2"}))) == 1
    assert health.unhealthy(WHOLE) == {}


def test_lost_gpu_stays_unhealthy_if_the_driver_requires_no_action() -> None:
    """The driver's word is not taken for a GPU that its list calls lost at the same time."""
    health = gpu_health()
    lost = (Gpu(0, "GPU-0", lost="its interrupts are not received"), *GPUS[1:])
    for moment in (1.0, 2.0, 3.0):
        health.update_gpus(lost, moment)
        assert health.update_action("GPU-0", "none", moment) == ()
        assert list(health.unhealthy(WHOLE)) == ["GPU-0"]
    health.update_gpus(GPUS, 4.0)
    assert len(health.update_action("GPU-0", "none", 5.0)) == 1


def test_driver_action_none_removes_marks_of_the_driver() -> None:
    """Marks of XIDs that the settings enable remain until the operator clears them."""
    health = gpu_health(Health(enabled_xids=frozenset({31})))
    health.add_xid(xid(109), None, 1.0)
    health.update_action("GPU-0", "reset", 2.0)
    health.add_xid(xid(31, "GPU-1"), "none", 3.0)
    assert health.gpus_to_query() == ("GPU-0",)
    assert len(health.update_action("GPU-0", "none", 4.0)) == 2
    assert health.update_action("GPU-1", "none", 4.0) == ()
    assert list(health.unhealthy(WHOLE)) == ["GPU-1"]
    assert health.gpus_to_query() == ()


def test_driver_is_queried_again_after_a_severe_xid() -> None:
    """The XID table lists the XID as severe, and the driver requires no action yet."""
    health = gpu_health()
    health.add_xid(xid(119), "none", 1.0)
    assert health.unhealthy(WHOLE) == {}
    assert health.gpus_to_query() == ("GPU-0",)
    health.update_action("GPU-0", "reset", 2.0)
    assert health.unhealthy(WHOLE) == {"GPU-0": "the driver requires: reset the GPU"}
    version = health.version
    health.update_action("GPU-0", "reset", 3.0)  # the same action is no change
    assert health.version == version
    health.update_action("GPU-0", "reboot", 4.0)
    assert health.marks[0].remedy == "reboot the node"
    assert GpuHealth(Health(ask_driver=False), FIRST, health.marks).gpus_to_query() == ()


def test_new_gpu_is_queried_for_its_action() -> None:
    """It may need a reset since before the plugin's start; one answer is enough."""
    health = GpuHealth(Health(), FIRST)
    health.update_gpus(GPUS, 0.0)
    assert health.gpus_to_query() == ("GPU-0", "GPU-1", "GPU-2", "GPU-3")
    for gpu, action in zip(health.gpus_to_query(), ("none", "reset", None, None), strict=True):
        health.update_action(gpu, action, 1.0)
    assert list(health.unhealthy(WHOLE)) == ["GPU-1"]
    health.update_gpus(GPUS, 2.0)
    assert health.gpus_to_query() == ("GPU-1",)


def test_query_all_finds_errors_missed_by_the_watch() -> None:
    """An XID during a restart of NVML is missed, but changes the driver's recovery action."""
    health = gpu_health()
    assert health.gpus_to_query() == ()
    health.query_all()
    assert health.gpus_to_query() == ("GPU-0", "GPU-1", "GPU-2", "GPU-3")
    for gpu in health.gpus_to_query():
        health.update_action(gpu, "reset" if gpu == "GPU-2" else "none", 1.0)
    assert list(health.unhealthy(WHOLE)) == ["GPU-2"]


@pytest.mark.parametrize(
    "settings",
    [Health(ignored_xids="all"), Health(critical_xids=frozenset({79})), Health(ask_driver=False)],
)
def test_driver_is_not_queried_if_settings_decide_all_xids(settings: Health) -> None:
    """The driver's recovery action then marks no GPU."""
    health = GpuHealth(settings, FIRST)
    health.update_gpus(GPUS, 0.0)
    assert health.gpus_to_query() == ()
    health.update_action("GPU-0", "reset", 1.0)
    assert health.unhealthy(WHOLE) == {}


def test_clear_removes_marks_older_than_the_request() -> None:
    """`all` clears every GPU."""
    health = gpu_health()
    health.add_xid(xid(79), None, 10.0)
    assert health.clear("GPU-0", 9.0) == ()
    assert health.clear("GPU-1", 11.0) == ()
    assert [ended.mark.source for ended in health.clear("GPU-0", 11.0)] == ["xid 79"]
    health.add_xid(xid(79, "GPU-3"), None, 12.0)
    assert len(health.clear(ALL, 13.0)) == 1


def test_clear_removes_marks_of_the_future() -> None:
    """The clock was set back by a year after the mark: the request is not lost."""
    health = gpu_health()
    health.add_xid(xid(79), None, 1e9)
    assert health.clear("GPU-0", 1e9 - 50, now=1e9 + 1) == ()
    assert len(health.clear("GPU-0", 1e9 - 3e7, now=1e9 - 3e7 + 5)) == 1


def test_unlisted_gpu_is_unhealthy_until_it_is_listed() -> None:
    """`clear` makes the plugin forget the GPU."""
    health = gpu_health()
    assert health.update_gpus(GPUS[:3], 1.0) == ("GPU 3 (GPU-3) is no longer listed by the driver",)
    assert list(health.unhealthy(WHOLE)) == ["GPU-3"]
    assert health.update_gpus(GPUS, 2.0) == ("GPU 3 (GPU-3) is listed again",)
    assert health.unhealthy(WHOLE) == {}
    health.update_gpus(GPUS[:3], 3.0)
    health.clear("GPU-3", 4.0)
    assert health.update_gpus(GPUS[:3], 5.0) == ()


def test_driver_trouble_makes_all_gpus_unhealthy() -> None:
    """When the driver answers again, only marked GPUs remain unhealthy."""
    health = gpu_health()
    health.add_xid(xid(79), None, 1.0)
    health.set_driver_trouble("the driver is not loaded")
    assert len(health.unhealthy(WHOLE)) == 4
    assert health.unhealthy(WHOLE)["GPU-1"] == "the driver is not loaded"
    health.set_driver_trouble("")
    assert list(health.unhealthy(WHOLE)) == ["GPU-0"]


def test_ignoring_xids_removes_their_marks() -> None:
    """Marks that do not come from XIDs remain."""
    health = gpu_health()
    health.add_xid(xid(79), None, 1.0)
    health.update_gpus((*GPUS[:3], Gpu(3, "GPU-3", lost="needs a reset")), 2.0)
    assert len(health.configure(Health(ignored_xids="all"))) == 1
    assert list(health.unhealthy(WHOLE)) == ["GPU-3"]


def test_all_reasons_are_listed_once() -> None:
    """The oldest reason is first."""
    health = gpu_health()
    health.add_xid(xid(74), None, 2.0)
    health.add_xid(xid(79), None, 1.0)
    health.add_xid(xid(74), None, 3.0)
    reason = health.unhealthy(WHOLE)["GPU-0"]
    assert reason == "XID 79 (the GPU has fallen off the bus); XID 74 (an NVLink failed)"


def test_marks_round_trip_through_json() -> None:
    """Malformed documents are no marks."""
    health = gpu_health()
    health.add_xid(xid(95, "GPU-0", (8, None)), None, 1.0)
    mark = health.marks[0]
    assert from_document(document(mark)) == mark
    assert mark.label == "GPU 0 (GPU-0), GPU instance 8"
    assert from_document({"gpu": "GPU-0"}) is None
    assert from_document([]) is None
    odd = {"gpu": "GPU-0", "source": "lost", "reason": "r", "since": "x", "instance": [1], "n": 1}
    assert from_document(odd) == HealthMark("GPU-0", "lost", "r")


def test_sentence_has_gpu_reason_resources_and_pods() -> None:
    """One line has the GPU, what happened, how much is gone and whose it was."""
    units = ("u::0", "u::1")
    hit = affected_pods.Affected("nvidia.com/gpu", units, 4)
    held = zip(("u::0", "u::1", "v::0"), "baz", strict=True)
    holders = {unit: Holder("ns", pod, "c") for unit, pod in held}
    names = affected_pods.pods(units, holders)
    assert names == ("ns/a", "ns/b")
    assert affected_pods.sentence("GPU 0 (u)", "reported XID 79", [hit], names) == (
        "GPU 0 (u) reported XID 79; unhealthy: nvidia.com/gpu 2 of 4; pods: ns/a, ns/b"
    )
    assert affected_pods.sentence("G", "w", [hit], None).endswith("pods: not known")
    assert affected_pods.sentence("G", "w", [hit], ()).endswith("pods: none")
    many = [f"ns/{n}" for n in range(13)]
    assert affected_pods.sentence("G", "w", [hit], many).endswith("ns/9 and 3 more")
