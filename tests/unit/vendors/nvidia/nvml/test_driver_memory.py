# SPDX-License-Identifier: Apache-2.0
"""The simulated driver's memory: real processes in real cgroups, and the values of NVML.

Other tests rely on this: allocated and refused memory, and NVML's values meanwhile.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.nvml import gpu_usage, nvml_inventory
from gpuhook.vendors.nvidia.warm.nvml_limits import NvmlDriver
from tests.simulated import cgroups, driver_memory, stub_events, stub_limits
from tests.simulated.driver_memory import DriverMemory
from tests.simulated.node import make_node

MIB = 1 << 20
TOTAL = 15360  # MiB of a T4

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making cgroups needs root")


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[DriverMemory]:
    node = make_node(tmp_path / "node", "t4", real_nodes=False)
    with driver_memory.serving(tmp_path, node) as serving:
        yield serving


@pytest.fixture
def first_cgroup() -> Iterator[Path]:
    with cgroups.made() as path:
        yield path


@pytest.fixture
def second_cgroup() -> Iterator[Path]:
    with cgroups.made() as path:
        yield path


def gpu(driver: DriverMemory) -> str:
    return str(driver.node.node.gpus[0].uuid)


def limit(driver: DriverMemory, cgroup: Path, hard: int, soft: int = 0) -> None:
    """Set limits in MiB; a hard limit of 0 removes the limit."""
    with NvmlDriver(driver.node.nvml_library) as nvml_driver:
        bytes_of = hard * MIB or stub_limits.NO_LIMIT
        nvml_driver.set(gpu(driver), str(cgroup), bytes_of, soft * MIB)


def output_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def test_memory_is_allocated_until_its_process_ends(driver: DriverMemory) -> None:
    with driver.started(gpu(driver), "alloc", "100", "alloc", "50", "free", "30", "hold") as holder:
        assert [output_line(holder) for _ in range(3)] == ["ok", "ok", "holding"]
        assert driver.held() == driver.held(gpu(driver)) == {holder.pid: 120 * MIB}
        assert driver.held("GPU-other") == {}
    holder.wait()
    assert driver.held() == {}
    assert driver.used(gpu(driver)) == 0


def test_nvml_reports_allocated_memory(driver: DriverMemory) -> None:
    """Processes by the host's pids, and the used memory, in addition to the profile's."""
    uuid = gpu(driver)
    stub_events.say(driver.node, uuid, f"used {5 * MIB}", f"process compute 42 {5 * MIB}")
    with (
        nvml_inventory.opened(driver.node.nvml_library),
        driver.started(uuid, "alloc", "100", "hold") as holder,
    ):
        assert [output_line(holder), output_line(holder)] == ["ok", "holding"]
        found = gpu_usage.processes(uuid) or ()
        assert {(use.pid, use.memory_bytes) for use in found} == {
            (42, 5 * MIB),
            (holder.pid, 100 * MIB),
        }
        memory = gpu_usage.memory(uuid)
        assert memory is not None
        assert memory.used == 105 * MIB
        assert memory.free == (TOTAL - 105) * MIB
        holder.kill()
        driver.until(lambda held: not held)
        assert [use.pid for use in gpu_usage.processes(uuid) or ()] == [42]


def test_memory_of_the_card_is_limited(driver: DriverMemory) -> None:
    """Memory that is reserved or used by others is not available; the caller gets an error."""
    uuid = gpu(driver)
    stub_events.say(driver.node, uuid, f"used {100 * MIB}", f"reserved {60 * MIB}")
    assert driver.capacity(uuid) == (TOTAL - 160) * MIB
    with driver.started(uuid, "all", "hold") as holder:
        assert output_line(holder) == f"got {TOTAL - 160} MiB"
        assert driver.ran(uuid, "alloc", "1") == "out of memory\n"
        assert holder.poll() is None
        assert driver.held() == {holder.pid: driver.capacity(uuid)}
    refusal = driver.refusals[-1]
    assert (refusal.uuid, refusal.size, refusal.why) == (uuid, MIB, "out of memory")


def test_hard_limit_is_enforced(
    driver: DriverMemory, first_cgroup: Path, second_cgroup: Path
) -> None:
    """For all processes of the cgroup together, and for no others."""
    limit(driver, first_cgroup, 1000)
    with driver.started(gpu(driver), "alloc", "600", "hold", cgroup=first_cgroup) as first:
        assert output_line(first) == "ok"
        assert driver.ran(gpu(driver), "alloc", "500", cgroup=first_cgroup) == "out of memory\n"
        assert driver.ran(gpu(driver), "all", cgroup=first_cgroup) == "got 400 MiB\n"
        assert driver.ran(gpu(driver), "all", cgroup=second_cgroup) == f"got {TOTAL - 600} MiB\n"
        with NvmlDriver(driver.node.nvml_library) as nvml_driver:
            held = nvml_driver.get(gpu(driver), str(first_cgroup))
        assert held is not None
        assert (held.hard, held.used) == (1000 * MIB, 600 * MIB)


def test_limit_of_the_nearest_cgroup_applies(driver: DriverMemory, first_cgroup: Path) -> None:
    """A child cgroup has its parent's limit until it has its own; its use adds to the parent's."""
    below = first_cgroup / "below"
    below.mkdir()
    limit(driver, first_cgroup, 1000)
    with driver.started(gpu(driver), "all", "hold", cgroup=below) as holder:
        assert output_line(holder) == "got 1000 MiB"
        with NvmlDriver(driver.node.nvml_library) as nvml_driver:
            used = [nvml_driver.get(gpu(driver), str(path)) for path in (first_cgroup, below)]
        assert [held and held.used for held in used] == [1000 * MIB, 1000 * MIB]
    limit(driver, below, 200)
    assert driver.ran(gpu(driver), "all", cgroup=below) == "got 200 MiB\n"


def test_soft_limit_is_reserved(
    driver: DriverMemory, first_cgroup: Path, second_cgroup: Path
) -> None:
    """One process requests all memory and fails; the other gets its reservation."""
    limit(driver, first_cgroup, 0, 5000)
    with driver.started(gpu(driver), "all", "hold", cgroup=second_cgroup) as greedy:
        assert output_line(greedy) == f"got {TOTAL - 5000} MiB"
        with driver.started(gpu(driver), "alloc", "3000", "hold", cgroup=first_cgroup) as owner:
            assert output_line(owner) == "ok"
            assert driver.ran(gpu(driver), "alloc", "1", cgroup=second_cgroup) == "out of memory\n"
            assert driver.ran(gpu(driver), "all", cgroup=first_cgroup) == "got 2000 MiB\n"


def test_limit_is_cleared_and_ends_with_its_cgroup(
    driver: DriverMemory, first_cgroup: Path, second_cgroup: Path
) -> None:
    limit(driver, first_cgroup, 1000, 1000)
    assert driver.ran(gpu(driver), "all", cgroup=second_cgroup) == f"got {TOTAL - 1000} MiB\n"
    assert [kept.path for kept in stub_limits.recorded(driver.node)] == [str(first_cgroup)]
    limit(driver, first_cgroup, 0)
    assert driver.ran(gpu(driver), "all", cgroup=first_cgroup) == f"got {TOTAL} MiB\n"
    below = first_cgroup / "below"
    below.mkdir()
    limit(driver, below, 1000, 1000)
    below.rmdir()
    assert stub_limits.recorded(driver.node) == []
    assert driver.ran(gpu(driver), "all", cgroup=second_cgroup) == f"got {TOTAL} MiB\n"


def test_cgroup_is_identified_by_its_inode(driver: DriverMemory, first_cgroup: Path) -> None:
    """A limit that is set by a path in another mount namespace is that of the same cgroup."""
    script = 'mount -t cgroup2 none /mnt && exec "$@"'
    program = "import sys; sys.path.insert(0, sys.argv[1])\n"
    program += "from gpuhook.vendors.nvidia.warm.nvml_limits import NvmlDriver\n"
    program += "NvmlDriver(sys.argv[2]).set(sys.argv[3], sys.argv[4], 300 << 20, 0)\n"
    words = [str(Path(__file__).parents[5]), driver.node.nvml_library, gpu(driver)]
    words.append(f"/mnt/{first_cgroup.relative_to(cgroups.mounted())}")
    python = [sys.executable, "-ISB", "-c", program]
    subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", *python, *words], check=True)
    assert [kept.hard for kept in stub_limits.recorded(driver.node)] == [300 * MIB]
    assert driver.ran(gpu(driver), "all", cgroup=first_cgroup) == "got 300 MiB\n"


def test_children_have_their_own_memory(driver: DriverMemory, first_cgroup: Path) -> None:
    """Each forked process is listed by its pid, and a killed one loses its own memory only."""
    limit(driver, first_cgroup, 1000)
    words = ("alloc", "100", "fork", "3", "alloc", "200", "hold")
    with driver.started(gpu(driver), *words, cgroup=first_cgroup) as parent:
        held = driver.until(lambda held: len(held) == 4)
        assert held.pop(parent.pid) == 100 * MIB
        assert list(held.values()) == [200 * MIB] * 3
        killed = next(iter(held))
        os.kill(killed, signal.SIGKILL)
        left = driver.until(lambda held: len(held) == 3)
        assert killed not in left
        assert driver.ran(gpu(driver), "all", cgroup=first_cgroup) == "got 500 MiB\n"
        cgroups.ended(first_cgroup)
        driver.until(lambda held: not held)
        first_cgroup.mkdir()


def test_probe_waits_and_handles_signals(driver: DriverMemory, first_cgroup: Path) -> None:
    """It can wait for input, ends at SIGTERM, and can ignore it."""
    with driver.started(gpu(driver), "alloc", "1", "pause", "alloc", "2", "hold") as process:
        assert output_line(process) == "ok"
        process.send_signal(signal.SIGUSR1)
        assert output_line(process) == "ok"
        process.terminate()
        assert process.wait(10) == 143
    with driver.started(
        gpu(driver), "ignore", "alloc", "1", "hold", cgroup=first_cgroup
    ) as process:
        assert [output_line(process), output_line(process)] == ["ok", "holding"]
        process.terminate()
        assert driver.ran(gpu(driver), "alloc", "1") == "ok\n"
        assert process.poll() is None


def test_unavailable_gpus(driver: DriverMemory, tmp_path: Path) -> None:
    """An unknown GPU, a lost one, and no driver have different errors."""
    assert driver.ran("GPU-other", "alloc", "1") == "no such device\n"
    stub_events.lose(driver.node, gpu(driver))
    assert driver.ran(gpu(driver), "alloc", "1") == "no such device\n"
    command = [str(driver.probe), str(tmp_path / "nothing"), gpu(driver), "alloc", "1"]
    assert subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 3


def test_removed_driver_ends_its_probes(tmp_path: Path) -> None:
    node = make_node(tmp_path / "node", "t4", real_nodes=False)
    with driver_memory.serving(tmp_path, node) as driver:
        command = [str(driver.probe), str(driver.socket), gpu(driver), "fork", "2", "hold"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        with process:
            assert [output_line(process), output_line(process)] == ["holding", "holding"]
            driver.close()
            assert process.wait(10) == 3


@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare")
def test_pids_are_those_of_the_host(driver: DriverMemory) -> None:
    """The driver identifies a process by its pid on the host, not in its namespace."""
    command = ["unshare", "--pid", "--fork", str(driver.probe), str(driver.socket), gpu(driver)]
    with subprocess.Popen([*command, "alloc", "7", "hold"], stdout=subprocess.PIPE, text=True) as p:
        assert [output_line(p), output_line(p)] == ["ok", "holding"]
        ((pid, size),) = driver.held().items()
        assert size == 7 * MIB
        assert Path(f"/proc/{pid}/status").read_text().split("NSpid:")[1].split()[:2] == [
            str(pid),
            "1",
        ]
        os.kill(pid, signal.SIGTERM)
        assert p.wait(10) == 143
