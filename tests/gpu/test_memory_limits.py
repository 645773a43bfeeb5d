# SPDX-License-Identifier: Apache-2.0
"""Two containers with limits on one real GPU: one asks for everything and fails alone."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.memory_limits import Driver, Held
from tests.contract import roots
from tests.contract.bundles import bundle
from tests.contract.product import Product, asks
from tests.contract.runtimes import Container, lifecycle
from tests.gpu.memory_call import reason_to_skip
from tests.gpu.test_real_gpu import real

__all__ = ["real"]
pytestmark = [pytest.mark.gpu, pytest.mark.contract]
SOURCE = Path(__file__).with_name("memory_probe.c")
MIB = 1 << 20
LIMIT = 3072  # MiB of each; the context takes a part of it
KEPT, MORE = 1024, 512
OUT_OF_MEMORY = "2"  # CUDA_ERROR_OUT_OF_MEMORY
SECONDS = 60


@pytest.fixture
def limiting(real: Product) -> Product:
    """Return the node, where its driver can hold limits."""
    why = reason_to_skip(str(real.node.node.driver.nvml))
    if why:
        pytest.skip(why)
    return real


@contextmanager
def allocating(
    product: Product, place: Path, *words: str, limit: int = LIMIT
) -> Iterator[Container]:
    """Give a container that runs and allocates, limited by its variables as by `docker run -e`."""
    root = roots.copy("debian", place / "root")
    command = ["gcc", "-O2", "-o", str(root / "memory_probe"), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    env = [*asks(str(product.gpu(0).uuid)), f"NVIDIA_GPU_MEMORY_LIMIT={limit}"]
    made = bundle(place / "bundle", root, ["/memory_probe", *words], env)
    with lifecycle(made, product.secluded, env=product.on("runc")) as container:
        done = container.create()
        assert done.rc == 0, done
        assert container.call("start").rc == 0
        yield container


def said(container: Container, lines: int) -> list[str]:
    """Return the last of the first `lines` lines of a container as words, when they are there."""
    end = time.monotonic() + SECONDS
    while len(container.output.splitlines()) < lines:
        assert time.monotonic() < end, (container.output, container.errors)
        time.sleep(0.1)
    return container.output.splitlines()[lines - 1].split()


def held(product: Product, container: Container) -> Held | None:
    """Return what the driver itself says of the container's cgroup."""
    pid = json.loads(container.call("state").stdout)["pid"]
    name = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").strip().partition("::")[2]
    with Driver(str(product.node.node.driver.nvml)) as driver:
        return driver.get(str(product.gpu(0).uuid), f"/sys/fs/cgroup{name}")


def test_one_fails_alone(limiting: Product, tmp_path: Path) -> None:
    """Who asks for everything fails at its limit; the neighbour allocates what is its own."""
    with allocating(limiting, tmp_path / "keeper", str(KEPT), str(MORE)) as keeper:
        assert said(keeper, 1) == ["held", str(KEPT), "0"]
        with allocating(limiting, tmp_path / "greedy", "all") as greedy:
            word, amount, status = said(greedy, 1)
            assert (word, status) == ("held", OUT_OF_MEMORY)
            assert 0 < int(amount) <= LIMIT
            (tmp_path / "keeper/root/go").touch()
            assert said(keeper, 2) == ["held", str(KEPT + MORE), "0"]
            for container in (keeper, greedy):
                told = held(limiting, container)
                assert told is not None
                assert told.hard == LIMIT * MIB
                assert 0 < told.used <= told.hard


def test_a_limit_follows_a_restart(limiting: Product, tmp_path: Path) -> None:
    """A container that is created again has a limit again, though its cgroup is another."""
    for attempt in ("first", "second"):
        with allocating(limiting, tmp_path / attempt, "all", limit=LIMIT // 2) as container:
            _, amount, status = said(container, 1)
            assert status == OUT_OF_MEMORY
            assert int(amount) <= LIMIT // 2
