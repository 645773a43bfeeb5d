# SPDX-License-Identifier: Apache-2.0
"""A node of the GPU Operator's default: the driver is in a container, and there is no CDI spec.

No option, variable or setting names the driver root. /run is empty but for the driver container's
root, and /proc has the files of the simulated driver.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.contract import bundles
from tests.contract.installation import Installation
from tests.contract.roots import Roots
from tests.contract.runtimes import Result, run_command
from tests.simulated.node import SimulatedNode, make_node

OPERATOR = "/run/nvidia/driver"
NODE = """
driver=$0 proc=$1; shift
mount -t tmpfs none /run && mkdir -p /run/nvidia/driver && mount --bind "$driver" /run/nvidia/driver
mount --bind "$proc/driver" /proc/driver && mount --bind "$proc/devices" /proc/devices
exec "$@"
"""


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    """Return the files of a node whose driver is in a container."""
    made = make_node(tmp_path / "node", "t4", layout="driver-container")
    # The procfs of a container on this machine has no such file, which the hook would hide.
    params = Path(made.host_root) / "proc/driver/nvidia/params"
    params.write_text(params.read_text().replace("ModifyDeviceFiles: 1", "ModifyDeviceFiles: 0"))
    return made


def on_node(node: SimulatedNode, *words: str | Path) -> Result:
    """Run a command on the node, with nothing in its environment but a PATH."""
    places = (node.driver_root, f"{node.host_root}/proc")
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", NODE, *places]
    return run_command([*command, *map(str, words)], {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})


def test_wrapper_finds_the_driver(
    node: SimulatedNode, node8: Installation, root_of: Roots, tmp_path: Path
) -> None:
    """The first container causes its spec to be written, and gets the GPU with its libraries."""
    script = "ls /dev/nvidia0 && /sbin/ldconfig -p | grep -c libcuda.so.1"
    (tmp_path / "bundle").mkdir()
    env = ["NVIDIA_VISIBLE_DEVICES=all"]
    made = bundles.bundle(tmp_path / "bundle", root_of("debian"), ["/bin/sh", "-c", script], env)
    run = f'"{node8.runtime}" --root /run/state run --bundle {made.path} gpuhook-driver-container'
    done = on_node(
        node, "sh", "-c", f"{run}; status=$?; cat /run/cdi/nvidia.yaml >&2; exit $status"
    )
    assert done.rc == 0, done.stderr
    assert done.stdout.split() == ["/dev/nvidia0", "1"]
    assert f"hostPath: {OPERATOR}/" in done.stderr


@pytest.mark.parametrize("words", ["generate-cdi", "generate-cdi --mode auto", "cdi generate"])
def test_generate_cdi_finds_the_driver(
    node: SimulatedNode, node8: Installation, words: str
) -> None:
    done = on_node(node, node8.bindir / "gpuhook", *words.split())
    assert done.rc == 0, done.stderr
    assert f"hostPath: {OPERATOR}/dev/nvidia0" in done.stdout
    assert f"hostPath: {OPERATOR}/usr/lib" in done.stdout


def test_inventory_finds_the_driver(node: SimulatedNode, node8: Installation) -> None:
    assert "Tesla T4" in on_node(node, node8.bindir / "gpuhook", "inventory").stdout


def test_driver_container_that_is_not_ready(node: SimulatedNode, node8: Installation) -> None:
    """The error names the directory, which has no libraries so far."""
    shutil.rmtree(Path(node.driver_root) / "usr")
    done = on_node(node, node8.bindir / "gpuhook", "inventory")
    assert done.rc == 1
    assert done.stderr.startswith("Error GH1200: no libnvidia-ml.so.1 ")
    assert OPERATOR in done.stderr
