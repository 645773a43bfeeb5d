# SPDX-License-Identifier: Apache-2.0
"""The guard's sources: NVML, and the kernel's files of AMD devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from gpuhook.device_plugin.config.gpuhook_section import TERMINATE, Guard
from gpuhook.device_plugin.guard.container_processes import Processes, ProcessFacts
from gpuhook.device_plugin.guard.device_processes import DeviceProcesses, readers
from gpuhook.device_plugin.guard.guard_loop import GuardInput, GuardLoop
from gpuhook.device_plugin.guard.ledger_limits import LedgerLimits
from gpuhook.device_plugin.metrics.cgroup_names import Membership
from gpuhook.device_plugin.node_snapshot import NodeSnapshot
from gpuhook.errors import fault
from gpuhook.host.hot import state
from gpuhook.vendors.amd.amd_vendor import AmdVendor
from gpuhook.vendors.amd.usage.part_processes import KernelProcesses
from gpuhook.vendors.plugin.plugin_place import PluginPlace
from gpuhook.vendors.usage.usage_device import SampleTarget
from tests.simulated import amd_tree, amd_users

NVIDIA = "GPU-17f0d8b6-c4e2-4a9b-8f63-2d5e90a1c7f8"
GIB = 1 << 30


class Nvml:
    """A driver with a process, or one that cannot be opened."""

    def __init__(self, *, is_broken: bool = False) -> None:
        self.is_broken = is_broken

    @contextmanager
    def opened(self) -> Iterator[None]:
        if self.is_broken:
            raise fault("GH1204", path="/lib", reason="gone")
        yield

    def memory(self, target: SampleTarget) -> dict[int, int | None] | None:
        with self.opened():
            return {7: GIB} if target.uuid == NVIDIA else None


def test_partitions_are_told_apart(tmp_path: Path) -> None:
    """A process of one partition is not one of its siblings, which share the PCI address."""
    tree = amd_tree.build(tmp_path, "mi300x-cpx")
    amd_users.host_processes(tmp_path)
    first, second, third = [device for _, device in tree.node.devices()][:3]
    amd_users.runs(tmp_path, 4711)
    amd_users.compute(tmp_path, 4711, {second.kfd_id or 0: 3 * GIB})
    known = DeviceProcesses(readers(snapshot(tmp_path), str(tmp_path)))
    with known.opened():
        assert known.memory(second.id) == {4711: 3 * GIB}
        assert known.memory(first.id) == known.memory(third.id) == {}
        assert known.memory(NVIDIA) is None
    amd_users.compute(tmp_path, 4711, {second.kfd_id or 0: GIB})
    assert known.memory(second.id) == {4711: GIB}, "a query outside reads again"


def test_vendor_that_fails_does_not_affect_the_other(tmp_path: Path) -> None:
    tree = amd_tree.build(tmp_path / "amd", "radeon")
    amd_users.host_processes(tmp_path / "amd")
    amd = next(device.id for _, device in tree.node.devices())
    kernel = readers(snapshot(tmp_path / "amd"), str(tmp_path / "amd"))
    known = DeviceProcesses((Nvml(is_broken=True), *kernel))
    with known.opened():
        assert (known.memory(NVIDIA), known.memory(amd)) == (None, {})
    known = DeviceProcesses((Nvml(),))
    with known.opened():
        assert known.memory(NVIDIA) == {7: GIB}
        assert known.memory(amd) is None
    assert readers(snapshot(tmp_path / "none"), str(tmp_path / "none")) == ()


def test_vendor_that_hangs_does_not_stop_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    amd_tree.build(tmp_path, "radeon")
    answer = Event()
    monkeypatch.setattr(AmdVendor, "deadline", 0.05)
    monkeypatch.setattr(KernelProcesses, "_read", lambda _: answer.wait() and {"amd": {8: GIB}})
    known = DeviceProcesses((*readers(snapshot(tmp_path), str(tmp_path)), Nvml()))
    try:
        with known.opened():
            assert (known.memory("amd"), known.memory(NVIDIA)) == (None, {7: GIB})
    finally:
        answer.set()
    monkeypatch.setattr(AmdVendor, "deadline", 60.0)
    with known.opened():
        assert known.memory("amd") == {8: GIB}, "it answers again"


def snapshot(root: Path) -> NodeSnapshot:
    """Return a snapshot of a node with AMD devices only, if any."""
    part = AmdVendor().plugin_part(PluginPlace(str(root)))
    return NodeSnapshot(parts=() if part is None else (part,))


class Kernel(Processes):
    """The host's processes: each is in the container "trainer"."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[int, str]] = []

    def trouble(self) -> None:
        """Return nothing: the pids are the host's."""

    def host_mounts(self) -> frozenset[tuple[int, int]]:
        return frozenset()

    def about(self, pid: int) -> ProcessFacts | None:
        return ProcessFacts(100, Membership(("docker", "trainer")))

    def send(self, pid: int, name: str, is_still: Callable[[], bool]) -> bool:
        if is_still():
            self.sent.append((pid, name))
        return bool(self.sent)


def test_guard_enforces_the_limit_of_a_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No driver can: the container's process on this partition is ended, and no other one."""
    monkeypatch.setenv(state.DIRECTORY_ENV, str(tmp_path / "state"))
    tree = amd_tree.build(tmp_path, "mi300x-cpx")
    amd_users.host_processes(tmp_path)
    first, second = [device for _, device in tree.node.devices()][:2]
    for pid, device in ((4711, second), (4712, first)):
        amd_users.runs(tmp_path, pid)
        amd_users.compute(tmp_path, pid, {device.kfd_id or 0: 3 * GIB})
    entry = LedgerLimits("trainer", ("", "", "trainer"), {second.id: GIB})
    kernel, settings, times = Kernel(), Guard(action=TERMINATE, grace=1.0), iter((0.0, 5.0))
    guard = GuardLoop(kernel, lambda: settings, read=lambda: (entry,), clock=lambda: next(times))
    inputs = GuardInput(DeviceProcesses(readers(snapshot(tmp_path), str(tmp_path))))
    (mark,) = guard.round(inputs).began
    assert (mark.share.device, mark.used) == (second.id, 3 * GIB)
    assert len(guard.round(inputs).sent) == 1
    assert kernel.sent == [(4711, "SIGTERM")]
