# SPDX-License-Identifier: Apache-2.0
"""A day of the NRI plugin: many containers one after another, and a hundred at once."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.contract.installation import Installation
from tests.depth import depth
from tests.faults import vitals
from tests.figures import Figures
from tests.nri import nri_api
from tests.nri.fake_runtime import PLUGIN, FakePlugin, FakeRuntime, StatusError, container, pod
from tests.nri.nri_plugin import nri_plugin

CREATES = depth(100, 3000, 50_000)
AT_ONCE = 100
WARM_UP = 40
NODE = ("containerd", "v2.1.4")
# Resident memory that may be added. The ledger has a container that is never created for 30 s: here
# some two thousand of them, which no node has; then the plugin no longer grows.
MIB = 12
# What containers ask for, and the status that refuses them: no GPU, one, all, one that is absent.
REQUESTS = {"": "", "0": "", "all": "", "99": "GH1"}


@pytest.fixture
def node(node8: Installation, tmp_path: Path) -> Installation:
    """Return an installation on which pods of the namespace `default` may request devices."""
    return node8.apart(tmp_path / "apart", nri={"namespaces": ["default"]})


def asking(value: str) -> Any:
    """Return a new container."""
    env = [f"NVIDIA_VISIBLE_DEVICES={value}"] if value else []
    return container(env, identity=uuid4().hex)


def create(link: FakePlugin, value: str) -> None:
    """Create a container, and check the answer."""
    if REQUESTS[value]:
        with pytest.raises(StatusError, match=REQUESTS[value]):
            link.create(pod(), asking(value))
    else:
        assert link.create(pod(), asking(value)).HasField("adjust") == bool(value)


@pytest.mark.soak
def test_a_day(node: Installation, tmp_path: Path, figures: Figures) -> None:
    """Descriptors, threads and memory of the plugin are the same after many creates."""
    runtime = FakeRuntime(tmp_path / "nri/nri.sock")
    with nri_plugin(node, runtime.path, "--plugin-directory", str(tmp_path)) as plugin:
        link = runtime.accept()
        link.start(*NODE)
        values = itertools.cycle(REQUESTS)
        for _ in range(WARM_UP):
            create(link, next(values))
        pid = plugin.process.pid
        before, lines = vitals.read(pid), len(plugin.lines())
        for _ in range(CREATES):
            create(link, next(values))
        after = vitals.read(pid)
        added = (len(plugin.lines()) - lines) / CREATES
    runtime.close()
    figures.record("creates", str(CREATES))
    limits = {
        "descriptors": (before.fds, after.fds, 3),
        "threads": (before.threads, after.threads, 2),
        "MiB of resident memory": (before.mib, after.mib, MIB),
    }
    for what, (old, new, spare) in limits.items():
        figures.record(what, f"{old} to {new}", str(old + spare))
        assert new <= old + spare, what
    figures.record("lines of the log for each create", f"{added:.2f}", "1")
    assert added <= 1


def test_creates_at_once(node: Installation, tmp_path: Path) -> None:
    """Each of a hundred containers gets its own answer."""
    runtime = FakeRuntime(tmp_path / "nri/nri.sock")
    with nri_plugin(node, runtime.path, "--plugin-directory", str(tmp_path)):
        link = runtime.accept()
        link.start(*NODE)
        values = list(itertools.islice(itertools.cycle(REQUESTS), AT_ONCE))
        asked = {}
        for value in values:
            request = nri_api.new("CreateContainerRequest", pod=pod(), container=asking(value))
            asked[link.begin("CreateContainer", request.SerializeToString())] = value
        for _ in values:
            stream, _, data = link.message(PLUGIN)
            value = asked.pop(stream)
            response = nri_api.parsed("Response", data)
            assert bool(response.status.code) == bool(REQUESTS[value]), response.status.message
            answer = nri_api.parsed("CreateContainerResponse", response.payload)
            assert answer.HasField("adjust") == (bool(value) and not REQUESTS[value])
        assert asked == {}
    runtime.close()
