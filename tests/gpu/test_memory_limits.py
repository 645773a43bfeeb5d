# SPDX-License-Identifier: Apache-2.0
"""Two containers with limits on one real GPU: one asks for everything and fails alone.

By either of the driver's backends, whichever this machine has: it is printed first. Nothing here
runs under MPS.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuhook.memory_limits.warm import memory_backend
from gpuhook.memory_limits.warm.limit_records import DriverLimit
from gpuhook.memory_limits.warm.nvml_limits import NvmlDriver
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
    """Return which backend this machine's driver has, where it can hold limits."""
    driver = real.node.node.driver
    why = reason_to_skip(str(driver.nvml))
    if why:
        pytest.skip(why)
    with NvmlDriver(str(driver.nvml)) as opened:
        return opened.backend(str(real.gpu(0).uuid), "/sys/fs/cgroup")


@pytest.fixture
def limiting(real: Installation, backend: str, capsys: pytest.CaptureFixture[str]) -> Installation:
    """Return the node, and say what holds limits there."""
    with capsys.disabled():
        version, kernel = real.node.node.driver.version, os.uname().release
        print(f"\nmemory limits: backend {backend}, driver {version}, Linux {kernel}, no MPS")
    return real


@contextmanager
def allocating(
    installation: Installation, place: Path, *words: str, limit: int = LIMIT, request: int = 0
) -> Iterator[Container]:
    """Give a container that runs and allocates, limited by its variables as by `docker run -e`."""
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


def said(container: Container, lines: int) -> list[str]:
    """Return the last of the first `lines` lines of a container as words, when they are there."""
    eventually(lambda: len(container.output.splitlines()) >= lines, f"{lines} lines")
    return container.output.splitlines()[lines - 1].split()


def cgroup(container: Container) -> Path:
    """Return the directory of the container's cgroup."""
    pid = container.pid
    name = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").strip().partition("::")[2]
    return Path(f"/sys/fs/cgroup{name}")


def held(installation: Installation, container: Container) -> DriverLimit | None:
    """Return what the driver itself says of the container's cgroup."""
    with NvmlDriver(str(installation.node.node.driver.nvml)) as driver:
        return driver.get(str(installation.gpu(0).uuid), str(cgroup(container)))


def require_held(
    installation: Installation, container: Container, backend: str, limit: int
) -> None:
    """Fail with a finding where a limit reads back, and its container could allocate more."""
    _, amount, status = said(container, 1)
    told = held(installation, container)
    assert told is not None
    assert told.hard == limit * MIB
    short = falls_short(backend, limit, int(amount), status)
    if short:
        pytest.fail(short)


def test_one_fails_alone(limiting: Installation, backend: str, tmp_path: Path) -> None:
    """Who asks for everything fails at its limit; the neighbour allocates what is its own."""
    with allocating(limiting, tmp_path / "keeper", str(KEPT), str(MORE)) as keeper:
        assert said(keeper, 1) == ["held", str(KEPT), "0"]
        with allocating(limiting, tmp_path / "greedy", "all") as greedy:
            require_held(limiting, greedy, backend, LIMIT)
            assert int(said(greedy, 1)[1]) > 0
            (tmp_path / "keeper/root/go").touch()
            assert said(keeper, 2) == ["held", str(KEPT + MORE), "0"]
            for container in (keeper, greedy):
                told = held(limiting, container)
                assert told is not None
                assert told.hard == LIMIT * MIB
                assert 0 < told.used <= told.hard


def test_a_limit_follows_a_restart(limiting: Installation, backend: str, tmp_path: Path) -> None:
    """A container that is created again has a limit again, though its cgroup is another."""
    for attempt in ("first", "second"):
        with allocating(limiting, tmp_path / attempt, "all", limit=LIMIT // 2) as container:
            require_held(limiting, container, backend, LIMIT // 2)


def test_programs_are_told_the_limit(limiting: Installation, tmp_path: Path) -> None:
    """CUDA tells the limit as the total, so that hints need no fraction of the card."""
    with allocating(limiting, tmp_path, "info") as container:
        _, total, free = said(container, 1)
    assert int(free) <= int(total) == LIMIT


def test_a_guarantee(limiting: Installation, backend: str, tmp_path: Path) -> None:
    """It is set where it ends with the container, and nothing of it is left above otherwise."""
    with allocating(limiting, tmp_path, str(KEPT), request=KEPT) as container:
        assert said(container, 1) == ["held", str(KEPT), "0"]
        told = held(limiting, container)
        above = cgroup(container).parent / "dmem.min"
        before = above.read_text("ascii") if above.exists() else ""
    assert told is not None
    assert told.soft == (0 if backend == memory_backend.DMEM else KEPT * MIB)
    if above.exists():
        assert above.read_text("ascii") == before


def test_a_second_opinion(limiting: Installation, tmp_path: Path) -> None:
    """NVIDIA's own command says the same of the container's cgroup."""
    if shutil.which("nvidia-smi") is None:
        pytest.skip("there is no nvidia-smi here")
    with allocating(limiting, tmp_path, str(KEPT)) as container:
        assert said(container, 1) == ["held", str(KEPT), "0"]
        command = ["nvidia-smi", "memory-limits", "--get", "-n", str(cgroup(container))]
        done = run_command([*command, "-i", "0"])
    assert done.rc == 0, done
    assert f"{LIMIT} MiB" in done.stdout, done
