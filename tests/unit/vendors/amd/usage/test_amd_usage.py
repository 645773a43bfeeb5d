# SPDX-License-Identifier: Apache-2.0
"""The usage of AMD GPUs and partitions, from the files of sysfs and KFD."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuhook.vendors.amd.inventory.amd_inventory import AmdDevice, AmdGpu, AmdNode
from gpuhook.vendors.amd.usage import amd_usage
from tests.simulated import amd_users

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30
GPU = "0000:05:00.0"
BOARD = f"sys/module/amdgpu/drivers/pci:amdgpu/{GPU}"
WHOLE = AmdGpu(
    0,
    GPU,
    unique_id="08da82c12ef81b5d",
    name="AMD Instinct MI300X OAM",
    vram_bytes=192 * GIB,
    devices=(AmdDevice(0, GPU, 0, 128, kfd_id=100, cu_count=304, memory_bytes=192 * GIB),),
)
CPX = replace(
    WHOLE,
    compute_mode="CPX",
    memory_mode="NPS4",
    devices=tuple(
        AmdDevice(
            one,
            GPU if one == 0 else f"amdgpu_xcp_{one - 1}",
            one,
            128 + one,
            kfd_id=100 + one,
            memory_bytes=24 * GIB,
        )
        for one in range(8)
    ),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    amd_users.host_processes(tmp_path)
    for name, text in (
        ("mem_info_vram_total", str(191 * GIB)),
        ("mem_info_vram_used", str(5 * GIB)),
        ("gpu_busy_percent", "42"),
        ("power/runtime_status", "active"),
    ):
        amd_users.write(tmp_path / BOARD / name, text + "\n")
    return tmp_path


def test_whole_gpu(root: Path) -> None:
    """A GPU has its memory, its utilization, its processes, and the memory of none."""
    amd_users.client(root, 10, "7", minor=128, vram=2 * GIB)
    amd_users.compute(root, 10, {100: GIB}, {100: 304})
    amd_users.compute(root, 11, {100: 3 * GIB})
    (device,) = amd_usage.usage(str(root), AmdNode(gpus=(WHOLE,)))
    assert (device.uuid, device.gpu, device.index) == (GPU, GPU, "0")
    assert (device.name, device.node) == ("AMD Instinct MI300X OAM", "/dev/dri/renderD128")
    assert (device.total, device.used, device.percent) == (191 * GIB, 5 * GIB, 42)
    assert device.residual == 3 * GIB
    assert [(one.pid, one.memory_bytes, one.percent) for one in device.processes or ()] == [
        (10, 2 * GIB, 100)
    ]
    assert device.is_complete


def test_partitions(root: Path) -> None:
    """A partitioned GPU is followed by its partitions; the memory of these is their processes'."""
    amd_users.runs(root, 10)
    amd_users.compute(root, 10, {103: 2 * GIB})
    amd_users.compute(root, 11, {103: GIB})
    whole, *parts = amd_usage.usage(str(root), AmdNode(gpus=(CPX,)))
    assert (whole.uuid, whole.is_split, whole.percent) == ("GPU-08da82c12ef81b5d", True, 42)
    assert (whole.used, whole.processes, whole.node) == (5 * GIB, (), "")
    assert [one.index for one in parts] == [f"0:{one}" for one in range(8)]
    assert {one.gpu for one in parts} == {whole.uuid}
    assert {one.profile for one in parts} == {"CPX/NPS4"}
    assert [one.uuid for one in parts[:2]] == [GPU, "amdgpu_xcp_0"]
    assert [one.node for one in parts[:2]] == ["/dev/dri/renderD128", "/dev/dri/renderD129"]
    assert parts[3].used == 3 * GIB
    assert parts[3].residual == GIB
    assert [one.used for one in parts[4:]] == [0] * 4
    assert {one.percent for one in parts} == {None}


def test_memory_of_kfd(root: Path) -> None:
    """AMD's own driver reports the used memory of a node, which is then a partition's."""
    nodes = root / "sys/class/kfd/kfd/topology/nodes"
    for number, kfd_id in enumerate((0, 100, 101)):
        amd_users.write(nodes / f"{number}/gpu_id", f"{kfd_id}\n")
        amd_users.write(nodes / f"{number}/mem_banks/0/used_memory", f"{number * GIB}\n")
    _, *parts = amd_usage.usage(str(root), AmdNode(gpus=(CPX,)))
    assert [one.used for one in parts[:3]] == [GIB, 2 * GIB, 0]


def test_unknown_is_not_zero(tmp_path: Path) -> None:
    """A figure that the kernel does not report is unknown, and so is a sum that may lack parts."""
    whole, *parts = amd_usage.usage(str(tmp_path), AmdNode(gpus=(CPX,)))
    assert (whole.used, whole.percent, whole.total) == (None, None, 192 * GIB)
    assert {one.used for one in parts} == {None}
    assert not parts[0].is_complete


@pytest.mark.parametrize("text", ["", "255\n", "-1\n", "busy\n"])
def test_garbage(root: Path, text: str) -> None:
    """A figure that is none is not reported."""
    amd_users.write(root / BOARD / "gpu_busy_percent", text)
    amd_users.write(root / BOARD / "mem_info_vram_used", text.replace("255", "x"))
    (device,) = amd_usage.usage(str(root), AmdNode(gpus=(WHOLE,)))
    assert (device.percent, device.used) == (None, None)


def test_suspended_gpu(root: Path) -> None:
    """A suspended GPU computes nothing; the file that resumes it is not read."""
    amd_users.write(root / BOARD / "power/runtime_status", "suspended\n")
    busy = root / BOARD / "gpu_busy_percent"
    busy.unlink()
    busy.mkdir()  # a read fails
    (device,) = amd_usage.usage(str(root), AmdNode(gpus=(WHOLE,)))
    assert device.percent == 0
    assert device.used == 5 * GIB


def test_lost_gpu(root: Path) -> None:
    """A GPU without devices has the reason, and no usage."""
    lost = replace(WHOLE, devices=(), trouble="its render node is missing")
    (device,) = amd_usage.usage(str(root), AmdNode(gpus=(lost,)))
    assert (device.lost, device.used, device.processes) == (lost.trouble, None, None)
    assert amd_usage.devices(AmdNode(gpus=(lost,))) == (device,)


def test_partitioned_gpu_without_a_unique_id() -> None:
    """The GPU and its first partition have different ids."""
    whole, first, *_ = amd_usage.devices(AmdNode(gpus=(replace(CPX, unique_id=None),)))
    assert whole.uuid == f"GPU-{GPU}"
    assert (first.uuid, first.gpu) == (GPU, whole.uuid)
