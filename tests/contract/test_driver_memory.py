# SPDX-License-Identifier: Apache-2.0
"""The simulated driver's memory under real runtimes, which the tests of memory limits use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.warm.nvml_limits import NvmlDriver
from tests.contract.bundles import Bundle, Bundles
from tests.contract.runtimes import ENGINES, Container, lifecycle
from tests.simulated import cgroups, driver_memory, stub_limits
from tests.simulated.driver_memory import DriverMemory
from tests.simulated.node import make_node
from tests.waiting import eventually

MIB = 1 << 20
TOTAL = 15360  # MiB of a T4


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[DriverMemory]:
    node = make_node(tmp_path / "node", "t4", real_nodes=False)
    with driver_memory.serving(tmp_path, node) as serving:
        yield serving


def gpu(driver: DriverMemory) -> str:
    return str(driver.node.node.gpus[0].uuid)


def cgroup_of(container: Container) -> Path:
    """Return the directory of the container's cgroup v2 on this machine."""
    pid = container.pid
    lines = Path(f"/proc/{pid}/cgroup").read_text("utf-8").splitlines()
    name = next(line[3:] for line in lines if line.startswith("0::"))
    return cgroups.mounted() / name.lstrip("/")


@pytest.mark.parametrize("root", ["distroless", "musl"])
@ENGINES
def test_driver_reserves_memory_for_each_cgroup(
    engine: str, root: str, driver: DriverMemory, bundle_of: Bundles
) -> None:
    """A container that allocates everything gets what is free; the other has its reserve."""

    def bundle(*words: str) -> Bundle:
        made = bundle_of(root, ["/gpu-probe", "/gpu.sock", gpu(driver), *words])
        made.mount(driver.probe, "/gpu-probe")
        made.mount(driver.socket, "/gpu.sock")
        return made

    owner, greedy = bundle("pause", "alloc", "4000", "hold"), bundle("pause", "all", "hold")
    with (
        lifecycle(owner, [engine], engine, "v2") as first,
        lifecycle(greedy, [engine], engine, "v2") as second,
    ):
        for container, soft in ((first, 4000), (second, 1000)):
            assert container.create().rc == 0, container.errors
            with NvmlDriver(driver.node.nvml_library) as nvml_driver:
                nvml_driver.set(
                    gpu(driver), str(cgroup_of(container)), stub_limits.NO_LIMIT, soft * MIB
                )
            assert container.call("start").rc == 0
        second.call("kill", "USR1")
        used = driver.until(lambda held: sum(held.values()) >= (TOTAL - 4000) * MIB)
        assert list(used.values()) == [(TOTAL - 4000) * MIB]
        first.call("kill", "USR1")
        pid = first.pid
        assert driver.until(lambda held: len(held) == 2)[pid] == 4000 * MIB
        # The driver records the memory before the program prints that it has it.
        eventually(lambda: first.output == "ok\nholding\n")
        eventually(lambda: second.output == f"got {TOTAL - 4000} MiB\nholding\n")
        assert len(stub_limits.recorded(driver.node)) == 2
        first.delete()
        assert len(stub_limits.recorded(driver.node)) == 1
        assert driver.ran(gpu(driver), "alloc", "4000") == "ok\n"
