# SPDX-License-Identifier: Apache-2.0
"""Shares: the containers that the guard monitors, their limits, and the marks on disk."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gpuhook.containers.hot import ledger
from gpuhook.device_plugin.guard import guard_marks, guard_shares, ledger_limits
from gpuhook.device_plugin.guard.guard_policy import END, TERM, GuardMark, Sent
from gpuhook.device_plugin.guard.guard_shares import GuardShare, Holding, LimitedUnit
from gpuhook.device_plugin.guard.ledger_limits import LedgerLimits
from gpuhook.device_plugin.metrics.unit_holders import Holder, Holdings
from gpuhook.device_plugin.offer.offered_devices import Device, Resource, Unit, UnitMemory
from gpuhook.host.hot import procfs
from gpuhook.request.memory_request import NO_LIMIT
from gpuhook.vendors.nvidia.nvml.gpu_usage import ProcessUse
from gpuhook.vendors.nvidia.usage.process_memory import memory_by_pid
from gpuhook.vendors.usage.usage_device import SampleTarget

GIB = 1 << 30
GPU, OTHER = "GPU-1", "GPU-2"
NAME = "nvidia.com/gpu"
A, B, C = "a" * 64, "b" * 64, "c" * 64
WEB, JOB = ("default", "web", "main"), ("default", "job", "main")
UNITS = {f"{GPU}::{n}": LimitedUnit(GPU, 4 * GIB, NAME) for n in range(4)}


def holdings(*units: tuple[str, tuple[str, str, str]]) -> Holdings:
    return Holdings({unit: Holder(*names) for unit, names in units})


def test_limited_units_exclude_mps_and_unlimited_devices() -> None:
    device = Device(GPU, "0", GPU, 0, (), ())
    free = Device(OTHER, "1", OTHER, 1, (), ())
    units = (Unit(f"{GPU}::0", device, 0), Unit(OTHER, free))
    memory = {GPU: UnitMemory(4 * GIB, 4 * GIB)}
    found = guard_shares.limited_units([Resource(NAME, units, "time-slicing", memory=memory)])
    assert found == {f"{GPU}::0": UNITS[f"{GPU}::0"]}
    assert guard_shares.limited_units([Resource(NAME, units, "mps", memory=memory)]) == {}


def test_limits_enforced_by_the_driver_need_no_sample() -> None:
    driver = LedgerLimits(A, WEB, {GPU: None})
    holding = guard_shares.holding([driver], holdings((f"{GPU}::0", WEB)), UNITS)
    assert holding.devices == frozenset()
    assert holding.by_driver == {(A, GPU)}
    assert guard_shares.holding([], Holdings(), UNITS).devices == frozenset()


def test_recorded_limit_takes_precedence_over_the_units() -> None:
    narrowed = LedgerLimits(A, WEB, {GPU: GIB})
    holding = guard_shares.holding([narrowed], holdings((f"{GPU}::0", WEB)), UNITS)
    assert holding.shares == {(A, GPU): GuardShare(A, WEB, GPU, GIB, NAME)}
    assert (holding.unrecorded, holding.unspecified) == ((), {})


def test_container_older_than_the_limit_has_only_its_mounted_grant() -> None:
    """An old runtime, which records no limits, mounts grants as well."""
    plain = LedgerLimits(B, JOB)
    holding = guard_shares.holding([plain], holdings((f"{GPU}::1", JOB), (f"{GPU}::2", JOB)), UNITS)
    assert holding.shares == {}
    assert holding.unrecorded == ()
    assert holding.devices == {GPU}
    assert guard_shares.unspecified_shares(GPU, {B: None}, holding.unspecified) == []
    (found,) = guard_shares.unspecified_shares(GPU, {B: 3 * GIB, A: GIB}, holding.unspecified)
    assert found == GuardShare(B, JOB, GPU, 3 * GIB, NAME)
    (found,) = guard_shares.unspecified_shares(GPU, {B: None}, holding.unspecified, {B})
    assert found == GuardShare(B, JOB, GPU, 8 * GIB, NAME, is_certain=False)


def test_recorded_limit_applies_after_the_units_change() -> None:
    """The kubelet still lists the pod, with units that no longer exist."""
    before = LedgerLimits(A, WEB, {GPU: GIB}, lives=None)
    assert guard_shares.depends_on_kubelet([before])
    assert not guard_shares.depends_on_kubelet([LedgerLimits(A, WEB, {GPU: None}, lives=None)])
    assert not guard_shares.depends_on_kubelet([LedgerLimits(A, WEB, lives=None)])
    holding = guard_shares.holding([before], holdings((f"{GPU}::9", WEB)), {})
    assert holding.shares == {(A, GPU): GuardShare(A, WEB, GPU, GIB)}
    assert holding.devices == {GPU}
    beginning = LedgerLimits(A, ("default", "web", "init"), {GPU: GIB}, lives=None)
    assert guard_shares.holding([beginning], holdings((f"{GPU}::0", WEB)), UNITS).devices == {GPU}
    assert guard_shares.holding([before], holdings((f"{GPU}::9", JOB)), {}).devices == frozenset()


def test_record_of_a_removed_pod_needs_no_sample() -> None:
    old = LedgerLimits(A, WEB, {GPU: GIB}, lives=None)
    assert guard_shares.holding([old], Holdings(), UNITS).devices == frozenset()
    assert guard_shares.holding([old], Holdings(), UNITS).shares == {}
    assert guard_shares.holding([old], holdings((f"{GPU}::0", WEB)), UNITS).devices == {GPU}
    assert guard_shares.holding([old], Holdings(reason="no kubelet"), UNITS).devices == {GPU}
    outside = LedgerLimits(A, ("", "", A), {GPU: GIB}, lives=None)
    assert guard_shares.holding([outside], Holdings(), UNITS).devices == {GPU}


def test_mounted_grant_identifies_the_holder() -> None:
    holders = [GuardShare("", WEB, GPU, 4 * GIB, NAME), GuardShare("", JOB, GPU, 8 * GIB, NAME)]
    grants = {A: 8 * GIB, B: 4 * GIB}
    found = guard_shares.unrecorded_shares(GPU, grants, {A, B}, holders)
    assert found == [
        GuardShare(A, JOB, GPU, 8 * GIB, NAME),
        GuardShare(B, WEB, GPU, 4 * GIB, NAME),
    ]


def test_holders_with_equal_grants_are_limited_without_a_name() -> None:
    holders = [GuardShare("", WEB, GPU, 4 * GIB, NAME), GuardShare("", JOB, GPU, 4 * GIB, NAME)]
    (found,) = guard_shares.unrecorded_shares(GPU, {A: 4 * GIB}, {A}, holders, NAME)
    assert found == GuardShare(A, ("", "", A), GPU, 4 * GIB, NAME)
    assert found.label == A[:12]


def test_one_holder_does_not_name_two_containers() -> None:
    """The kubelet's list may be older than one of the containers."""
    alone = [GuardShare("", WEB, GPU, 4 * GIB, NAME)]
    (named,) = guard_shares.unrecorded_shares(GPU, {A: 8 * GIB}, {A}, alone)
    assert named == GuardShare(A, WEB, GPU, 8 * GIB, NAME)
    for second in (4 * GIB, 8 * GIB):
        both = {A: 4 * GIB, B: second}
        assert guard_shares.unrecorded_shares(GPU, both, {A, B}, alone, NAME) == [
            GuardShare(A, ("", "", A), GPU, 4 * GIB, NAME),
            GuardShare(B, ("", "", B), GPU, second, NAME),
        ]


def test_one_matching_holder_does_not_name_two_containers() -> None:
    holders = [GuardShare("", WEB, GPU, 4 * GIB, NAME), GuardShare("", JOB, GPU, 8 * GIB, NAME)]
    grants = {A: 4 * GIB, B: 4 * GIB, C: 8 * GIB}
    assert guard_shares.unrecorded_shares(GPU, grants, set(grants), holders, NAME) == [
        GuardShare(A, ("", "", A), GPU, 4 * GIB, NAME),
        GuardShare(B, ("", "", B), GPU, 4 * GIB, NAME),
        GuardShare(C, JOB, GPU, 8 * GIB, NAME),
    ]


def test_holder_with_two_candidates_does_not_name_a_third_container() -> None:
    """The holder is one of the two containers with a grant, not the one without."""
    alone = [GuardShare("", WEB, GPU, 4 * GIB, NAME)]
    grants = {A: 4 * GIB, B: 4 * GIB, C: None}
    shares = guard_shares.unrecorded_shares(GPU, grants, set(grants), alone, NAME)
    assert [one.container for one in shares] == [A, B]


def test_only_container_without_a_grant_is_an_uncertain_holder() -> None:
    holder = [GuardShare("", WEB, GPU, 4 * GIB, NAME)]
    (found,) = guard_shares.unrecorded_shares(GPU, {A: None}, {A}, holder)
    assert found == GuardShare(A, WEB, GPU, 4 * GIB, NAME, is_certain=False)
    assert found.label == "default/web/main"
    assert guard_shares.unrecorded_shares(GPU, {A: None, B: None}, {A, B}, holder) == []
    assert guard_shares.unrecorded_shares(GPU, {A: None}, set(), holder) == []


def test_container_with_hidden_mounts_is_an_uncertain_holder() -> None:
    """Its grant may be any that no other container shows."""
    alike = [GuardShare("", WEB, GPU, 4 * GIB, NAME), GuardShare("", JOB, GPU, 4 * GIB, NAME)]
    shown, likely = guard_shares.unrecorded_shares(
        GPU, {A: 4 * GIB, B: None}, {A, B}, alike, NAME, hidden={B}
    )
    assert shown == GuardShare(A, ("", "", A), GPU, 4 * GIB, NAME)
    assert likely == GuardShare(B, ("", "", B), GPU, 4 * GIB, NAME, is_certain=False)
    others = [GuardShare("", WEB, GPU, 4 * GIB, NAME), GuardShare("", JOB, GPU, 8 * GIB, NAME)]
    both = {A: None, B: None}
    found = guard_shares.unrecorded_shares(GPU, both, {A, B}, others, NAME, hidden={A, B})
    assert [(one.container, one.hard) for one in found] == [(A, 8 * GIB), (B, 8 * GIB)]
    assert not any(one.is_certain for one in found)
    assert guard_shares.unrecorded_shares(GPU, both, {B}, others, NAME, hidden={A}) == []
    assert guard_shares.unrecorded_shares(GPU, both, {A, B}, [], NAME, hidden={A}) == []


def test_two_containers_with_one_id_are_not_watched() -> None:
    entries = [LedgerLimits("web", WEB, {GPU: GIB}), LedgerLimits("web", JOB, {GPU: GIB})]
    (found,) = ledger_limits.unambiguous(entries)
    assert found.is_ambiguous
    assert guard_shares.holding([found], holdings((f"{GPU}::0", JOB)), UNITS).shares == {}
    ended = LedgerLimits("web", WEB, {GPU: GIB}, lives=False)
    assert ledger_limits.unambiguous([ended, entries[1]]) == (entries[1],)


class Driver:
    """A driver with the given processes per device."""

    def __init__(self, **uses: tuple[ProcessUse, ...] | None) -> None:
        self.uses = {name.replace("_", "-"): process_use for name, process_use in uses.items()}

    def processes(self, uuid: str) -> tuple[ProcessUse, ...] | None:
        return self.uses.get(uuid)


def process_use(pid: int, memory: int | None, *instance: int) -> ProcessUse:
    gpu, compute = instance or (None, None)
    return ProcessUse(pid, memory, gpu, compute, "compute")


def test_process_listed_twice_is_counted_once() -> None:
    driver = Driver(
        GPU_1=(
            process_use(7, 5),
            process_use(7, 5),
            process_use(8, None),
            process_use(8, 3),
            process_use(9, None),
        )
    )
    listed = memory_by_pid(driver.processes, SampleTarget(GPU, GPU))
    assert listed == {7: 5, 8: 3, 9: None}
    assert memory_by_pid(driver.processes, SampleTarget(OTHER, OTHER)) is None


def test_processes_of_a_mig_instance_are_found_by_uuid_or_instance_ids() -> None:
    of_gpu = (
        process_use(7, 5, 1, 0),
        process_use(8, 6, 2, 0),
        process_use(9, 7, 1, 1),
        process_use(10, 8),
    )
    target = SampleTarget("MIG-1", GPU, (1, 0))
    assert memory_by_pid(Driver(GPU_1=of_gpu).processes, target) == {7: 5}
    own = Driver(
        GPU_1=of_gpu, MIG_1=(process_use(10, 8), process_use(8, 6, 2, 0), process_use(11, 1, 1, 0))
    )
    assert memory_by_pid(own.processes, target) == {10: 8, 11: 1}


@pytest.fixture
def state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path))
    return tmp_path


def record_container(root: str, identity: str, memory: object, **more: Any) -> None:
    own = {"pid": os.getpid(), "started": procfs.start_time(os.getpid())}
    ledger.record(root, identity, {**own, "memory": memory, **more})


def test_limits_are_read_from_the_ledger(state_directory: Path) -> None:
    assert ledger_limits.version() == (0, 0)
    record = {"device": GPU, "hard": GIB, "soft": GIB, "by": "", "trouble": "too old"}
    held_by_driver = {"device": OTHER, "hard": GIB, "soft": 0, "by": "driver"}
    only_requested = {"device": "GPU-3", "hard": NO_LIMIT, "soft": GIB, "by": ""}
    nonsense = [{"device": 1, "hard": 1}, {"device": GPU, "hard": "much"}, None, {"device": GPU}]
    record_container("/run/runc", A, [record, held_by_driver, only_requested, *nonsense])
    record_container("/run/runc", "job", None, namespace="default", pod="job", container="main")
    first, second = ledger_limits.read()
    assert first == LedgerLimits(A, ("", "", A), {GPU: GIB, OTHER: None, "GPU-3": None})
    assert second == LedgerLimits("job", JOB)
    assert ledger_limits.version() != (0, 0)


@pytest.mark.parametrize("soft", [{}, {"soft": None}, {"soft": True}])
def test_limit_without_a_soft_limit_is_watched(state_directory: Path, soft: dict[str, Any]) -> None:
    record_container("/run/runc", A, [{"device": GPU, "hard": GIB, "by": "", **soft}])
    assert [entry.limits for entry in ledger_limits.read()] == [{GPU: GIB}]
    assert ledger_limits.needs_guard()


def test_ended_container_is_not_watched(state_directory: Path) -> None:
    gone = {"pid": 2**22 + 1, "started": 1}
    (state_directory / "runc").mkdir()
    record_container(str(state_directory / "runc"), A, [], **gone)
    record_container(str(state_directory / "unseen"), B, [], **gone)
    assert [(one.id, one.lives) for one in ledger_limits.read()] == [(B, None)]


def test_marks_are_read_back_from_disk(state_directory: Path) -> None:
    sent = (Sent(7, 70, TERM, 5.0, 3.0), Sent(8, 80, END, 6.0))
    share = GuardShare(A, WEB, GPU, 4 * GIB, NAME)
    kept = (
        GuardMark(share, 5 * GIB, 100.5, 12.0, None, sent=sent),
        GuardMark(share, 5, 1.0, below=2.0),
    )
    guard_marks.write(kept)
    assert guard_marks.read() == kept
    assert (state_directory / "guard.json").stat().st_mode & 0o777 == 0o600
    guard_marks.write(())
    assert not (state_directory / "guard.json").exists()
    guard_marks.write(())
    assert guard_marks.read() == ()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "[" * 5000,
        '{"format": 1, "over": []}',
        '{"format": 2, "over": 3}',
        '{"format": 2, "over": [3, null, {}, {"id": 1}]}',
    ],
)
def test_malformed_marks_are_ignored(state_directory: Path, content: str) -> None:
    (state_directory / "guard.json").write_text(content)
    assert guard_marks.read() == ()


def test_mark_with_a_malformed_field_is_ignored(state_directory: Path) -> None:
    whole = guard_marks.document(
        GuardMark(GuardShare(A, WEB, GPU, 4), 5, 1.0, sent=(Sent(7, 70, TERM, 5.0),))
    )
    assert guard_marks.from_document(json.loads(json.dumps(whole))) is not None
    for key in whole:
        assert guard_marks.from_document({**whole, key: object()}) is None or key == "certain"
    bad = {**whole, "sent": [{**whole["sent"][0], "signal": "SIGHUP"}]}
    assert guard_marks.from_document(bad) is None


def test_marks_in_a_world_writable_file_are_ignored(state_directory: Path) -> None:
    guard_marks.write([GuardMark(GuardShare(A, WEB, GPU, 4), 5, 1.0)])
    (state_directory / "guard.json").chmod(0o666)
    assert guard_marks.read() == ()


def test_holding_is_empty_without_limits_and_holders() -> None:
    assert guard_shares.holding([], Holdings(reason="no kubelet"), {}) == Holding()
