# SPDX-License-Identifier: Apache-2.0
"""The driver's memory limits, in a small real libnvidia-ml.so.1 that stores them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuhook.containers.warm.driver_limit import DriverLimit
from gpuhook.errors import GpuhookError
from gpuhook.request.memory_request import NO_LIMIT
from gpuhook.vendors.nvidia.driver import driver_support
from gpuhook.vendors.nvidia.warm.nvml_limits import NvmlDriver
from tests.simulated import build, stub_events, stub_limits
from tests.simulated.node import SimulatedNode, make_node

MIB = 1 << 20
GIB = 1 << 30
ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="setting limits is for root")


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    """Give a node with one GPU that accepts directories below tmp_path/cg as cgroups."""
    made = make_node(tmp_path / "node", "t4", real_nodes=False)
    stub_limits.take_for_cgroups(made, gpu(made), tmp_path / "cg")
    return made


@pytest.fixture
def cgroup(tmp_path: Path) -> str:
    path = tmp_path / "cg/pod/container"
    path.mkdir(parents=True)
    return str(path)


def gpu(node: SimulatedNode) -> str:
    return str(node.node.gpus[0].uuid)


def refused(node: SimulatedNode, cgroup: str, hard: int = 4 * GIB, soft: int = GIB) -> GpuhookError:
    with NvmlDriver(node.nvml_library) as driver, pytest.raises(GpuhookError) as caught:
        driver.set(gpu(node), cgroup, hard, soft)
    return caught.value


def replaced(node: SimulatedNode, library: Path) -> None:
    Path(node.nvml_library).unlink()
    shutil.copy(library, node.nvml_library)


def test_limit_is_set_and_read_back(node: SimulatedNode, cgroup: str) -> None:
    """By this driver and by the next one that opens the library."""
    with NvmlDriver(node.nvml_library) as driver:
        assert driver.set(gpu(node), cgroup, 4 * GIB, GIB) == DriverLimit(4 * GIB, GIB, 0)
        assert driver.set(gpu(node), cgroup, 2 * GIB, 2 * GIB) == DriverLimit(2 * GIB, 2 * GIB, 0)
    with NvmlDriver(node.nvml_library) as driver:
        held = driver.get(gpu(node), cgroup)
    assert held == DriverLimit(2 * GIB, 2 * GIB, 0)
    assert held.is_limited
    (kept,) = stub_limits.recorded(node)
    assert (kept.path, kept.hard, kept.soft) == (cgroup, 2 * GIB, 2 * GIB)


def test_one_kind_of_limit_alone(node: SimulatedNode, cgroup: str) -> None:
    """A container may have a request and no limit, or a limit and no request."""
    with NvmlDriver(node.nvml_library) as driver:
        assert driver.set(gpu(node), cgroup, NO_LIMIT, GIB) == DriverLimit(NO_LIMIT, GIB, 0)
        assert driver.set(gpu(node), cgroup, GIB, 0) == DriverLimit(GIB, 0, 0)


def test_cleared_limit_reads_as_none(node: SimulatedNode, cgroup: str) -> None:
    """A cleared limit reads as none, clearing twice succeeds, and other cgroups keep theirs."""
    other = Path(cgroup).with_name("other")
    other.mkdir()
    with NvmlDriver(node.nvml_library) as driver:
        driver.set(gpu(node), str(other), 4 * GIB, 0)
        driver.set(gpu(node), cgroup, 4 * GIB, GIB)
        driver.clear(gpu(node), cgroup)
        driver.clear(gpu(node), cgroup)
        held = driver.get(gpu(node), cgroup)
        assert held == DriverLimit(NO_LIMIT, 0, 0)
        assert not held.is_limited
        assert driver.get(gpu(node), str(other)) == DriverLimit(4 * GIB, 0, 0)


def test_cleared_limit_may_read_as_the_card(node: SimulatedNode, cgroup: str) -> None:
    """A driver may report the card's size if there is no limit."""
    with NvmlDriver(node.nvml_library) as driver:
        driver.set(gpu(node), cgroup, 4 * GIB, 0)
        total = driver.within(gpu(node), NO_LIMIT - 1)
        stub_limits.read_back(node, gpu(node), total, 0)
        driver.clear(gpu(node), cgroup)
        held = driver.get(gpu(node), cgroup)
        assert held is not None
        assert not held.is_limited
        assert held.holds(NO_LIMIT, 0)
        stub_limits.read_back(node, gpu(node), total - GIB, 0)
        with pytest.raises(GpuhookError) as caught:
            driver.clear(gpu(node), cgroup)
    assert caught.value.code == "GH1252"


def test_limit_ends_with_its_cgroup(node: SimulatedNode, cgroup: str) -> None:
    """A removed cgroup has no limit to clear; a new one with its name has none yet."""
    with NvmlDriver(node.nvml_library) as driver:
        driver.set(gpu(node), cgroup, 4 * GIB, GIB)
        Path(cgroup).rmdir()
        assert driver.get(gpu(node), cgroup) is None
        driver.clear(gpu(node), cgroup)
        Path(cgroup).mkdir()
        assert driver.get(gpu(node), cgroup) is None


def test_cgroup_unknown_to_the_driver(node: SimulatedNode, cgroup: str) -> None:
    stub_limits.fail_reading(node, gpu(node), 6)
    with NvmlDriver(node.nvml_library) as driver:
        assert driver.get(gpu(node), cgroup) is None
    error = refused(node, cgroup)
    assert error.code == "GH1252"
    assert "no hard limit" in error.message


@pytest.mark.parametrize(
    ("hard", "soft"), [(GIB, 2 * GIB), (16 * GIB, 0), (0, 0), (NO_LIMIT, 16 * GIB)]
)
def test_invalid_values_are_refused(node: SimulatedNode, cgroup: str, hard: int, soft: int) -> None:
    """A soft limit above the hard one, limits above the card's memory, a hard limit of 0."""
    error = refused(node, cgroup, hard, soft)
    assert error.code == "GH1251"
    assert "above the card's memory" in error.message
    assert "nvidia-smi" in error.hint
    assert stub_limits.recorded(node) == []


def test_invalid_cgroup_has_its_reason(node: SimulatedNode, cgroup: str, tmp_path: Path) -> None:
    """A missing directory and one that is not a cgroup of version 2 have different reasons."""
    gone = refused(node, cgroup + "/gone")
    assert (gone.code, "its container has exited" in gone.message) == ("GH1251", True)
    plain = refused(node, str(tmp_path))
    assert (plain.code, "not a cgroup v2" in plain.message) == ("GH1251", True)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (2, "an argument is wrong"),
        (3, "does not support memory limits"),
        (4, "no permission"),
        (6, "does not know the cgroup"),
        (7, "path is too long"),
        (10, "did not answer in time"),
        (19, "already use more than this limit"),
        (20, "no memory left"),
        (23, "exceed the card's memory"),
        (25, "a different version of the call"),
        (27, "an error of the simulated driver (27)"),
        (999, "an error of the simulated driver (999)"),
    ],
)
def test_refusals_of_the_driver_are_explained(
    node: SimulatedNode, cgroup: str, error: int, words: str
) -> None:
    """Each error of the driver has a message with the GPU, the cgroup and the reason, and a hint.

    Errors on reading have one, too, and the earlier limit is kept.
    """
    stub_limits.fail_setting(node, gpu(node), error)
    fault = refused(node, cgroup)
    assert fault.code == "GH1251"
    for fact in (gpu(node), cgroup, words):
        assert fact in fault.message
    assert fault.hint
    assert stub_limits.recorded(node) == []
    stub_limits.repair(node, gpu(node))
    if error in (3, 6):
        return  # on reading, these errors mean an unknown limit
    stub_limits.fail_reading(node, gpu(node), error)
    fault = refused(node, cgroup)
    assert (fault.code, words in fault.message) == ("GH1254", True)
    with NvmlDriver(node.nvml_library) as driver, pytest.raises(GpuhookError) as caught:
        driver.get(gpu(node), cgroup)
    assert caught.value.code == "GH1254"


@pytest.mark.parametrize(("hard", "soft"), [(NO_LIMIT, 0), (5 * GIB, GIB), (4 * GIB, 0)])
def test_different_value_read_back_is_a_fault(
    node: SimulatedNode, cgroup: str, hard: int, soft: int
) -> None:
    """A driver that reports success and stores another value is not trusted."""
    stub_limits.read_back(node, gpu(node), hard, soft)
    error = refused(node, cgroup)
    assert error.code == "GH1252"
    assert f"hard limit {4 * GIB} and soft limit {GIB} bytes" in error.message
    stub_limits.repair(node, gpu(node))
    with NvmlDriver(node.nvml_library) as driver:
        driver.set(gpu(node), cgroup, 4 * GIB, GIB)


def test_rounding_to_pages_is_a_fault(node: SimulatedNode, cgroup: str) -> None:
    """The error has the driver's values."""
    stub_limits.read_back(node, gpu(node), 4 * GIB - 64 * 1024, GIB)
    with NvmlDriver(node.nvml_library) as driver:
        assert driver.set(gpu(node), cgroup, 4 * GIB, GIB).hard == 4 * GIB - 64 * 1024


def test_slow_driver_succeeds(node: SimulatedNode, cgroup: str) -> None:
    stub_limits.take_long(node, gpu(node), 100)
    with NvmlDriver(node.nvml_library) as driver:
        assert driver.set(gpu(node), cgroup, GIB, 0) == DriverLimit(GIB, 0, 0)


@pytest.mark.parametrize("old", [{"old": True}, {"without": "MEMORY_LIMITS"}])
def test_older_driver_is_recognized(node: SimulatedNode, old: dict[str, bool | str]) -> None:
    """A library without the calls is recognized by its file, and when it is opened."""
    assert driver_support.supported(node.nvml_library)
    replaced(node, build.nvml_stub(**old))  # type: ignore[arg-type]
    assert not driver_support.supported(node.nvml_library)
    with pytest.raises(GpuhookError) as caught:
        NvmlDriver(node.nvml_library)
    assert caught.value.code == "GH1250"
    assert "CUDA 13.4" in caught.value.message


def test_node_with_an_older_driver(tmp_path: Path) -> None:
    older = make_node(tmp_path, "t4", real_nodes=False, memory_limits=False)
    assert not driver_support.supported(older.nvml_library)


@pytest.mark.parametrize("call", ["setting", "reading"])
def test_library_newer_than_the_kernel_module(node: SimulatedNode, cgroup: str, call: str) -> None:
    """The library may have the call and the driver may lack it."""
    getattr(stub_limits, f"fail_{call}")(node, gpu(node), stub_limits.FUNCTION_NOT_FOUND)
    assert refused(node, cgroup).code == "GH1250"


def test_mig_device_is_refused(tmp_path: Path, cgroup: str) -> None:
    """gpuhook refuses a MIG device without a call of the driver; the driver refuses its GPU.

    Which says no more than that it does not support it, as of a cgroup without limits.
    """
    node = make_node(tmp_path / "a100", "a100-mig", real_nodes=False)
    parent = next(gpu for gpu in node.node.gpus if gpu.instances)
    stub_limits.take_for_cgroups(node, str(parent.uuid), tmp_path / "cg")
    with NvmlDriver(node.nvml_library) as driver:
        for ask in (driver.set, driver.get, driver.clear):
            arguments = (GIB, 0) if ask == driver.set else ()
            with pytest.raises(GpuhookError) as caught:
                ask(str(parent.instances[0].uuid), cgroup, *arguments)
            assert caught.value.code == "GH1253"
        with pytest.raises(GpuhookError) as caught:
            driver.set(str(parent.uuid), cgroup, GIB, 0)
        assert caught.value.code == "GH1253"
        with pytest.raises(GpuhookError) as caught:
            driver.get(str(parent.uuid), cgroup)
    assert caught.value.code == "GH1253", "not: no limit is known"


def test_missing_gpu_is_a_fault(node: SimulatedNode, cgroup: str) -> None:
    with NvmlDriver(node.nvml_library) as driver, pytest.raises(GpuhookError) as caught:
        driver.set("GPU-0", cgroup, GIB, 0)
    assert caught.value.code == "GH1255"
    assert "no GPU of this UUID" in caught.value.message


def test_lost_gpu_is_a_fault(node: SimulatedNode, cgroup: str) -> None:
    """Whether it is lost before the first call or after it."""
    with NvmlDriver(node.nvml_library) as driver:
        driver.set(gpu(node), cgroup, GIB, 0)
        stub_events.lose(node, gpu(node))
        with pytest.raises(GpuhookError) as caught:
            driver.get(gpu(node), cgroup)
    assert caught.value.code == "GH1255"
    error = refused(node, cgroup)
    assert error.code == "GH1255"
    assert "fallen off the bus" in error.message


@pytest.mark.parametrize(
    ("error", "code"),
    [(18, "GH1203"), (9, "GH1204"), (12, "GH1204"), (4, "GH1205"), (999, "GH1206")],
)
def test_library_that_does_not_start_is_a_fault(node: SimulatedNode, error: int, code: str) -> None:
    text = Path(node.nvml_profile).read_text("utf-8")
    stub_events.rewrite(node, f"init {error}\n{text}")
    with pytest.raises(GpuhookError) as caught:
        NvmlDriver(node.nvml_library)
    assert caught.value.code == code


def test_file_that_is_no_library_is_a_fault(tmp_path: Path) -> None:
    text = tmp_path / "libnvidia-ml.so.1"
    for call in (NvmlDriver, driver_support.supported):
        with pytest.raises(GpuhookError) as caught:
            call(str(text))
        assert caught.value.code == "GH1202"
    text.write_text("no library", encoding="utf-8")
    assert not driver_support.supported(str(text))
    with pytest.raises(GpuhookError) as caught:
        NvmlDriver(str(text))
    assert caught.value.code == "GH1202"


AS_NOBODY = """
import os, sys
sys.path.insert(0, sys.argv[1])
import gpuhook.errors.messages  # before Python's own files become inaccessible
from gpuhook.vendors.nvidia.warm.nvml_limits import NvmlDriver
with NvmlDriver(sys.argv[2]) as driver:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    print(driver.get(sys.argv[3], sys.argv[4]))
    try:
        driver.set(sys.argv[3], sys.argv[4], 1 << 30, 0)
    except Exception as error:
        print(error.code, error.message)
"""


def test_only_root_can_set_limits(short_path: Path) -> None:
    """All users can read them, as in the driver."""
    short_path.chmod(0o755)
    node = make_node(short_path / "node", "t4", real_nodes=False)
    stub_limits.take_for_cgroups(node, gpu(node), short_path)
    cgroup = short_path / "cgroup"
    cgroup.mkdir()
    command = [sys.executable, "-IS", "-c", AS_NOBODY, str(ROOT)]
    command += [node.nvml_library, gpu(node), str(cgroup)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told, error = done.stdout.splitlines()
    assert told == "None"
    assert error.startswith("GH1251")
    assert "no permission" in error
