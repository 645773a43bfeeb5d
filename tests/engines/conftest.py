# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the matrix: a node of each release, and the rows of docs/support.md."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests import depth
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
    """Mark the tests of this directory.

    The marker `engines` leaves them out of `make test` and `make test-all`. The marker `releases`
    leaves out the nodes of other releases. Combinations that `make test-engines` needs not run are
    `thorough`: of each release, a module has each value of each parameter, and a test that reports
    rows has each of its values.
    """
    nodes: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in depth.below(HERE, items):
        item.add_marker(pytest.mark.engines)
        call = getattr(item, "callspec", None)
        params = call.params if call else {}
        chosen = item.get_closest_marker("releases")
        if chosen and params.get("node", params.get("booted")) not in chosen.args:
            items.remove(item)
            continue
        if "covers" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.every_case)
        for name in {"node", "booted"}.intersection(params):
            nodes[f"{name}-{params[name]}"].append(item)
    for tests in nodes.values():
        depth.representative(tests, len(tests))


class NodeScheduling(LoadScopeScheduling):
    """Gives all tests of a node to one worker; the marker xdist_group has no effect in pytest 9."""

    def _split_scope(self, nodeid: str) -> str:
        """Return the node of a test: its release, and whether systemd has booted it."""
        path, _, case = nodeid.partition("[")
        release = case.partition("-")[0].rstrip("]")
        return f"{release} {'booted' in path}" if release in RELEASES else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> NodeScheduling | None:
    """Replace the scheduler of `--dist loadgroup`."""
    return NodeScheduling(config, log) if config.getoption("dist") == "loadgroup" else None


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


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Write docs/support/tested.json after a whole run of the matrix that nothing has stopped."""
    config = session.config
    is_whole = config.getoption("--support") and not hasattr(config, "workerinput")
    if is_whole and _rows and not _failed and exitstatus == pytest.ExitCode.OK:
        support_results.write(_rows)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the versions that the tests have seen."""
    for line in support_results.versions(_rows):
        terminalreporter.write_line(line)
