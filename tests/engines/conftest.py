# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the matrix: a node of each release, and the rows of docs/support.md."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.contract.build_cache import cache
from tests.engines import docker_engine, podman_user, support_results
from tests.engines.booted_node import BOOTED, BootedNode, booted_node
from tests.engines.engine_node import EngineNode, engine_node
from tests.engines.releases import RELEASES
from tests.engines.support_results import PROPERTY, Row

HERE = Path(__file__).parent
_rows: list[Row] = []
_failed: list[str] = []


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this directory, and give each release to one worker.

    The marker `engines` leaves them out of `make test` and `make test-all`. The marker `releases`
    leaves out the nodes of other releases.
    """
    for item in list(items):
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.engines)
            call = getattr(item, "callspec", None)
            params = call.params if call else {}
            chosen = item.get_closest_marker("releases")
            if chosen and params.get("node") not in chosen.args:
                items.remove(item)
            for name in {"node", "booted"}.intersection(params):
                item.add_marker(pytest.mark.xdist_group(f"{name}-{params[name]}"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes docs/support/tested.json."""
    parser.addoption("--support", action="store_true", help="write docs/support/tested.json")


@pytest.fixture(scope="session", params=sorted(RELEASES))
def node(request: pytest.FixtureRequest) -> Iterator[EngineNode]:
    """Yield a node of each Debian release; its daemons are those that tests start."""
    if os.geteuid() != 0:
        pytest.skip("engines need root")
    place = Path(mkdtemp(prefix="engines-", dir=cache()))
    with engine_node(RELEASES[request.param], place) as made:
        yield made
    shutil.rmtree(place)


@pytest.fixture(scope="session")
def docker_image(node: EngineNode) -> str:
    """Import the image of the containers of Docker, and return its name."""
    docker_engine.import_image(node)
    return docker_engine.IMAGE


@pytest.fixture(scope="session")
def podman_image(node: EngineNode) -> str:
    """Import the image of the containers of podman, of root and of a user; return its name."""
    podman_user.prepare(node)
    return podman_user.IMAGE


@pytest.fixture(scope="session", params=sorted(BOOTED))
def booted(request: pytest.FixtureRequest) -> Iterator[BootedNode]:
    """Yield a node of each Debian release that systemd has booted."""
    if os.geteuid() != 0:
        pytest.skip("systemd-nspawn needs root")
    place = Path(mkdtemp(prefix="booted-", dir=cache()))
    with booted_node(request.param, place) as made:
        yield made
    shutil.rmtree(place)


@pytest.fixture
def covers(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Return a function that reports a Row, by its values, as seen by this test."""

    def report(engine: str, version: str, integration: str, with_: str = "") -> None:
        record_property(PROPERTY, Row(engine, version, integration, with_).text())

    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect the rows of the tests that passed."""
    if report.failed or report.skipped:
        _failed.append(report.nodeid)
    elif report.when == "call":
        rows = [value for name, value in report.user_properties if name == PROPERTY]
        _rows.extend(support_results.row(str(value)) for value in rows)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write docs/support/tested.json after a run of the whole matrix without a failure."""
    config = session.config
    is_whole = config.getoption("--support") and not hasattr(config, "workerinput")
    if is_whole and _rows and not _failed:
        support_results.write(_rows)
