# SPDX-License-Identifier: Apache-2.0
"""The processes on AMD devices: KFD's and the clients of DRM, each process once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuhook.vendors.amd.inventory.amd_inventory import AmdDevice, AmdDriver, AmdGpu, AmdNode
from gpuhook.vendors.amd.usage import amd_processes, drm_clients
from tests.simulated import amd_users
from tests.unit.other_user import AS_ROOT, other_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30
GPU, OTHER = "0000:05:00.0", "0000:26:00.0"


def _device(index: int, identity: str, kfd_id: int, partition: int = 0) -> AmdDevice:
    return AmdDevice(
        index, identity, partition, 128 + index, card_minor=1 + index, kfd_id=kfd_id, cu_count=304
    )


WHOLE = AmdNode(
    AmdDriver(),
    (
        AmdGpu(0, GPU, devices=(_device(0, GPU, 100),)),
        AmdGpu(1, OTHER, devices=(_device(1, OTHER, 200),)),
    ),
)
PARTS = tuple(
    _device(one, GPU if one == 0 else f"amdgpu_xcp_{one - 1}", 100 + one, partition=one)
    for one in range(8)
)
CPX = AmdNode(AmdDriver(), (AmdGpu(0, GPU, devices=PARTS),))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    amd_users.host_processes(tmp_path)
    return tmp_path


def test_no_device_and_no_file(tmp_path: Path) -> None:
    """A node without GPUs reads nothing; one without KFD and /proc has no process, and says so."""
    assert amd_processes.read(str(tmp_path), AmdNode()).is_complete
    found = amd_processes.read(str(tmp_path), WHOLE)
    assert found.uses == {GPU: {}, OTHER: {}}
    assert not found.is_complete


def test_compute_processes(root: Path) -> None:
    """KFD has each GPU in the directory of each process: only those with memory or work count."""
    amd_users.runs(root, 10)
    amd_users.runs(root, 11)
    amd_users.compute(root, 10, {100: 3 * GIB, 200: 0}, {100: 152})
    amd_users.compute(root, 11, {100: 0, 200: 0}, {200: 400})
    found = amd_processes.read(str(root), WHOLE)
    assert {pid: (use.vram_bytes, use.percent) for pid, use in found.uses[GPU].items()} == {
        10: (3 * GIB, 50)
    }
    assert {pid: (use.vram_bytes, use.percent) for pid, use in found.uses[OTHER].items()} == {
        11: (0, 100)
    }
    assert found.is_complete
    assert amd_processes.processes(str(root), WHOLE) == {GPU: {10: 3 * GIB}, OTHER: {11: 0}}


def test_further_contexts(root: Path) -> None:
    """The contexts of a process add up."""
    amd_users.runs(root, 10)
    amd_users.compute(root, 10, {100: GIB})
    amd_users.compute(root, 10, {100: 2 * GIB}, context="context_1")
    assert amd_processes.processes(str(root), WHOLE)[GPU] == {10: 3 * GIB}


@pytest.mark.parametrize(("kfd", "drm", "want"), [(3, 5, 5), (5, 3, 5), (3, None, 3), (None, 4, 4)])
def test_process_in_both_sources(root: Path, kfd: int | None, drm: int | None, want: int) -> None:
    """A process counts once: the larger figure, or the one that is known."""
    amd_users.compute(root, 10, {100: "?" if kfd is None else kfd * GIB}, {100: 38})
    amd_users.client(root, 10, "7", minor=128, vram=None if drm is None else drm * GIB)
    use = amd_processes.read(str(root), WHOLE).uses[GPU][10]
    assert (use.vram_bytes, use.percent) == (want * GIB, 12)


def test_unknown_memory(root: Path) -> None:
    """A process whose memory no source reports is listed without an amount."""
    amd_users.client(root, 10, "7", minor=128, vram=None)
    amd_users.runs(root, 11)
    amd_users.compute(root, 11, {200: "9" * 5000})
    assert amd_processes.processes(str(root), WHOLE) == {GPU: {10: None}, OTHER: {11: None}}


@pytest.mark.parametrize("key", ["drm-resident-vram", "drm-memory-vram", "drm-total-vram"])
def test_keys_of_fdinfo(root: Path, key: str) -> None:
    """Kernels have different keys for the same figure."""
    amd_users.client(root, 10, "7", minor=128, vram=GIB, key=key)
    assert amd_processes.processes(str(root), WHOLE)[GPU] == {10: GIB}


def test_clients(root: Path) -> None:
    """A client counts once, its descriptors too; two clients of a process add up."""
    amd_users.client(root, 10, "7", minor=128, vram=GIB)
    amd_users.client(root, 10, "7", minor=128, vram=GIB, descriptor=6)
    amd_users.client(root, 10, "8", minor=1, vram=GIB, descriptor=7, node="/dev/dri/card1")
    amd_users.client(root, 10, "9", minor=129, vram=GIB, descriptor=8, address=OTHER)
    found = amd_processes.processes(str(root), WHOLE)
    assert found == {GPU: {10: 2 * GIB}, OTHER: {10: GIB}}


def test_client_of_several_processes(root: Path) -> None:
    """The client of a parent and its children is the computing process's, else the first's."""
    amd_users.client(root, 10, "7", minor=128, vram=GIB)
    amd_users.client(root, 11, "7", minor=128, vram=GIB)
    assert amd_processes.processes(str(root), WHOLE)[GPU] == {10: GIB}
    amd_users.compute(root, 11, {100: GIB // 2})
    assert amd_processes.processes(str(root), WHOLE)[GPU] == {11: GIB}


def test_partitions(root: Path) -> None:
    """fdinfo has the address of the GPU for each partition: the node tells them apart."""
    amd_users.client(root, 10, "7", minor=131, vram=GIB)
    amd_users.client(root, 11, "8", minor=128, vram=2 * GIB)
    amd_users.client(root, 12, "9", minor=150, vram=GIB)  # a dead node
    amd_users.runs(root, 13)
    amd_users.compute(root, 13, {107: GIB})
    found = amd_processes.processes(str(root), CPX)
    used = {device: uses for device, uses in found.items() if uses}
    assert used == {
        "amdgpu_xcp_2": {10: GIB}, GPU: {11: 2 * GIB}, "amdgpu_xcp_6": {13: GIB},
    }  # fmt: skip


def test_node_under_another_name(root: Path) -> None:
    """A process may give a node any name, also a misleading one: the address of fdinfo remains."""
    amd_users.client(root, 10, "7", minor=0, vram=GIB, node="/tmp/null (deleted)")
    amd_users.client(
        root, 11, "8", minor=0, vram=GIB, node="/dev/dri/renderD129 (deleted)", address=OTHER
    )
    assert amd_processes.processes(str(root), WHOLE) == {GPU: {10: GIB}, OTHER: {11: GIB}}


def test_other_descriptors(root: Path) -> None:
    """Sockets, files, other drivers and a broken fdinfo are no clients."""
    amd_users.client(root, 10, "7", minor=128, vram=GIB, driver="i915")
    amd_users.client(root, 10, "", minor=128, vram=GIB, descriptor=6)
    proc = root / "proc/10"
    (proc / "fd/7").symlink_to("socket:[12]")
    (proc / "fd/8").symlink_to("/etc/passwd")
    (proc / "fdinfo/8").write_bytes(b"drm-driver:\xff\x00" + b"x" * 100_000)
    (proc / "fd/9").symlink_to("/dev/dri/renderD128")  # closed meanwhile
    found = amd_processes.read(str(root), WHOLE)
    assert found.uses == {GPU: {}, OTHER: {}}
    assert found.is_complete


def test_residual_memory(root: Path) -> None:
    """Memory of a process that has exited, or is a zombie, belongs to no process."""
    amd_users.runs(root, 10)
    amd_users.runs(root, 11, state="Z")
    amd_users.compute(root, 10, {100: GIB})
    amd_users.compute(root, 11, {100: 2 * GIB})
    amd_users.compute(root, 12, {100: GIB, 200: 0}, {200: 4})
    found = amd_processes.read(str(root), WHOLE)
    assert list(found.uses[GPU]) == [10]
    assert found.residual == {GPU: 3 * GIB}


def test_proc_of_a_container(tmp_path: Path) -> None:
    """Without the host's /proc no process has ended, and the list is not complete."""
    amd_users.compute(tmp_path, 10, {100: GIB})
    amd_users.client(tmp_path, 1, "7", minor=128, vram=GIB)
    found = amd_processes.read(str(tmp_path), WHOLE)
    assert {pid: use.vram_bytes for pid, use in found.uses[GPU].items()} == {10: GIB}
    assert not found.residual
    assert not found.is_complete


def test_too_many_descriptors(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with more descriptors than are read is not read: its use is not known."""
    amd_users.client(root, 10, "7", minor=128, vram=GIB)
    amd_users.client(root, 11, "8", minor=128, vram=GIB)
    amd_users.client(root, 10, "7", minor=128, vram=GIB, descriptor=6)
    monkeypatch.setattr(drm_clients, "_MAX_DESCRIPTORS", 1)
    found = amd_processes.read(str(root), WHOLE)
    assert {pid: use.vram_bytes for pid, use in found.uses[GPU].items()} == {11: GIB}
    assert not found.is_complete


def test_hostile_names(root: Path) -> None:
    """Names of no process, and files that are no files, change nothing."""
    place = root / amd_users.KFD_PROCESSES
    for name in ("-1", "٣", "0x10", "self", "1e3"):
        amd_users.write(place / name / "vram_100", "1\n")
    (place / "77").mkdir()
    (place / "77/vram_100").mkdir()
    (place / "78").write_text("")
    amd_users.runs(root, 77)
    (root / "proc/79").write_text("")
    found = amd_processes.read(str(root), WHOLE)
    assert found.uses[GPU] == {77: amd_processes.AmdProcessUse(None)}
    assert not found.is_complete  # process 79 has no directory


@AS_ROOT
def test_descriptors_of_another_user(root: Path) -> None:
    """Descriptors that may not be read leave the figure of KFD, and an incomplete list."""
    amd_users.client(root, 10, "7", minor=128, vram=4 * GIB)
    amd_users.compute(root, 10, {100: GIB})
    (root / "proc/10/fd").chmod(0o700)
    for directory in (root, *root.parents):
        directory.chmod(directory.stat().st_mode | 0o011)
    with other_user(lambda: amd_processes.read(str(root), WHOLE)):
        found = amd_processes.read(str(root), WHOLE)
    assert not found.is_complete
    assert found.uses[GPU][10].vram_bytes == GIB


def test_own_descriptors(root: Path) -> None:
    """The real /proc is readable; without amdgpu it has no client."""
    assert not drm_clients.drm_clients("/proc").clients
    lost = replace(WHOLE, gpus=(replace(WHOLE.gpus[0], devices=()),))
    assert amd_processes.processes(str(root), lost) == {}
