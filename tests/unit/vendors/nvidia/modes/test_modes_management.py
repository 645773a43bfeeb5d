# SPDX-License-Identifier: Apache-2.0
"""Mode management: the driver's files are found as in every other mode."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia import discover
from gpuhook.vendors.nvidia.modes import mode_table
from gpuhook.vendors.nvidia.spec.generate_options import Choices
from tests.simulated.node import SimulatedNode, make_node

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")
CHOICES = Choices(vendor="management.nvidia.com")


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    return make_node(tmp_path / "node", "t4")


def mounted(node: SimulatedNode, rules: Path, choices: Choices = CHOICES) -> list[str]:
    """Return the names of the files that a spec in mode management mounts."""
    place = discover.roots(node.driver_root, node.dev_root, node.host_root, files_dir=str(rules))
    found = mode_table.describe(mode_table.MANAGEMENT, place, choices)
    mounts = found.spec["containerEdits"]["mounts"]
    return [mount["containerPath"].rpartition("/")[2] for mount in mounts]


def test_rules_of_the_site_apply(node: SimulatedNode, tmp_path: Path) -> None:
    assert "nvidia-debugdump" in mounted(node, tmp_path / "none")
    rules = tmp_path / "files.d"
    rules.mkdir()
    (rules / "site.yaml").write_text("drop: ['*/nvidia-debugdump']\n")
    assert "nvidia-debugdump" not in mounted(node, rules)


def test_explicit_libraries_are_added_on_request(node: SimulatedNode, tmp_path: Path) -> None:
    """With the capability that they need; this mode leaves graphics out."""
    libcuda = next(file for file in node.node.files if file.soname == "libcuda.so.1")
    beside = Path(libcuda.host_path).parent
    shutil.copy(libcuda.host_path, beside / "libOpenCL.so.1")
    rules = tmp_path / "none"
    assert "libOpenCL.so.1" not in mounted(node, rules)
    choices = Choices(vendor=CHOICES.vendor, explicit_libraries=True)
    assert "libOpenCL.so.1" in mounted(node, rules, choices)
