# SPDX-License-Identifier: Apache-2.0
"""gpuhook-runtime with runc and crun of each release, on cgroup v1 and v2, without an engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.contract.bundles import bundle
from tests.contract.installation import CONTROL, asks
from tests.contract.live import WAIT
from tests.contract.views import questions, view
from tests.engines.engine_node import EngineNode, low_level_runtime, on_cgroup
from tests.engines.podman_user import document, gpus

BUNDLE, ROOT = "/srv/bundle", "/srv/low-level"
NAME = "low-level-test"
RUNTIME = ("gpuhook-runtime",)
Covers = Callable[..., None]


@pytest.fixture(scope="module", params=["runc-v1", "runc-v2", "crun-v1", "crun-v2"])
def runtime(
    node: EngineNode, request: pytest.FixtureRequest
) -> Iterator[tuple[EngineNode, str, str]]:
    """Yield the node, the runtime that gpuhook-runtime calls there, and the cgroup version."""
    name, cgroup = request.param.split("-")
    node.image_root("debian", "low-level")
    with on_cgroup(node, cgroup) as made, low_level_runtime(made, name):
        yield made, name, f"cgroup {cgroup}"


@contextmanager
def created(node: EngineNode) -> Iterator[None]:
    """Create a container that requests GPU 2 and waits, and delete it in the end."""
    bundle(node.path(BUNDLE), Path(ROOT), WAIT, asks("2"))
    # The container keeps the runtime's standard output.
    words = [*RUNTIME, "create", "--bundle", BUNDLE, NAME]
    node.check("sh", "-c", '"$@" >/tmp/created 2>&1 </dev/null', "sh", *words)
    try:
        yield
    finally:
        node.run(*RUNTIME, "delete", "--force", NAME)


def test_run(runtime: tuple[EngineNode, str, str], covers: Covers) -> None:
    """`run` gives GPU 2, and its device rules deny a node of GPU 5 that the container makes."""
    node, name, cgroup = runtime
    other = f"195:{node.gpus.node.gpus[5].minor}"
    args = ["/probe", *questions(tries=[other])]
    bundle(node.path(BUNDLE), Path(ROOT), args, asks("2"))
    seen = view(node.check(*RUNTIME, "run", "--bundle", BUNDLE, NAME))
    assert set(seen.gpus()) == {node.device(2), *CONTROL}
    assert gpus(seen) == {node.device(2)}
    assert seen.tries[other] == "EPERM"
    covers(name, node.version(name, "--version"), "gpuhook-runtime", cgroup)


def test_life_of_a_container(runtime: tuple[EngineNode, str, str]) -> None:
    """create, start, state, exec, kill and delete; gpuhook reads the runtime's state file."""
    node, name, _ = runtime
    with created(node):
        options = ["--log=/tmp/log", "--log-format=json", "--systemd-cgroup"]
        state = json.loads(node.check(*RUNTIME, *options, "state", NAME))
        assert state["status"] == "created"
        node.check(*RUNTIME, "start", NAME)
        state = json.loads(node.check(*RUNTIME, "state", NAME))
        seen = view(node.check(*RUNTIME, "exec", NAME, "/probe", *questions()))
        assert gpus(seen) == {node.device(2)}
        (held,) = document(node.run("gpuhook", "ps", "-o", "json"))["containers"]
        assert (held["id"], held["pid"]) == (NAME, state["pid"])
        printed = node.check("gpuhook", "inspect", NAME)
        assert f"{NAME}, running, pid {state['pid']}" in printed
        assert name in printed
        node.check(*RUNTIME, "kill", NAME, "KILL")
    assert node.run(*RUNTIME, "state", NAME).rc != 0
    assert document(node.run("gpuhook", "ps", "-o", "json"))["containers"] == []


def test_live_commands(runtime: tuple[EngineNode, str, str], covers: Covers) -> None:
    """attach, detach, and repair of a device node that is gone."""
    node, name, cgroup = runtime
    look = [*RUNTIME, "exec", NAME, "/probe", *questions()]
    with created(node):
        node.check(*RUNTIME, "start", NAME)
        node.check("gpuhook", "attach", NAME, "--device", "5")
        assert gpus(view(node.check(*look))) == {node.device(2), node.device(5)}
        node.check("gpuhook", "detach", NAME, "--device", "5")
        assert gpus(view(node.check(*look))) == {node.device(2)}
        node.check(*RUNTIME, "exec", NAME, "rm", node.device(2))
        node.check("gpuhook", "repair", NAME)
        assert gpus(view(node.check(*look))) == {node.device(2)}
    covers(name, node.version(name, "--version"), "attach, detach, repair", cgroup)
