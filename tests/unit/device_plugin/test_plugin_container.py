# SPDX-License-Identifier: Apache-2.0
"""Commands in the container of the device plugin, which has the driver below another directory."""

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
    """Give a node as a driver container has it: the driver's tree has its own /dev."""
    return make_node(tmp_path / "node", "t4", layout="driver-container")


def called(node: SimulatedNode, *words: str, **env: str) -> Result:
    kernel = {"GPUHOOK_HOST_ROOT": node.host_root}
    return CliRunner().invoke(main, words, prog_name="gpuhook", env={**kernel, **env})


@pytest.mark.parametrize("variable", VARIABLES)
def test_inventory(variable: str, node: SimulatedNode) -> None:
    """The node is read from where the plugin reads it."""
    plugins = {variable: node.driver_root, "NVIDIA_DRIVER_ROOT": "/run/nvidia/driver"}
    done = called(node, "inventory", "-o", "json", **plugins)
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["driver_root"], found["dev_root"]) == (node.driver_root, node.driver_root)
    assert [gpu["uuid"] for gpu in found["gpus"]] == [gpu.uuid for gpu in node.node.gpus]
    assert found["files"]


def test_the_dev_root_of_the_plugin(node: SimulatedNode, tmp_path: Path) -> None:
    """NVIDIA_DEV_ROOT is a path of the host, and may be below the driver root."""
    (tmp_path / "other").mkdir()
    plugins = {"CONTAINER_DRIVER_ROOT": node.driver_root, "NVIDIA_DRIVER_ROOT": "/srv/driver"}
    for root, found in (("/srv/driver/nodes", f"{node.driver_root}/nodes"), ("/other", "/other")):
        done = called(node, "inventory", "-o", "json", **plugins, NVIDIA_DEV_ROOT=root)
        assert json.loads(done.stdout)["dev_root"] == found


def test_doctor(node: SimulatedNode) -> None:
    words = ("doctor", "--checks", "driver.libraries", "-o", "json")
    done = called(node, *words, CONTAINER_DRIVER_ROOT=node.driver_root)
    assert done.exit_code == 0, done.stdout
    *_, finding = json.loads(done.stdout)["results"]
    assert finding["status"] == "ok"


def test_an_option_wins(node: SimulatedNode, tmp_path: Path) -> None:
    other = make_node(tmp_path / "other", "t4")
    done = called(
        node, "inventory", "-o", "json", f"--driver-root={other.driver_root}",
        CONTAINER_DRIVER_ROOT=node.driver_root,
    )  # fmt: skip
    assert json.loads(done.stdout)["driver_root"] == other.driver_root


def test_a_directory_that_is_not_mounted(node: SimulatedNode) -> None:
    """As for the plugin, the variable then has no effect."""
    done = called(
        node, "inventory", "-o", "json", CONTAINER_DRIVER_ROOT="/nowhere",
        GPUHOOK_DRIVER_ROOT=node.driver_root,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    missing = called(node, "inventory", CONTAINER_DRIVER_ROOT="relative")
    assert "relative" not in missing.stdout


def test_no_spec_for_the_host_is_written(node: SimulatedNode, tmp_path: Path) -> None:
    """Its paths would be those of the container, and the directory of specs is the host's."""
    words = ("generate-cdi", f"--output={tmp_path}/nvidia.yaml", "--mode=nvml")
    done = called(node, *words, CONTAINER_DRIVER_ROOT=node.driver_root)
    assert done.exit_code == 0 or "GH1200" in done.stderr
    if (tmp_path / "nvidia.yaml").exists():  # of a driver of the machine that runs the test
        assert node.driver_root not in (tmp_path / "nvidia.yaml").read_text()
