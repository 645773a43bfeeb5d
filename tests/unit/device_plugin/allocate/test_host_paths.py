# SPDX-License-Identifier: Apache-2.0
"""The paths of the driver in the plugin's container and on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuhook.device_plugin.allocate import host_paths
from gpuhook.device_plugin.allocate.host_paths import Places, at_host, places
from gpuhook.device_plugin.config.configuration import Flags, PluginFlags
from gpuhook.vendors.nvidia.inventory.inventory import DeviceNode, Driver, DriverFile, Node


def flags(container_root: Path | str, **more: Any) -> Flags:
    return Flags(plugin=PluginFlags(container_driver_root=str(container_root)), **more)


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
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
def test_in_a_container(
    driver_root: str, dev_root: str | None, dev: str, host_dev: str, mounted: Path
) -> None:
    """The driver root is at its mount, and so is a dev root below it."""
    found = places(flags(mounted, driver_root=driver_root, dev_root=dev_root))
    here = str(mounted) + dev.removeprefix("/driver-root") if "driver-root" in dev else dev
    assert found == Places(str(mounted), here, driver_root, host_dev)


def test_without_nodes_in_the_driver_root(tmp_path: Path) -> None:
    """As on GKE, whose driver is below /home: nodes are those of the root itself."""
    found = places(flags(tmp_path, driver_root="/home/kubernetes/bin/nvidia"))
    assert found == Places(str(tmp_path), "/", "/home/kubernetes/bin/nvidia", "/")


def test_outside_a_container(tmp_path: Path) -> None:
    """Without a mount, the paths on the host are those of the plugin."""
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
def test_a_node_with_the_hosts_paths(where: Places, node: str, library: str) -> None:
    """Device nodes follow the dev root, files the driver root, in either direction."""
    seen = Node(
        Driver("580.95.05"),
        device_nodes=(DeviceNode("/dev/nvidia0", f"{where.dev.rstrip('/')}/dev/nvidia0", 195, 0),),
        files=(
            DriverFile("library", f"{where.driver.rstrip('/')}/usr/lib/libcuda.so.1", "/usr/lib/x"),
        ),
        driver_root=where.driver,
        dev_root=where.dev,
    )
    told = at_host(seen, where)
    assert told.device_nodes[0].host_path == node
    assert told.files[0].host_path == library
    assert (told.driver_root, told.dev_root) == (where.host_driver, where.host_dev)


def test_a_name_that_only_begins_alike() -> None:
    """/driver-root-2 is not below /driver-root."""
    where = Places("/driver-root", "/driver-root")
    assert where.on_host("/driver-root-2/x") == "/driver-root-2/x"
    assert where.on_host("/driver-root") == "/"
    assert not host_paths.is_below("/ab", "/a")
