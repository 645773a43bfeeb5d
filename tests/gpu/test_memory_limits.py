# SPDX-License-Identifier: Apache-2.0
"""Two containers with limits on one real GPU: one allocates all memory, and fails alone.

The backend is that of this machine's driver; it is printed first. Nothing here runs under MPS.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuhook.containers.warm.driver_limit import DMEM, DriverLimit
from gpuhook.vendors.nvidia.warm.nvml_limits import NvmlDriver
from tests.contract import roots
from tests.contract.bundles import bundle
from tests.contract.installation import Installation, asks
from tests.contract.runtimes import Container, lifecycle, run_command
from tests.gpu.memory_call import falls_short, reason_to_skip
from tests.gpu.test_real_gpu import real
from tests.waiting import eventually

__all__ = ["real"]
pytestmark = [pytest.mark.gpu, pytest.mark.contract]
SOURCE = Path(__file__).with_name("memory_probe.c")
MIB = 1 << 20
LIMIT = 3072  # MiB of each; the context takes a part of it
KEPT, MORE = 1024, 512
SECONDS = 60


@pytest.fixture(scope="module")
def backend(real: Installation) -> str:
    """Return the backend of this machine's driver, if it supports limits."""
    driver = real.node.node.driver
    why = reason_to_skip(str(driver.nvml))
    if why:
        pytest.skip(why)
    with NvmlDriver(str(driver.nvml)) as opened:
        return opened.backend(str(real.gpu(0).uuid), "/sys/fs/cgroup")


@pytest.fixture
def limiting(real: Installation, backend: str, capsys: pytest.CaptureFixture[str]) -> Installation:
    """Return the installation, and print the backend, driver and kernel."""
    with capsys.disabled():
        version, kernel = real.node.node.driver.version, os.uname().release
        print(f"\nmemory limits: backend {backend}, driver {version}, Linux {kernel}, no MPS")
    return real


@contextmanager
def allocating_container(
    installation: Installation, place: Path, *words: str, limit: int = LIMIT, request: int = 0
) -> Iterator[Container]:
    """Yield a running container that allocates, limited by its variables as by `docker run -e`."""
    root = roots.copy("debian", place / "root")
    command = ["gcc", "-O2", "-o", str(root / "memory_probe"), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    env = [*asks(str(installation.gpu(0).uuid)), f"NVIDIA_GPU_MEMORY_LIMIT={limit}"]
    env += [f"NVIDIA_GPU_MEMORY_REQUEST={request}"] if request else []
    made = bundle(place / "bundle", root, ["/memory_probe", *words], env)
    with lifecycle(
        made, installation.command_with_state(), env=installation.on("runc")
    ) as container:
        container.start()
        yield container


def printed_line(container: Container, lines: int) -> list[str]:
    """Wait until a container has printed `lines` lines; return the words of the last of them."""
    eventually(lambda: len(container.output.splitlines()) >= lines, f"{lines} lines")
    return container.output.splitlines()[lines - 1].split()


def cgroup(container: Container) -> Path:
    """Return the directory of the container's cgroup."""
    pid = container.pid
    name = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").strip().partition("::")[2]
    return Path(f"/sys/fs/cgroup{name}")


def driver_limit(installation: Installation, container: Container) -> DriverLimit | None:
    """Return the driver's limit of the container's cgroup."""
    with NvmlDriver(str(installation.node.node.driver.nvml)) as driver:
        return driver.get(str(installation.gpu(0).uuid), str(cgroup(container)))


def require_enforced(
    installation: Installation, container: Container, backend: str, limit: int
) -> None:
    """Fail if a limit reads back but its container could allocate more."""
    _, amount, status = printed_line(container, 1)
    limit_read = driver_limit(installation, container)
    assert limit_read is not None
    assert limit_read.hard == limit * MIB
    short = falls_short(backend, limit, int(amount), status)
    if short:
        pytest.fail(short)


def test_greedy_container_fails_alone(limiting: Installation, backend: str, tmp_path: Path) -> None:
    """One container fails at its limit; the other one allocates its own share."""
    with allocating_container(limiting, tmp_path / "keeper", str(KEPT), str(MORE)) as keeper:
        assert printed_line(keeper, 1) == ["held", str(KEPT), "0"]
        with allocating_container(limiting, tmp_path / "greedy", "all") as greedy:
            require_enforced(limiting, greedy, backend, LIMIT)
            assert int(printed_line(greedy, 1)[1]) > 0
            (tmp_path / "keeper/root/go").touch()
            assert printed_line(keeper, 2) == ["held", str(KEPT + MORE), "0"]
            for container in (keeper, greedy):
                limit_read = driver_limit(limiting, container)
                assert limit_read is not None
                assert limit_read.hard == LIMIT * MIB
                assert 0 < limit_read.used <= limit_read.hard


def test_restarted_container_has_its_limit(
    limiting: Installation, backend: str, tmp_path: Path
) -> None:
    """The container is created again with another cgroup."""
    for attempt in ("first", "second"):
        with allocating_container(
            limiting, tmp_path / attempt, "all", limit=LIMIT // 2
        ) as container:
            require_enforced(limiting, container, backend, LIMIT // 2)


def test_cuda_reports_the_limit_as_total(limiting: Installation, tmp_path: Path) -> None:
    """Frameworks need no hint about the fraction of the GPU's memory."""
    with allocating_container(limiting, tmp_path, "info") as container:
        _, total, free = printed_line(container, 1)
    assert int(free) <= int(total) == LIMIT


def test_guarantee_is_not_left_behind(limiting: Installation, backend: str, tmp_path: Path) -> None:
    """It is set if it is released with the container; dmem's parent cgroup does not change."""
    with allocating_container(limiting, tmp_path, str(KEPT), request=KEPT) as container:
        assert printed_line(container, 1) == ["held", str(KEPT), "0"]
        limit_read = driver_limit(limiting, container)
        above = cgroup(container).parent / "dmem.min"
        before = above.read_text("ascii") if above.exists() else ""
    assert limit_read is not None
    assert limit_read.soft == (0 if backend == DMEM else KEPT * MIB)
    if above.exists():
        assert above.read_text("ascii") == before


def test_nvidia_smi_reports_the_limit(limiting: Installation, tmp_path: Path) -> None:
    """NVIDIA's command reads the limit of the container's cgroup."""
    if shutil.which("nvidia-smi") is None:
        pytest.skip("there is no nvidia-smi here")
    with allocating_container(limiting, tmp_path, str(KEPT)) as container:
        assert printed_line(container, 1) == ["held", str(KEPT), "0"]
        command = ["nvidia-smi", "memory-limits", "--get", "-n", str(cgroup(container))]
        done = run_command([*command, "-i", "0"])
    assert done.rc == 0, done
    assert f"{LIMIT} MiB" in done.stdout, done
