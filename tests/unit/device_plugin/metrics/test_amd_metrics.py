# SPDX-License-Identifier: Apache-2.0
"""The metrics of AMD devices, and of nodes with two vendors of which one does not answer."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuhook.containers.hot import ledger
from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.device_plugin.config.gpuhook_section import Metrics
from gpuhook.device_plugin.metrics import exposition
from gpuhook.device_plugin.metrics.counters import Counters
from gpuhook.device_plugin.metrics.metrics_service import MetricsService
from gpuhook.device_plugin.metrics.scrape import Offered, Scrape, VendorReader
from gpuhook.device_plugin.metrics.unit_holders import Holder, Holdings
from gpuhook.device_plugin.node_snapshot import NodeSnapshot
from gpuhook.device_plugin.notifier import Notifier
from gpuhook.device_plugin.offer.offered_devices import Resource, Unit
from gpuhook.device_plugin.offer.resources import offered
from gpuhook.host.logs import logger
from gpuhook.vendors.amd.amd_vendor import AmdVendor
from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
from gpuhook.vendors.plugin.plugin_place import PluginPlace
from gpuhook.vendors.plugin.vendor_part import VendorPart
from gpuhook.vendors.usage.usage_device import ProcessOnDevice, UsageDevice
from tests.simulated import amd_tree, amd_users
from tests.unit.device_plugin.metrics.test_metrics_endpoint import DEVICE, T4, Driver

GIB = 1 << 30
FIRST = "0000:05:00.0"
CONTAINER = "ab" * 32
Series = dict[tuple[str, ...], float]


def series(scrape: Scrape, name: str) -> Series:
    """Return the values of a metric by the values of its labels."""
    facts = asyncio.run(scrape.pull())
    for metric in exposition.metrics(facts, Counters().snapshot()):
        if metric.name == name:
            return {key: value for key, value in metric.series if isinstance(value, int | float)}
    raise AssertionError(name)


@pytest.fixture
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))


def scrape_of_node(root: Path, part: VendorPart) -> Scrape:
    """Return what the metrics of a node with AMD devices only are collected by."""
    service = MetricsService(Counters(), Notifier(logger(), None), str(root / "none"), str(root))
    resources = offered(part.inventory, Configuration()).resources
    snapshot = NodeSnapshot(parts=(part,))
    asyncio.run(service.update(Metrics(address=""), snapshot, resources, {FIRST: "RAS errors"}))
    return service._scrape


def amd_part(root: Path, profile: str) -> VendorPart:
    amd_tree.build(root, profile)
    part = AmdVendor().plugin_part(PluginPlace(str(root), str(root)))
    assert part is not None
    return part


def kfd_id(part: VendorPart, device: str) -> int:
    assert isinstance(part.inventory, AmdNode)
    return next(one.kfd_id or 0 for _, one in part.inventory.devices() if one.id == device)


@pytest.mark.usefixtures("_state")
def test_node_with_amd_devices_only(tmp_path: Path) -> None:
    root = tmp_path / "node"
    part = amd_part(root, "mi300x8")
    proc = amd_users.host_processes(root)
    amd_users.compute(root, 4711, {kfd_id(part, FIRST): 3 * GIB})
    amd_users.runs(root, 4711)
    (proc / "4711/cgroup").write_text(f"0::/kubepods/pod1/{CONTAINER}\n")
    board = root / "sys/module/amdgpu/drivers/pci:amdgpu" / FIRST
    (board / "mem_info_vram_used").write_text(f"{5 * GIB}\n")
    (board / "gpu_busy_percent").write_text("37\n")
    entry = {"pid": 0, "started": None, "devices": [f"amd.com/gpu={FIRST}"]}
    names = {"namespace": "demo", "pod": "trainer", "container": "main"}
    ledger.record("/nowhere", CONTAINER, entry | names)

    scrape = scrape_of_node(root, part)
    assert series(scrape, "gpuhook_source_up") == {("amd",): 1, ("pod-resources",): 0}
    assert series(scrape, "gpuhook_devices") == {
        ("amd.com/gpu", "healthy"): 7,
        ("amd.com/gpu", "unhealthy"): 1,
    }
    total = series(scrape, "gpuhook_gpu_memory_total_bytes")
    assert len(total) == 8
    assert set(total.values()) == {206141652992}
    assert series(scrape, "gpuhook_gpu_memory_used_bytes")[FIRST,] == 5 * GIB
    assert series(scrape, "gpuhook_gpu_utilization_ratio")[FIRST,] == 0.37
    assert series(scrape, "gpuhook_gpu_processes")[FIRST,] == 1
    used = series(scrape, "gpuhook_container_memory_used_bytes")
    assert used == {(FIRST, "demo", "trainer", "main"): 3 * GIB}
    assert series(scrape, "gpuhook_gpu_memory_unattributed_bytes")[FIRST,] == 2 * GIB
    info = series(scrape, "gpuhook_gpu_info")
    assert (FIRST, "0", "AMD Instinct MI300X OAM") in {key[:3] for key in info}


@pytest.mark.usefixtures("_state")
def test_partitions(tmp_path: Path) -> None:
    """The utilization is that of the whole GPU, so partitions have none."""
    root = tmp_path / "node"
    part = amd_part(root, "mi300x-cpx")
    amd_users.host_processes(root)
    amd_users.compute(root, 4711, {kfd_id(part, "amdgpu_xcp_2"): 3 * GIB})
    amd_users.runs(root, 4711)
    scrape = scrape_of_node(root, part)
    assert len(series(scrape, "gpuhook_gpu_memory_total_bytes")) == 64
    assert len(series(scrape, "gpuhook_gpu_memory_used_bytes")) == 64
    processes = series(scrape, "gpuhook_gpu_processes")
    assert {key[0] for key, count in processes.items() if count} == {"amdgpu_xcp_2"}
    assert series(scrape, "gpuhook_gpu_utilization_ratio") == {}


AMD = VendorReader(
    "amd.com",
    "amd",
    lambda: [
        UsageDevice(FIRST, FIRST, "0", total=8 * GIB, used=GIB, percent=5, processes=()),
        UsageDevice("0000:06:00.0", "", "1", total=8 * GIB),  # not offered
    ],
)


def scrape_of_both(usage: Driver | None, reader: VendorReader, **facts: Any) -> Scrape:
    async def holders() -> Holdings:
        return Holdings({FIRST: Holder("demo", "trainer", "main")})

    device = replace(DEVICE, uuid=FIRST, gpu=FIRST, domain="amd.com")
    amd = Resource("amd.com/gpu", (Unit(FIRST, device),))
    first = usage.reader if usage else VendorReader("nvidia.com", "nvml", None)
    both = Offered((T4, amd), readers=(first, reader))
    return Scrape(holders, offered=both, **facts)


@pytest.mark.usefixtures("_state")
def test_both_vendors_answer() -> None:
    scrape = scrape_of_both(Driver(), AMD)
    assert series(scrape, "gpuhook_source_up") == {
        ("nvml",): 1, ("amd",): 1, ("pod-resources",): 1,
    }  # fmt: skip
    total = series(scrape, "gpuhook_gpu_memory_total_bytes")
    assert total == {("GPU-0",): 16 * GIB, (FIRST,): 8 * GIB}
    held = series(scrape, "gpuhook_container_memory_used_bytes")
    assert held[FIRST, "demo", "trainer", "main"] == 0


@pytest.mark.usefixtures("_state")
def test_incomplete_processes_are_unknown() -> None:
    """Without the right to read all processes, a sum would be too small."""
    process = ProcessOnDevice(1, GIB)
    device = UsageDevice(FIRST, FIRST, "0", used=GIB, processes=(process,), is_complete=False)
    scrape = scrape_of_both(Driver(), VendorReader("amd.com", "amd", lambda: [device]))
    assert series(scrape, "gpuhook_gpu_memory_used_bytes")[FIRST,] == GIB
    for name in ("gpu_processes", "gpu_memory_unattributed_bytes", "container_memory_used_bytes"):
        assert [key for key in series(scrape, f"gpuhook_{name}") if key[0] == FIRST] == []


@pytest.mark.usefixtures("_state")
def test_vendor_that_fails_costs_no_series_of_the_other() -> None:
    def fails() -> list[UsageDevice]:
        raise OSError("EPERM")

    scrape = scrape_of_both(None, AMD)
    assert series(scrape, "gpuhook_source_up")["nvml",] == 0
    assert series(scrape, "gpuhook_gpu_memory_total_bytes") == {(FIRST,): 8 * GIB}
    scrape = scrape_of_both(Driver(), VendorReader("amd.com", "amd", fails))
    assert series(scrape, "gpuhook_source_up")["amd",] == 0
    assert series(scrape, "gpuhook_gpu_memory_total_bytes") == {("GPU-0",): 16 * GIB}


@pytest.mark.usefixtures("_state")
def test_vendor_that_hangs_costs_no_series_of_the_other() -> None:
    free = threading.Event()

    def hangs() -> list[UsageDevice]:
        free.wait(60)
        return []

    scrape = scrape_of_both(Driver(), VendorReader("amd.com", "amd", hangs), timeout=2)
    try:
        facts = asyncio.run(scrape.pull())
    finally:
        free.set()
    assert facts.sources == {"nvml": True, "amd": False}
    assert [use.uuid for use in facts.uses] == ["GPU-0"]
