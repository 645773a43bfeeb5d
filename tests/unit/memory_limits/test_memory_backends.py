# SPDX-License-Identifier: Apache-2.0
"""The driver's two backends for limits: the kernel's controller dmem, and its own accounting."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuhook.containers.warm.driver_limit import DMEM, MISC, DriverLimit
from gpuhook.errors import GpuhookError
from gpuhook.request.memory_request import NO_LIMIT
from gpuhook.vendors.nvidia.warm import driver_backend
from gpuhook.vendors.nvidia.warm.nvml_limits import NvmlDriver
from tests.simulated import cgroups, driver_memory, stub_limits
from tests.simulated.node import SimulatedNode, make_node

MIB = 1 << 20
GIB = 1 << 30
TOTAL = 15360  # MiB of a T4
OURS = "nvidia/00000000:17:00.0/vidmem 16106127360\n"
THEIRS = "drm/0000:03:00.0/vram0 8514437120\n"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="setting limits is for root")


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    """Give a node with one GPU that accepts directories below tmp_path/cg as cgroups."""
    made = make_node(tmp_path / "node", "t4", real_nodes=False)
    stub_limits.take_for_cgroups(made, gpu(made), tmp_path / "cg")
    return made


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Give the root of a hierarchy in which every cgroup has the controllers cpu and dmem."""
    return cgroup(tmp_path / "cg")


def cgroup(path: Path, controllers: str = "cpu dmem", *, is_enabled: bool = True) -> Path:
    path.mkdir(parents=True)
    (path / "cgroup.controllers").write_text(f"{controllers}\n", encoding="ascii")
    if is_enabled:
        (path / "dmem.max").touch()
    return path


def gpu(node: SimulatedNode) -> str:
    return str(node.node.gpus[0].uuid)


def reserved(node: SimulatedNode) -> dict[str, int]:
    """Return the soft limit of each cgroup in GiB, by the end of its path."""
    return {
        Path(one.path).name: one.soft // GIB for one in stub_limits.known(node) if one.soft // GIB
    }


@pytest.mark.parametrize(
    ("regions", "controllers", "is_enabled", "backend"),
    [
        (OURS, "cpu dmem", True, DMEM),
        (THEIRS + OURS, "cpu dmem", False, DMEM),
        (THEIRS, "cpu dmem", True, MISC),  # the driver uses its own accounting, RmMemacctMode=1
        ("", "cpu dmem", True, MISC),
        (None, "cpu dmem", False, DMEM),  # a cgroup namespace shows no regions
        (None, "cpu", True, DMEM),
        (None, "cpu memory", False, MISC),
    ],
)
def test_backend_of_the_driver(
    regions: str | None, controllers: str, is_enabled: bool, backend: str, tmp_path: Path
) -> None:
    """The driver's regions decide, and the kernel's controllers if no regions are visible."""
    root = cgroup(tmp_path / "cg", controllers, is_enabled=False)
    own = cgroup(root / "pod/container", controllers, is_enabled=is_enabled)
    (root / "pod/cgroup.controllers").write_text(controllers, encoding="ascii")
    if regions is not None:
        (root / "dmem.capacity").write_text(regions, encoding="ascii")
    assert driver_backend.backend_of(str(own)) == backend
    assert driver_backend.lacks_controller(str(own)) == (backend == DMEM and not is_enabled)


def test_machine_without_the_controller() -> None:
    """This machine's own cgroups, if its kernel lacks the controller."""
    root = cgroups.mounted()
    if "dmem" in (root / "cgroup.controllers").read_text("ascii").split():
        pytest.skip("this machine's kernel has the controller dmem")
    with cgroups.made() as own:
        assert driver_backend.backend_of(str(own)) == MISC


def test_cgroup_without_the_controller_is_refused(node: SimulatedNode, top: Path) -> None:
    """The refusal has the missing controller, the place, and both fixes."""
    stub_limits.use_dmem(node, gpu(node))
    bare = cgroup(top / "pod/container", is_enabled=False)
    (top / "pod/cgroup.controllers").write_text("cpu", encoding="ascii")
    with NvmlDriver(node.nvml_library) as driver:
        assert driver.backend(gpu(node), str(bare)) == DMEM
        assert driver.get(gpu(node), str(bare)) is None
        for error in (0, stub_limits.NOT_SUPPORTED):
            stub_limits.fail_setting(node, gpu(node), error)
            with pytest.raises(GpuhookError) as caught:
                driver.set(gpu(node), str(bare), GIB, 0)
            assert caught.value.code == "GH1251"
            assert f"dmem is missing in cgroup.subtree_control of {top}/pod" in caught.value.message
            assert "RmMemacctMode=1" in caught.value.hint
            assert "+dmem" in caught.value.hint
    assert stub_limits.recorded(node) == []


def test_unsupported_gpu_is_not_a_missing_controller(node: SimulatedNode, top: Path) -> None:
    stub_limits.use_dmem(node, gpu(node))
    stub_limits.fail_setting(node, gpu(node), stub_limits.NOT_SUPPORTED)
    with NvmlDriver(node.nvml_library) as driver, pytest.raises(GpuhookError) as caught:
        driver.set(gpu(node), str(cgroup(top / "own")), GIB, 0)
    assert "does not support memory limits" in caught.value.message


def test_reservation_above_outlives_a_cgroup(node: SimulatedNode, top: Path) -> None:
    """It is released by setting it to zero, and in no other way."""
    stub_limits.use_dmem(node, gpu(node))
    cgroup(top / "pods/pod")
    (top / "pods/cgroup.controllers").touch()
    one, other = (cgroup(top / "pods/pod" / name) for name in ("one", "other"))
    with NvmlDriver(node.nvml_library) as driver:
        driver.set(gpu(node), str(one), 4 * GIB, 2 * GIB)
        driver.set(gpu(node), str(other), 4 * GIB, 3 * GIB)
        assert reserved(node) == {"pod": 5, "one": 2, "other": 3}, "pods has no controller"
        driver.set(gpu(node), str(other), 4 * GIB, GIB)
        assert reserved(node) == {"pod": 3, "one": 2, "other": 1}
        driver.clear(gpu(node), str(one))
        assert reserved(node) == {"pod": 1, "other": 1}
        for name in ("dmem.max", "cgroup.controllers"):
            (other / name).unlink()
        other.rmdir()
        assert reserved(node) == {"pod": 1}


def test_limits_of_the_kernel_nest(node: SimulatedNode, tmp_path: Path) -> None:
    """All limits above a process apply, and it reads only that of its innermost cgroup."""
    stub_limits.use_dmem(node, gpu(node), everywhere=True)
    with cgroups.made() as pod, driver_memory.serving(tmp_path, node) as memory:
        below = pod / "below"
        below.mkdir()
        with NvmlDriver(node.nvml_library) as driver:
            driver.set(gpu(node), str(pod), 1000 * MIB, 0)
            told = memory.ran(gpu(node), "info", cgroup=below)
            assert told == f"total {TOTAL} MiB free {TOTAL} MiB\n"
            driver.set(gpu(node), str(below), 2000 * MIB, 0)
            assert driver.get(gpu(node), str(below)) == DriverLimit(2000 * MIB, 0, 0)
        told = memory.ran(gpu(node), "alloc", "600", "info", "all", cgroup=below)
        assert told == "ok\ntotal 2000 MiB free 1400 MiB\ngot 400 MiB\n"


def test_nearest_limit_of_the_driver_applies(node: SimulatedNode, tmp_path: Path) -> None:
    """A cgroup that once had a limit ignores those above it; before that, it has theirs."""
    with cgroups.made() as pod, driver_memory.serving(tmp_path, node) as memory:
        below = pod / "below"
        below.mkdir()
        with NvmlDriver(node.nvml_library) as driver:
            assert driver.get(gpu(node), str(below)) is None
            driver.set(gpu(node), str(pod), 1000 * MIB, 500 * MIB)
            assert driver.get(gpu(node), str(below)) == DriverLimit(1000 * MIB, 500 * MIB, 0)
            told = memory.ran(gpu(node), "alloc", "600", "info", cgroup=below)
            assert told == "ok\ntotal 1000 MiB free 400 MiB\n"
            driver.set(gpu(node), str(below), 2000 * MIB, 0)
            assert memory.ran(gpu(node), "all", cgroup=below) == "got 2000 MiB\n"
            driver.clear(gpu(node), str(below))
            assert driver.get(gpu(node), str(below)) == DriverLimit(NO_LIMIT, 0, 0)


@pytest.mark.parametrize("backend", [DMEM, MISC])
def test_limit_below_the_used_memory_is_a_fault(
    backend: str, node: SimulatedNode, tmp_path: Path
) -> None:
    """Drivers refuse it with different errors: the fault is the same."""
    if backend == DMEM:
        stub_limits.use_dmem(node, gpu(node), everywhere=True)
    with cgroups.made() as own, driver_memory.serving(tmp_path, node) as memory:
        with NvmlDriver(node.nvml_library) as driver:
            driver.set(gpu(node), str(own), 4 * GIB, 0)
            with memory.started(gpu(node), "alloc", "3072", "hold", cgroup=own):
                memory.until(lambda held: sum(held.values()) == 3 * GIB)
                with pytest.raises(GpuhookError) as caught:
                    driver.set(gpu(node), str(own), 2 * GIB, 0)
                assert driver.get(gpu(node), str(own)) == DriverLimit(4 * GIB, 0, 3 * GIB)
        assert caught.value.code == "GH1251"
        assert "already use more than this limit" in caught.value.message
        assert "gpuhook ps" in caught.value.hint
