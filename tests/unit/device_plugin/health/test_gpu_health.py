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
from gpuhook.device_plugin.health.nvml_watcher import XidReport
from gpuhook.device_plugin.metrics.unit_holders import Holder
from gpuhook.device_plugin.offer.offered_devices import Device, Resource, Unit
from gpuhook.vendors.nvidia.inventory.inventory import Gpu

GPUS = tuple(Gpu(n, f"GPU-{n}") for n in range(4))
WHOLE = tuple(Device(f"GPU-{n}", str(n), f"GPU-{n}", n, (), ()) for n in range(4))
MIG = tuple(Device(f"MIG-{n}", f"0:{n}", "GPU-0", 0, (), (), instance=(7 + n, 0)) for n in range(7))
FIRST = Evidence("boot-1", "driver-1", {"GPU-0": "slot-1"})


def book(settings: Health | None = None, evidence: Evidence = FIRST) -> GpuHealth:
    made = GpuHealth(settings or Health(), evidence)
    assert made.update_gpus(GPUS, 0.0) == ()
    for gpu in made.gpus_to_query():
        assert made.update_action(gpu, None, 0.0) == ()
    return made


def xid(
    number: int, uuid: str | None = "GPU-0", instance: tuple[int | None, int | None] = (None, None)
) -> XidReport:
    return XidReport(uuid, number, *instance)


def replicas(devices: tuple[Device, ...], count: int) -> Resource:
    units = [Unit(f"{d.uuid}::{n}", d, n) for d in devices for n in range(count)]
    return Resource("nvidia.com/gpu", tuple(units), "time-slicing")


def test_a1_all_replicas_of_a_gpu_go_at_once() -> None:
    """XID 79 on a GPU with three replicas takes all three, and no other GPU's."""
    made = book()
    before = made.version
    assert made.add_xid(xid(79), None, 1.0).unhealthy
    assert made.version == before + 1
    unhealthy = made.unhealthy(WHOLE)
    assert unhealthy == {"GPU-0": "XID 79 (the GPU has fallen off the bus)"}
    hit = affected_pods.affected([replicas(WHOLE, 3)], unhealthy)
    assert hit == (
        affected_pods.Affected("nvidia.com/gpu", ("GPU-0::0", "GPU-0::1", "GPU-0::2"), 12),
    )


def test_a2_an_error_of_an_unknown_gpu_marks_nobody() -> None:
    """It is reported, and the GPUs are to be looked at; the others of the node stay healthy."""
    made = book()
    before = made.version
    verdict = made.add_xid(xid(79, None), None, 1.0)
    assert not verdict.unhealthy
    assert "does not identify" in verdict.reason
    assert made.needs_probe
    assert made.unhealthy(WHOLE) == {}
    assert made.version == before
    made.update_gpus(GPUS, 2.0)
    assert not made.needs_probe


def test_a2_only_the_lost_gpu_is_unhealthy() -> None:
    """A lost GPU that cannot even say its UUID is known by its index; its neighbours go on."""
    made = book()
    lost = (GPUS[0], Gpu(1, lost="fallen off the bus"), *GPUS[2:])
    assert made.update_gpus(lost, 1.0) == ("GPU 1 (GPU-1) is lost: fallen off the bus",)
    assert made.unhealthy(WHOLE) == {"GPU-1": "lost: fallen off the bus"}
    assert made.update_gpus(lost, 2.0) == ()


def test_a_lost_gpu_that_was_never_known_is_told() -> None:
    """Nothing can be marked by it, and nothing is hidden."""
    made = book()
    stranger = Gpu(7, lost="needs a reset")
    told = ("GPU 7 is lost: needs a reset",)
    assert made.update_gpus((*GPUS, stranger), 1.0) == told
    assert made.update_gpus((*GPUS, stranger), 2.0) == ()
    made.update_gpus(GPUS, 3.0)
    assert made.update_gpus((*GPUS, stranger), 4.0) == told
    assert made.unhealthy(WHOLE) == {}


def test_a16_each_instance_of_a_gpu_can_be_hit() -> None:
    """An error contained in an instance takes that one, whichever of the seven it is."""
    for hit in MIG:
        made = book()
        assert hit.instance
        made.add_xid(xid(95, "GPU-0", hit.instance), None, 1.0)
        assert list(made.unhealthy(MIG)) == [hit.uuid]


def test_an_error_of_the_whole_gpu_takes_all_instances() -> None:
    """A GPU that fell off the bus took all its instances along, whichever one noticed."""
    made = book()
    made.add_xid(xid(79, "GPU-0", (8, 0)), None, 1.0)
    assert set(made.unhealthy(MIG)) == {device.uuid for device in MIG}
    assert made.unhealthy(WHOLE[1:]) == {}


def test_the_drivers_action_is_of_the_whole_gpu() -> None:
    """A GPU that must be reset takes all its instances, though an instance reported it."""
    made = book()
    made.add_xid(xid(95, "GPU-0", (8, 0)), "reset", 1.0)
    assert len(made.unhealthy(MIG)) == 7


def test_an_error_of_a_gpu_instance_takes_its_compute_instances() -> None:
    """Without a compute instance, all those of the GPU instance are meant."""
    made = book()
    made.add_xid(xid(95, "GPU-0", (8, None)), None, 1.0)
    both = (MIG[1], replace(MIG[1], uuid="MIG-x", instance=(8, 1)), MIG[2])
    assert list(made.unhealthy(both)) == ["MIG-1", "MIG-x"]


def test_a_getter_that_works_is_no_evidence() -> None:
    """A GPU that answers again after an XID, or after it was lost, stays unhealthy."""
    made = book()
    made.add_xid(xid(79), None, 1.0)
    made.update_gpus((*GPUS[:2], Gpu(2, "GPU-2", lost="needs a reset"), GPUS[3]), 2.0)
    for moment in range(3, 9):
        made.update_gpus(GPUS, float(moment))
        made.update_evidence(FIRST)
        made.set_driver_trouble("")
        made.update_action("GPU-0", None, float(moment))
    assert set(made.unhealthy(WHOLE)) == {"GPU-0", "GPU-2"}


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (replace(FIRST, boot="boot-2"), "the node was rebooted"),
        (replace(FIRST, driver="driver-2"), "the driver was reloaded"),
        (replace(FIRST, slots={"GPU-0": "slot-2"}), "the GPU was plugged in again"),
    ],
)
def test_evidence_wipes_marks(now: Evidence, words: str) -> None:
    """A reboot, a reload of the driver, or a replugged GPU makes it healthy."""
    made = book()
    made.add_xid(xid(79), None, 1.0)
    assert made.update_evidence(Evidence()) == ()  # what cannot be read proves nothing
    assert [ended.evidence for ended in made.update_evidence(now)] == [words]
    assert made.unhealthy(WHOLE) == {}
    made.add_xid(xid(79), None, 2.0)
    assert made.update_evidence(now) == ()  # what came after it is not wiped by it


def test_a_lost_gpu_that_is_plugged_in_anew_is_healthy() -> None:
    """Where it was is known from before it was lost, though then nothing could be read of it."""
    made = book()
    made.update_evidence(Evidence("boot-1"))
    made.update_gpus((Gpu(0, lost="fallen off the bus"), *GPUS[1:]), 1.0)
    assert made.update_evidence(FIRST) == ()
    assert len(made.update_evidence(replace(FIRST, slots={"GPU-0": "slot-2"}))) == 1
    assert made.unhealthy(WHOLE) == {}


def test_a_gpu_that_is_still_lost_does_not_come_and_go() -> None:
    """The driver's word is not taken for a GPU that its list calls lost at the same time."""
    made = book()
    lost = (Gpu(0, "GPU-0", lost="its interrupts do not arrive"), *GPUS[1:])
    for moment in (1.0, 2.0, 3.0):
        made.update_gpus(lost, moment)
        assert made.update_action("GPU-0", "none", moment) == ()
        assert list(made.unhealthy(WHOLE)) == ["GPU-0"]
    made.update_gpus(GPUS, 4.0)
    assert len(made.update_action("GPU-0", "none", 5.0)) == 1


def test_the_driver_wipes_what_it_may() -> None:
    """Its word that no action is needed ends a reset's wait, but not what the operator fixed."""
    made = book(Health(enabled_xids=frozenset({31})))
    made.add_xid(xid(109), None, 1.0)
    made.update_action("GPU-0", "reset", 2.0)
    made.add_xid(xid(31, "GPU-1"), "none", 3.0)
    assert made.gpus_to_query() == ("GPU-0",)
    assert len(made.update_action("GPU-0", "none", 4.0)) == 2
    assert made.update_action("GPU-1", "none", 4.0) == ()
    assert list(made.unhealthy(WHOLE)) == ["GPU-1"]
    assert made.gpus_to_query() == ()


def test_a_driver_that_is_late_is_asked_again() -> None:
    """An XID that the table calls grave, with no action yet, is worth a second question."""
    made = book()
    made.add_xid(xid(119), "none", 1.0)
    assert made.unhealthy(WHOLE) == {}
    assert made.gpus_to_query() == ("GPU-0",)
    made.update_action("GPU-0", "reset", 2.0)
    assert made.unhealthy(WHOLE) == {"GPU-0": "the driver requires: reset the GPU"}
    version = made.version
    made.update_action("GPU-0", "reset", 3.0)  # the same word again is no news
    assert made.version == version
    made.update_action("GPU-0", "reboot", 4.0)
    assert made.marks[0].remedy == "reboot the node"
    assert GpuHealth(Health(ask_driver=False), FIRST, made.marks).gpus_to_query() == ()


def test_a_gpu_is_asked_about_when_it_is_first_seen() -> None:
    """It may have waited for a reset since before the plugin was there; one answer is enough."""
    made = GpuHealth(Health(), FIRST)
    made.update_gpus(GPUS, 0.0)
    assert made.gpus_to_query() == ("GPU-0", "GPU-1", "GPU-2", "GPU-3")
    for gpu, action in zip(made.gpus_to_query(), ("none", "reset", None, None), strict=True):
        made.update_action(gpu, action, 1.0)
    assert list(made.unhealthy(WHOLE)) == ["GPU-1"]
    made.update_gpus(GPUS, 2.0)
    assert made.gpus_to_query() == ("GPU-1",)


def test_gpus_that_were_unwatched_are_asked_about() -> None:
    """An XID during a restart of NVML is missed, but shows in the driver's recovery action."""
    made = book()
    assert made.gpus_to_query() == ()
    made.query_all()
    assert made.gpus_to_query() == ("GPU-0", "GPU-1", "GPU-2", "GPU-3")
    for gpu in made.gpus_to_query():
        made.update_action(gpu, "reset" if gpu == "GPU-2" else "none", 1.0)
    assert list(made.unhealthy(WHOLE)) == ["GPU-2"]


@pytest.mark.parametrize(
    "settings",
    [Health(ignored_xids="all"), Health(critical_xids=frozenset({79})), Health(ask_driver=False)],
)
def test_a_driver_without_a_say_is_not_asked(settings: Health) -> None:
    """Where the settings judge every XID, the driver's recovery action marks nothing."""
    made = GpuHealth(settings, FIRST)
    made.update_gpus(GPUS, 0.0)
    assert made.gpus_to_query() == ()
    made.update_action("GPU-0", "reset", 1.0)
    assert made.unhealthy(WHOLE) == {}


def test_the_operator_clears_what_is_older_than_the_word() -> None:
    """What was reported after it stays, and `all` means every GPU."""
    made = book()
    made.add_xid(xid(79), None, 10.0)
    assert made.clear("GPU-0", 9.0) == ()
    assert made.clear("GPU-1", 11.0) == ()
    assert [ended.mark.source for ended in made.clear("GPU-0", 11.0)] == ["xid 79"]
    made.add_xid(xid(79, "GPU-3"), None, 12.0)
    assert len(made.clear(ALL, 13.0)) == 1


def test_a_gpu_that_vanishes_is_back_when_it_is_listed() -> None:
    """Absence is a condition, not a mark of damage; the operator can let the GPU be forgotten."""
    made = book()
    assert made.update_gpus(GPUS[:3], 1.0) == ("GPU 3 (GPU-3) is no longer listed by the driver",)
    assert list(made.unhealthy(WHOLE)) == ["GPU-3"]
    assert made.update_gpus(GPUS, 2.0) == ("GPU 3 (GPU-3) is listed again",)
    assert made.unhealthy(WHOLE) == {}
    made.update_gpus(GPUS[:3], 3.0)
    made.clear("GPU-3", 4.0)
    assert made.update_gpus(GPUS[:3], 5.0) == ()


def test_without_the_driver_nothing_is_healthy() -> None:
    """All devices wait for the driver; when it is back, only those with marks stay away."""
    made = book()
    made.add_xid(xid(79), None, 1.0)
    made.set_driver_trouble("the driver is not loaded")
    assert len(made.unhealthy(WHOLE)) == 4
    assert made.unhealthy(WHOLE)["GPU-1"] == "the driver is not loaded"
    made.set_driver_trouble("")
    assert list(made.unhealthy(WHOLE)) == ["GPU-0"]


def test_an_xid_that_is_ignored_from_now_on_loses_its_marks() -> None:
    """New settings count for what was reported before, and for nothing but XIDs."""
    made = book()
    made.add_xid(xid(79), None, 1.0)
    made.update_gpus((*GPUS[:3], Gpu(3, "GPU-3", lost="needs a reset")), 2.0)
    assert len(made.configure(Health(ignored_xids="all"))) == 1
    assert list(made.unhealthy(WHOLE)) == ["GPU-3"]


def test_several_reasons_are_all_told() -> None:
    """The oldest comes first, and the same one only once."""
    made = book()
    made.add_xid(xid(74), None, 2.0)
    made.add_xid(xid(79), None, 1.0)
    made.add_xid(xid(74), None, 3.0)
    reason = made.unhealthy(WHOLE)["GPU-0"]
    assert reason == "XID 79 (the GPU has fallen off the bus); XID 74 (an NVLink failed)"


def test_marks_survive_as_json() -> None:
    """A mark is the same after a round trip, and garbage is none."""
    made = book()
    made.add_xid(xid(95, "GPU-0", (8, None)), None, 1.0)
    mark = made.marks[0]
    assert from_document(document(mark)) == mark
    assert mark.label == "GPU 0 (GPU-0), GPU instance 8"
    assert from_document({"gpu": "GPU-0"}) is None
    assert from_document([]) is None
    odd = {"gpu": "GPU-0", "source": "lost", "reason": "r", "since": "x", "instance": [1], "n": 1}
    assert from_document(odd) == HealthMark("GPU-0", "lost", "r")


def test_the_sentence_names_resources_and_pods() -> None:
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
