# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the contract tests: bundles, copies of root file systems, a containerd."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.contract import bundles, engines, image, roots
from tests.contract.bundles import Bundle, Bundles
from tests.contract.engines import Containerd
from tests.contract.installation import Installation, install_once, installation
from tests.contract.integrations import Integrations
from tests.contract.roots import Roots
from tests.contract.runtimes import CGROUPS
from tests.depth import below
from tests.kubelet.running import kubelet, run
from tests.simulated import stub_limits

__all__ = ["kubelet", "run"]

HERE = Path(__file__).parent
# The first is locked while a test runs, the second while it waits for the first.
GATES = ("/run/gpuhook-tests.lock", "/run/gpuhook-tests.turn")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this directory with `contract`: they need root."""
    for item in below(HERE, items):
        item.add_marker(pytest.mark.contract)


@pytest.fixture(autouse=True)
def machine(request: pytest.FixtureRequest) -> Iterator[Callable[[], None]]:
    """Share the machine with other workers' tests, except for tests that have the marker `alone`.

    While such a test waits, it holds the turn: the other workers' next tests start after it. Yields
    a function that a long test calls between its rounds, to let such a test run.
    """
    alone = request.node.get_closest_marker("alone") is not None
    lock = os.open(GATES[0], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    _wait_for_turn(lock, alone=alone)

    def let_others() -> None:
        fcntl.flock(lock, fcntl.LOCK_UN)
        _wait_for_turn(lock, alone=alone)

    yield let_others
    os.close(lock)


def _wait_for_turn(lock: int, *, alone: bool) -> None:
    turn = os.open(GATES[1], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(turn, fcntl.LOCK_EX)
    fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
    os.close(turn)


@pytest.fixture(autouse=True, scope="session")
def as_root() -> Iterator[None]:
    """Skip if the tests cannot make namespaces and cgroups; remove empty cgroups in the end."""
    if os.geteuid() != 0:
        pytest.skip("contract tests need root")
    yield
    for hierarchy in (CGROUPS, *CGROUPS.iterdir()):
        with suppress(OSError):  # not there, or another run's containers are in it
            (hierarchy / bundles.CGROUP).rmdir()


@pytest.fixture
def root_of(tmp_path: Path) -> Roots:
    """Return a function: kind of image -> a fresh, writable root file system."""

    def make(kind: str) -> Path:
        return roots.copy(kind, tmp_path / kind)

    return make


@pytest.fixture
def bundle_of(tmp_path: Path, root_of: Roots) -> Bundles:
    """Return bundles.bundle() without its path; the root can be a path or a kind of image."""
    count = 0

    def make(root: Path | str, *args: object, **oci: object) -> Bundle:
        nonlocal count
        count += 1
        if isinstance(root, str):
            root = root_of(root)
        place = tmp_path / f"bundle{count}"
        return bundles.bundle(place, root, *args, **oci)  # type: ignore[arg-type]  # as it is

    return make


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the root file system of gpuhook's image, which the tests share."""
    place = tmp_path_factory.mktemp("image") / "root"
    subprocess.run(["cp", "-a", str(image.root()), str(place)], check=True)
    (place / "host").mkdir()
    return place


@pytest.fixture(scope="module")
def containerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containerd]:
    """Yield a containerd that the tests of a module share; its low-level runtime is runc."""
    with engines.containerd(tmp_path_factory.mktemp("containerd")) as daemon:
        yield daemon


@pytest.fixture
def node(tmp_path: Path) -> Callable[[int, int], Path]:
    """Return a function: major, minor -> a character device on the host."""

    def make(major: int, minor: int) -> Path:
        path = tmp_path / f"node-{major}-{minor}"
        subprocess.run(["mknod", str(path), "c", str(major), str(minor)], check=True)
        return path

    return make


@pytest.fixture(scope="session")
def bindir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs of an installation that all workers share; no test changes it."""
    return install_once(tmp_path_factory, "prefix")


@pytest.fixture(scope="session")
def node8(bindir: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return an installation on a node with eight GPUs; no test changes it."""
    return installation(tmp_path_factory.mktemp("node8"), bindir=bindir)


@pytest.fixture
def apart(node8: Installation, tmp_path: Path) -> Installation:
    """Return the same installation with specs, settings and state that the test can change."""
    return node8.apart(tmp_path / "apart")


@pytest.fixture
def enter(node8: Installation, tmp_path: Path, request: pytest.FixtureRequest) -> Integrations:
    """Return the integrations of node8; the first container that needs a containerd starts it."""
    return Integrations(node8, tmp_path, lambda: request.getfixturevalue("containerd"))


@pytest.fixture(scope="module")
def spoiled(node8: Installation, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return an installation on a node whose driver the tests of this module can break."""
    return installation(tmp_path_factory.mktemp("limits"), "h100x8", node8.bindir)


@pytest.fixture
def mine(spoiled: Installation, tmp_path: Path) -> Iterator[Installation]:
    """Yield that node with settings and state for one test; its driver works at the start."""
    yield spoiled.apart(tmp_path / "apart")
    for gpu in spoiled.node.node.gpus:
        stub_limits.repair(spoiled.node, str(gpu.uuid))
