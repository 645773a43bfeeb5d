# SPDX-License-Identifier: Apache-2.0
"""Commands in the container of the device plugin, which has the driver in a mounted directory."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuhook.cli import main
from tests.simulated.node import SimulatedNode, make_node

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")
VARIABLES = ("CONTAINER_DRIVER_ROOT", "DRIVER_ROOT_CTR_PATH")


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    """Return a node with a driver container: the driver's tree has its own /dev."""
    return make_node(tmp_path / "node", "t4", layout="driver-container")


def run_command(node: SimulatedNode, *words: str, **env: str) -> Result:
    kernel = {"GPUHOOK_HOST_ROOT": node.host_root}
    return CliRunner().invoke(main, words, prog_name="gpuhook", env={**kernel, **env})


@pytest.mark.parametrize("variable", VARIABLES)
def test_inventory_reads_the_mounted_driver(variable: str, node: SimulatedNode) -> None:
    plugins = {variable: node.driver_root, "NVIDIA_DRIVER_ROOT": "/run/nvidia/driver"}
    done = run_command(node, "inventory", "-o", "json", **plugins)
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["driver_root"], found["dev_root"]) == (node.driver_root, node.driver_root)
    assert [gpu["uuid"] for gpu in found["gpus"]] == [gpu.uuid for gpu in node.node.gpus]
    assert found["files"]


def test_dev_root_below_the_driver_root_is_used(node: SimulatedNode, tmp_path: Path) -> None:
    """NVIDIA_DEV_ROOT is a path on the host."""
    (tmp_path / "other").mkdir()
    plugins = {"CONTAINER_DRIVER_ROOT": node.driver_root, "NVIDIA_DRIVER_ROOT": "/srv/driver"}
    for root, found in (("/srv/driver/nodes", f"{node.driver_root}/nodes"), ("/other", "/other")):
        done = run_command(node, "inventory", "-o", "json", **plugins, NVIDIA_DEV_ROOT=root)
        assert json.loads(done.stdout)["dev_root"] == found


def test_doctor_reads_the_mounted_driver(node: SimulatedNode) -> None:
    words = ("doctor", "--checks", "driver.libraries", "-o", "json")
    done = run_command(node, *words, CONTAINER_DRIVER_ROOT=node.driver_root)
    assert done.exit_code == 0, done.stdout
    *_, finding = json.loads(done.stdout)["results"]
    assert finding["status"] == "ok"


def test_option_takes_precedence_over_the_variable(node: SimulatedNode, tmp_path: Path) -> None:
    other = make_node(tmp_path / "other", "t4")
    done = run_command(
        node, "inventory", "-o", "json", f"--driver-root={other.driver_root}",
        CONTAINER_DRIVER_ROOT=node.driver_root,
    )  # fmt: skip
    assert json.loads(done.stdout)["driver_root"] == other.driver_root


def test_variable_without_a_mount_has_no_effect(node: SimulatedNode) -> None:
    done = run_command(
        node, "inventory", "-o", "json", CONTAINER_DRIVER_ROOT="/nowhere",
        GPUHOOK_DRIVER_ROOT=node.driver_root,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    missing = run_command(node, "inventory", CONTAINER_DRIVER_ROOT="relative")
    assert "relative" not in missing.stdout


def test_generate_cdi_writes_no_spec_in_the_container(node: SimulatedNode, tmp_path: Path) -> None:
    """Its paths would be those of the container."""
    words = ("generate-cdi", f"--output-file={tmp_path}/nvidia.yaml", "--mode=nvml")
    done = run_command(node, *words, CONTAINER_DRIVER_ROOT=node.driver_root)
    assert done.exit_code == 0 or "GH1200" in done.stderr
    if (tmp_path / "nvidia.yaml").exists():  # of a driver of the machine that runs the test
        assert node.driver_root not in (tmp_path / "nvidia.yaml").read_text()
