# SPDX-License-Identifier: Apache-2.0
"""What is unhealthy stays so without evidence, whatever else is reported."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuhook.device_plugin.config.gpuhook_section import Health
from gpuhook.device_plugin.health.gpu_health import GpuHealth
from gpuhook.device_plugin.health.health_marks import Evidence, document, from_document
from gpuhook.device_plugin.health.nvml_watcher import XidReport
from gpuhook.device_plugin.offer.offered_devices import Device
from gpuhook.vendors.nvidia.inventory.inventory import Gpu

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
def test_unhealthy_without_evidence_is_for_ever(
    chosen: Health, history: list[tuple[object, ...]]
) -> None:
    """The set of unhealthy devices only grows, and the version says when the marks change."""
    book = GpuHealth(chosen, NODE)
    for moment, (kind, *facts) in enumerate(history):
        before, marks, version = set(book.unhealthy(DEVICES)), book.marks, book.version
        happen(book, kind, facts, float(moment))
        assert before <= set(book.unhealthy(DEVICES))
        assert (book.marks != marks) <= (book.version > version)
    kept = [from_document(document(mark)) for mark in book.marks]
    again = GpuHealth(chosen, NODE, [mark for mark in kept if mark])
    assert again.unhealthy(DEVICES) == book.unhealthy(DEVICES)


@given(settings, st.lists(reports, max_size=20))
def test_only_gpus_that_are_named_are_hit(
    chosen: Health, history: list[tuple[object, ...]]
) -> None:
    """An XID touches no device of another GPU."""
    book = GpuHealth(chosen, NODE)
    named = set()
    for kind, *facts in history:
        happen(book, kind, facts, 0.0)
        named.add(getattr(facts[0], "uuid", None))
    hit = book.unhealthy(DEVICES)
    assert {device.gpu for device in DEVICES if device.uuid in hit} <= named


def happen(book: GpuHealth, kind: object, facts: list[object], now: float) -> None:
    if kind == "xid":
        event, action = facts
        assert isinstance(event, XidReport)
        book.add_xid(event, action if isinstance(action, str) else None, now)
    elif kind == "seen":
        (losses,) = facts
        assert isinstance(losses, tuple)
        book.update_gpus([Gpu(n, f"GPU-{n}", lost=lost) for n, lost in enumerate(losses)], now)
    elif kind == "action":
        gpu, action = facts
        book.update_action(str(gpu), action if isinstance(action, str) else None, now)
    elif kind == "evidence":
        (evidence,) = facts
        assert isinstance(evidence, Evidence)
        assert book.update_evidence(evidence) == ()
    else:
        book.set_driver_trouble("")
