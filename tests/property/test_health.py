# SPDX-License-Identifier: Apache-2.0
"""An unhealthy device remains unhealthy without evidence."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuhook.device_plugin.config.gpuhook_section import Health
from gpuhook.device_plugin.health.gpu_health import GpuHealth
from gpuhook.device_plugin.health.health_marks import Evidence, document, from_document
from gpuhook.device_plugin.offer.offered_devices import Device
from gpuhook.vendors.nvidia.inventory.inventory import Gpu
from gpuhook.vendors.nvidia.plugin.nvml_watcher import XidReport

NODE = Evidence("boot", "driver", {"GPU-0": "slot"})
UUIDS = [f"GPU-{n}" for n in range(3)]
DEVICES = [
    *(Device(f"MIG-{n}", f"0:{n}", "GPU-0", 0, (), (), instance=(n, 0)) for n in range(3)),
    *(Device(uuid, uuid[-1], uuid, int(uuid[-1]), (), ()) for uuid in UUIDS[1:]),
]
numbers = st.sampled_from([13, 31, 48, 63, 74, 79, 94, 95, 109, 154, 9999])
instances = st.none() | st.integers(0, 3)
grave_actions = st.sampled_from([None, "reset", "reboot", "drain-p2p", "unheard-of"])
reports = st.tuples(
    st.just("xid"),
    st.builds(XidReport, st.none() | st.sampled_from(UUIDS), numbers, instances, instances),
    grave_actions,
)
lists = st.tuples(
    st.just("seen"),
    st.tuples(*(st.sampled_from([None, "fallen off the bus"]) for _ in UUIDS)),
)
actions = st.tuples(st.just("action"), st.sampled_from(UUIDS), grave_actions)
same = st.tuples(st.just("evidence"), st.sampled_from([NODE, Evidence()]))
back = st.just(("back",))
sets = st.frozensets(numbers)
settings = st.builds(
    Health,
    critical_xids=st.none() | sets,
    ignored_xids=sets | st.just("all"),
    enabled_xids=sets | st.just("all"),
)


@given(settings, st.lists(st.one_of(reports, lists, actions, same, back), max_size=40))
def test_unhealthy_devices_remain_without_evidence(
    chosen: Health, history: list[tuple[object, ...]]
) -> None:
    """The version increases when the marks change."""
    health = GpuHealth(chosen, NODE)
    for moment, (kind, *facts) in enumerate(history):
        before, marks, version = set(health.unhealthy(DEVICES)), health.marks, health.version
        apply_event(health, kind, facts, float(moment))
        assert before <= set(health.unhealthy(DEVICES))
        assert (health.marks != marks) <= (health.version > version)
    kept = [from_document(document(mark)) for mark in health.marks]
    again = GpuHealth(chosen, NODE, [mark for mark in kept if mark])
    assert again.unhealthy(DEVICES) == health.unhealthy(DEVICES)


@given(settings, st.lists(reports, max_size=20))
def test_xid_marks_devices_of_its_gpu_only(
    chosen: Health, history: list[tuple[object, ...]]
) -> None:
    health = GpuHealth(chosen, NODE)
    reported = set()
    for kind, *facts in history:
        apply_event(health, kind, facts, 0.0)
        reported.add(getattr(facts[0], "uuid", None))
    hit = health.unhealthy(DEVICES)
    assert {device.gpu for device in DEVICES if device.uuid in hit} <= reported


def apply_event(health: GpuHealth, kind: object, facts: list[object], now: float) -> None:
    if kind == "xid":
        event, action = facts
        assert isinstance(event, XidReport)
        health.add_xid(event, action if isinstance(action, str) else None, now)
    elif kind == "seen":
        (losses,) = facts
        assert isinstance(losses, tuple)
        health.update_gpus([Gpu(n, f"GPU-{n}", lost=lost) for n, lost in enumerate(losses)], now)
    elif kind == "action":
        gpu, action = facts
        health.update_action(str(gpu), action if isinstance(action, str) else None, now)
    elif kind == "evidence":
        (evidence,) = facts
        assert isinstance(evidence, Evidence)
        assert health.update_evidence(evidence) == ()
    else:
        health.set_driver_trouble("")
