# SPDX-License-Identifier: Apache-2.0
"""The health of AMD GPUs, read from the files of a simulated node."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from gpuhook.vendors.amd.hot import amd_sysfs
from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
from gpuhook.vendors.amd.plugin import amd_health
from gpuhook.vendors.amd.plugin.amd_health import BAD_PAGES, UNCORRECTABLE
from gpuhook.vendors.plugin.vendor_part import DeviceCheck
from tests.simulated import amd_tree
from tests.simulated.amd_tree import AmdTree
from tests.unit.amd_offering import CPX, MI300X

FIRST, SECOND = "0000:05:00.0", "0000:27:00.0"


@pytest.fixture
def tree(tmp_path: Path) -> AmdTree:
    return amd_tree.build(tmp_path, MI300X)


def checks(tree: AmdTree, node: AmdNode | None = None) -> dict[str, DeviceCheck]:
    return amd_health.check_devices(node or tree.node, str(tree.root), str(tree.root))


def failing(monkeypatch: pytest.MonkeyPatch, number: int, name: str) -> None:
    """Let reads of the files with this name of the first GPU fail."""
    text = amd_sysfs.text

    def read(path: str) -> str:
        if path.endswith(f"{FIRST}/{name}"):
            raise OSError(number, "simulated")
        return text(path)

    monkeypatch.setattr(amd_sysfs, "text", read)


def test_healthy_gpus_have_no_fault(tree: AmdTree) -> None:
    errors = {UNCORRECTABLE: 0, BAD_PAGES: 0}
    assert all(check == DeviceCheck(errors=errors) for check in checks(tree).values())
    assert len(checks(tree)) == 8


def test_unbound_gpu_is_a_fault_of_all_its_partitions(tmp_path: Path) -> None:
    tree = amd_tree.build(tmp_path, CPX)
    tree.lose_gpu(FIRST)
    faults = {uuid for uuid, check in checks(tree).items() if check.fault}
    assert faults == {device.id for device in CPX.gpus[0].devices}
    assert checks(tree)[FIRST].fault == "the driver amdgpu no longer has it"


def test_missing_render_node_is_a_fault_of_one_partition(tmp_path: Path) -> None:
    tree = amd_tree.build(tmp_path, CPX)
    gone = CPX.gpus[1].devices[3]
    tree.lose_drm(gone)
    faults = {uuid: check.fault for uuid, check in checks(tree).items() if check.fault}
    name = f"renderD{gone.render_minor}"
    assert faults == {gone.id: f"the driver no longer has its render node {name}"}


def test_missing_device_node_is_a_fault_where_dev_is_visible(tree: AmdTree) -> None:
    dri = tree.root / "dev/dri"
    dri.mkdir(parents=True)
    for minor in range(128, 192, 8):
        (dri / f"renderD{minor}").touch()
    (dri / "renderD136").unlink()
    assert [uuid for uuid, check in checks(tree).items() if check.fault] == [SECOND]


@pytest.mark.parametrize("number", [errno.ENODEV, errno.EIO])
def test_dead_gpu_is_a_fault(tree: AmdTree, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    failing(monkeypatch, number, "mem_info_vram_total")
    assert checks(tree)[FIRST].fault == "it does not answer: mem_info_vram_total: simulated"
    assert not checks(tree)[SECOND].fault


@pytest.mark.parametrize("number", [errno.EPERM, errno.EBUSY])
def test_reset_keeps_the_last_state(
    tree: AmdTree, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    failing(monkeypatch, number, "mem_info_vram_total")
    assert checks(tree)[FIRST] == DeviceCheck(is_busy=True)


def test_suspended_gpu_is_not_resumed(tree: AmdTree, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree.gpu(FIRST) / "power/runtime_status").write_text("suspended\n")
    failing(monkeypatch, errno.EIO, "mem_info_vram_total")  # it would be read
    assert checks(tree)[FIRST] == DeviceCheck(is_busy=True)


def test_errors_of_all_blocks_are_added(tree: AmdTree) -> None:
    ras = tree.gpu(FIRST) / "ras"
    (ras / "umc_err_count").write_text("ue: 2\nce: 7\n")
    (ras / "gfx_err_count").write_text("ue: 1\nce: 0\n")
    (ras / "gpu_vram_bad_pages").write_text("0x00123 : 0x01000 : R\n0x00456 : 0x01000 : P\n")
    assert checks(tree)[FIRST].errors == {UNCORRECTABLE: 3, BAD_PAGES: 2}


@pytest.mark.parametrize(
    "text", ["Query currently inaccessible\n", "", "ue: many\nce: 0\n", f"ue: {'9' * 5000}\n"]
)
def test_counter_that_cannot_be_read_is_left_out(tree: AmdTree, text: str) -> None:
    (tree.gpu(FIRST) / "ras/umc_err_count").write_text(text)
    assert checks(tree)[FIRST].errors == {BAD_PAGES: 0}


def test_counters_of_mi200_are_not_read(tmp_path: Path) -> None:
    """A read clears them for AMD's metrics exporter."""
    tree = amd_tree.build(tmp_path, "mixed")
    assert [check.errors for check in checks(tree).values()] == [{}, {}]


def test_free_memory_is_that_of_a_whole_gpu(tree: AmdTree, tmp_path: Path) -> None:
    (tree.gpu(FIRST) / "mem_info_vram_used").write_text(f"{1 << 30}\n")
    root = str(tree.root)
    free = amd_health.free_memory(MI300X, FIRST, root)
    assert free == (196592 << 20) - (1 << 30)
    (tree.gpu(SECOND) / "mem_info_vram_used").unlink()
    assert amd_health.free_memory(MI300X, SECOND, root) is None
    (tree.gpu(SECOND) / "mem_info_vram_used").write_text("9" * 5000)
    assert amd_health.free_memory(MI300X, SECOND, root) is None
    assert amd_health.free_memory(MI300X, "0000:99:00.0", root) is None
    assert amd_health.free_memory(CPX, FIRST, root) is None
