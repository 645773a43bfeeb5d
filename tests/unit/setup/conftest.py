# SPDX-License-Identifier: Apache-2.0
"""Simulated nodes for setup; their device nodes need root."""

from __future__ import annotations

import pytest

from gpuhook.node_facts.sources import node_readings
from tests.doctor import parts
from tests.doctor.case import FaultCase, is_root, make
from tests.doctor.parts import driver, engines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

del parts  # its import registers the parts of a node


@pytest.fixture
def case(tmp_path: Path) -> FaultCase:
    """Return a node of a cluster with containerd and NVIDIA's stack."""
    if not is_root():
        pytest.skip("device nodes need root")
    return make(tmp_path)


@pytest.fixture
def workstation(tmp_path: Path) -> FaultCase:
    """Return a node with Docker and podman, and without the others' configuration."""
    if not is_root():
        pytest.skip("device nodes need root")
    made = make(tmp_path, without="tests.doctor.parts.kubernetes")
    for path in (driver.SPEC, engines.CONFIG, engines.DROP_IN, engines.TOOLKIT):
        made.remove(path)
    for name in engines.PROGRAMS:
        made.remove(f"/usr/bin/{name}")
    made.readings[node_readings.PROCESSES] = []
    engines.install(made, "dockerd", "docker", "podman")
    found = engines.programs(made)
    found.clear()
    for name, version in (("dockerd", "28.5.1"), ("podman", "5.4.2")):
        found[name] = {"path": f"/usr/bin/{name}", "version": version}
    return made
