# SPDX-License-Identifier: Apache-2.0
"""Fixtures that tests of all kinds share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

from tests import depth, private_machine
from tests.figures import Figures

# gRPC would go on in a child that is forked off one of its tests' processes, without its files, and
# abort it. No program of gpuhook that forks loads it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# No test asserts a time: on a busy machine each example may take as long as it likes. Everyday
# examples are the same in each run; what random ones have found is kept with @example.
settings.register_profile(
    "everyday", deadline=None, derandomize=True, database=None, max_examples=20
)
settings.register_profile("all", deadline=None, print_blob=True)
settings.load_profile("all" if depth.IS_ALL else "everyday")
private_machine.restore_signals()


# The folders whose tests are costly, as each starts containers or programs, and how many cases of a
# test are everyday ones.
COSTLY = {"attacks": 2, "contract": 2, "faults": 8}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for a part of what only `make test-all` runs."""
    text = "run only part K of N of what the everyday suite leaves out"
    parser.addoption("--part", metavar="K/N", type=depth.Part, help=text)
    text = "write the measured figures to docs/reference/figures, as `make soak` does"
    parser.addoption("--figures", action="store_true", help=text)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the combinations that only `make test-all` runs; with --part, leave a part of them."""
    for name, most in COSTLY.items():
        depth.representative(depth.below(Path(__file__).parent / name, items), most)
    part = config.getoption("--part")
    if part is not None:
        others = [item for item in items if item not in part]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item in part]


@pytest.fixture(autouse=True, scope="session")
def machine_without_gpus(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Hide the machine's GPUs and gpuhook's state from all tests but those that use its GPUs."""
    session = request.session
    if os.geteuid() != 0 or any(item.get_closest_marker("gpu") for item in session.items):
        yield
        return
    private_machine.enter()
    place = tmp_path_factory.getbasetemp()
    with (
        private_machine.own_parent(place),
        private_machine.in_memory(place, lambda: session.testsfailed > 0),
    ):
        yield


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """Take back how a test has changed the environment, as a command that is called here may."""
    before = dict(os.environ)
    yield
    for name in set(os.environ).difference(before):
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """Take back how a test has set up the log: its stream ends with it."""
    yield
    if "structlog" in sys.modules:
        sys.modules["structlog"].reset_defaults()


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Figures:
    """Give the place for the figures that a long test measures."""
    return Figures(request.node.path.stem.removeprefix("test_"), request.config)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Give an empty directory whose path is short: a socket's address is of 107 bytes at most."""
    with TemporaryDirectory(prefix="gpuhook-", dir="/tmp", ignore_cleanup_errors=True) as place:
        yield Path(place)


@pytest.fixture
def plugins_path(short_path: Path) -> Path:
    """Give the place for a kubelet's directory of sockets."""
    return short_path / "device-plugins"


@pytest.fixture
def installed_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the gpuhook-hook of an installation whose `gpuhook` runs the commands of a test."""
    path = tmp_path / "bin/gpuhook-hook"
    path.parent.mkdir()
    path.touch(0o755)
    monkeypatch.setattr("sys.argv", [str(path.with_name("gpuhook"))])
    return str(path)
