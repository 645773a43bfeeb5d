# SPDX-License-Identifier: Apache-2.0
"""Discovery of a whole node, with the real pynvml, ELF files and device nodes of a
simulated one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuhook.cli import main
from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia import discover
from tests.simulated import build, layouts
from tests.simulated.node import SimulatedNode, make_node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import Node

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")


def discovered(made: SimulatedNode, *, require: bool = True) -> Node:
    where = discover.roots(made.driver_root, made.dev_root, made.host_root)
    return discover.node(where, require_nodes=require)


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
@pytest.mark.parametrize("profile", ["t4", "h100x8", "lost-gpu", "a100-mig"])
def test_facts_are_those_of_the_node(tmp_path: Path, layout: layouts.Layout, profile: str) -> None:
    """Driver, GPUs, device nodes, majors and fingerprint."""
    made = make_node(tmp_path, profile, layout=layout)
    node = discovered(made)
    assert node.driver == made.node.driver
    assert node.gpus == made.node.gpus
    assert set(node.device_nodes) == set(made.node.device_nodes)
    assert node.majors == made.node.majors
    assert node.fingerprint == made.node.fingerprint
    assert node.masks_params is True
    assert (node.driver_root, node.dev_root) == (made.driver_root, made.dev_root)
    libraries = {Path(f.host_path).name: f.soname for f in node.files if f.kind == "library"}
    expected = {Path(f.host_path).name: f.soname for f in made.node.files if f.kind == "library"}
    assert libraries == expected


def test_shipped_profile_equals_the_flat_layout(tmp_path: Path) -> None:
    """The shipped profile has the files, links and directories that discovery finds."""
    made = make_node(tmp_path, "t4")
    node = discovered(made)
    assert set(node.files) == set(made.node.files)
    assert set(node.links) == set(made.node.links)
    assert node.library_dirs == made.node.library_dirs


def test_dev_root_defaults_to_the_root_with_control_nodes(tmp_path: Path) -> None:
    """Without an option, it is the driver root if that has the control node, else the host root."""
    made = make_node(tmp_path / "container", "t4", layout="driver-container")
    assert discover.roots(made.driver_root, None, made.host_root).dev == made.driver_root
    made = make_node(tmp_path / "gke", "t4", layout="gke")
    assert discover.roots(made.driver_root, None, made.host_root).dev == made.host_root


def test_old_nvml_without_minors(tmp_path: Path) -> None:
    """The minors are then read from /proc/driver/nvidia."""
    made = make_node(tmp_path, "h100x8")
    library = Path(made.nvml_library)
    library.unlink()
    library.write_bytes(build.nvml_stub(old=True).read_bytes())
    node = discovered(made)
    assert [gpu.minor for gpu in node.gpus] == [0, 1, 3, 2, 4, 5, 7, 6]
    assert node.driver.cuda is None


def test_nvml_of_another_driver_is_refused(tmp_path: Path) -> None:
    """An NVML that reports a driver other than the tree's."""
    made = make_node(tmp_path, "t4")
    profile = Path(made.nvml_profile)
    profile.write_text(profile.read_text("utf-8").replace("580.95.05", "570.86.15"), "utf-8")
    with pytest.raises(GpuhookError) as caught:
        discovered(made)
    assert "570.86.15" in caught.value.message


def test_missing_node_is_a_warning_for_inventory(tmp_path: Path) -> None:
    """A missing GPU node stops generate-cdi; `gpuhook inventory` warns of it."""
    made = make_node(tmp_path, "t4")
    Path(made.dev_root, "dev/nvidia0").unlink()
    with pytest.raises(GpuhookError) as caught:
        discovered(made)
    assert caught.value.code == "GH1210"
    shown = CliRunner().invoke(main, ["inventory", *made.options])
    assert shown.exit_code == 0, shown.stderr
    assert "Tesla T4" in shown.stdout
    assert "dev/nvidia0: no such device node" in shown.stderr
