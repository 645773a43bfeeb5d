# SPDX-License-Identifier: Apache-2.0
"""The paths of the driver in the plugin's container and on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuhook.device_plugin.allocate.host_paths import places
from gpuhook.device_plugin.config.configuration import Flags, PluginFlags
from gpuhook.vendors.nvidia.inventory.inventory import DeviceNode, Driver, DriverFile, Node
from gpuhook.vendors.nvidia.plugin.nvidia_part import at_host
from gpuhook.vendors.plugin_place import Places, is_below


def flags(container_root: Path | str, **more: Any) -> Flags:
    return Flags(plugin=PluginFlags(container_driver_root=str(container_root)), **more)


@pytest.fixture
def mounted_driver_root(tmp_path: Path) -> Path:
    """Return a /driver-root with device nodes."""
    (tmp_path / "driver-root/dev").mkdir(parents=True)
    (tmp_path / "driver-root/dev/nvidiactl").touch()
    return tmp_path / "driver-root"


@pytest.mark.parametrize(
    ("driver_root", "dev_root", "dev", "host_dev"),
    [
        ("/", None, "/driver-root", "/"),
        ("/run/nvidia/driver", None, "/driver-root", "/run/nvidia/driver"),
        ("/", "/", "/driver-root", "/"),
        ("/", "/srv", "/driver-root/srv", "/srv"),
        ("/run/nvidia/driver", "/run/nvidia/driver", "/driver-root", "/run/nvidia/driver"),
        ("/run/nvidia/driver", "/", "/", "/"),
    ],
)
def test_roots_in_a_container_are_below_the_mount(
    driver_root: str, dev_root: str | None, dev: str, host_dev: str, mounted_driver_root: Path
) -> None:
    found = places(flags(mounted_driver_root, driver_root=driver_root, dev_root=dev_root))
    here = (
        str(mounted_driver_root) + dev.removeprefix("/driver-root") if "driver-root" in dev else dev
    )
    assert found == Places(str(mounted_driver_root), here, driver_root, host_dev)


def test_driver_root_without_nodes_uses_the_system_dev(tmp_path: Path) -> None:
    """GKE has the driver below /home, and the nodes in /dev."""
    found = places(flags(tmp_path, driver_root="/home/kubernetes/bin/nvidia"))
    assert found == Places(str(tmp_path), "/", "/home/kubernetes/bin/nvidia", "/")


def test_without_a_mount_paths_are_those_of_the_host(tmp_path: Path) -> None:
    found = places(flags(tmp_path / "none", driver_root=str(tmp_path)), host_root=str(tmp_path))
    assert found == Places(*[str(tmp_path)] * 4)


@pytest.mark.parametrize(
    ("where", "node", "library"),
    [
        (Places(), "/dev/nvidia0", "/usr/lib/libcuda.so.1"),
        (Places("/driver-root", "/driver-root"), "/dev/nvidia0", "/usr/lib/libcuda.so.1"),
        (
            Places("/driver-root", "/driver-root", "/opt/d", "/opt/d"),
            "/opt/d/dev/nvidia0",
            "/opt/d/usr/lib/libcuda.so.1",
        ),
        (Places("/driver-root", "/", "/opt/d"), "/dev/nvidia0", "/opt/d/usr/lib/libcuda.so.1"),
        (
            Places("/driver-root", "/driver-root", "/opt/d"),
            "/dev/nvidia0",
            "/opt/d/usr/lib/libcuda.so.1",
        ),
        (Places("/", "/", "/opt/d", "/opt/d"), "/opt/d/dev/nvidia0", "/opt/d/usr/lib/libcuda.so.1"),
        (
            Places("/driver-root", "/driver-root/srv", "/", "/srv"),
            "/srv/dev/nvidia0",
            "/usr/lib/libcuda.so.1",
        ),
    ],
)  # fmt: skip
def test_at_host_converts_all_paths_of_a_node(where: Places, node: str, library: str) -> None:
    """Device nodes are below the dev root, files below the driver root."""
    seen = Node(
        Driver("580.95.05"),
        device_nodes=(DeviceNode("/dev/nvidia0", f"{where.dev.rstrip('/')}/dev/nvidia0", 195, 0),),
        files=(
            DriverFile("library", f"{where.driver.rstrip('/')}/usr/lib/libcuda.so.1", "/usr/lib/x"),
        ),
        driver_root=where.driver,
        dev_root=where.dev,
    )
    at_the_host = at_host(seen, where)
    assert at_the_host.device_nodes[0].host_path == node
    assert at_the_host.files[0].host_path == library
    assert (at_the_host.driver_root, at_the_host.dev_root) == (where.host_driver, where.host_dev)


def test_path_with_a_common_prefix_is_not_below() -> None:
    """/driver-root-2 is not below /driver-root."""
    where = Places("/driver-root", "/driver-root")
    assert where.on_host("/driver-root-2/x") == "/driver-root-2/x"
    assert where.on_host("/driver-root") == "/"
    assert not is_below("/ab", "/a")
