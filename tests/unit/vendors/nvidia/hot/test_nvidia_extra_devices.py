# SPDX-License-Identifier: Apache-2.0
"""The roots of a node's /dev and of its driver, for devices other than GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuhook.cdi.hot import compiled_spec
from gpuhook.cdi.hot.registry import Registry
from gpuhook.errors import GpuhookError
from gpuhook.host.hot.settings import Settings
from gpuhook.request import extra_requests, parse
from gpuhook.vendors.nvidia.hot.extras import extra_devices
from tests.plans import described, planned, this_node

KIND = "nvidia.com/gpu"
DRIVER = "/run/nvidia/driver"


def device_roots(settings: Settings, dev: str = "", driver: str = "") -> tuple[str, str, str]:
    """Return the roots if the spec of the GPUs has its nodes and files in these."""
    node: dict[str, Any] = {"path": "/dev/nvidiactl"}
    if dev:
        node["hostPath"] = dev + node["path"]
    path = "/usr/lib64/libcuda.so.580.1"
    edits = {"deviceNodes": [node], "mounts": [{"hostPath": driver + path, "containerPath": path}]}
    devices = [{"name": "0", "containerEdits": {"env": ["A=B"]}}]
    spec: Any = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
    spec["containerEdits"] = edits
    compiled = compiled_spec.of_spec("/x/nvidia.yaml", spec)
    found = Registry(["/x"], [[compiled]])
    driver_root, dev_root = settings.driver_root, settings.dev_root
    roots = extra_devices.find_roots(found, KIND, driver_root, dev_root)
    return roots.dev, roots.driver, roots.host


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the host this machine."""
    monkeypatch.delenv("GPUHOOK_HOST_ROOT", raising=False)


def test_roots_are_those_of_the_gpus_spec() -> None:
    """The node's own roots, and those of a driver container with the host's or its own /dev."""
    assert device_roots(Settings()) == ("/", "/", "/")
    assert device_roots(Settings(), driver=DRIVER) == ("/", DRIVER, "/")
    assert device_roots(Settings(), dev=DRIVER, driver=DRIVER) == (DRIVER, DRIVER, "/")


def test_settings_take_precedence(tmp_path: Path) -> None:
    """A dev root applies; a driver root is also the dev root if it has a nvidiactl."""
    settings = Settings()
    settings.driver_root = str(tmp_path)
    assert device_roots(settings, dev=DRIVER, driver=DRIVER) == (DRIVER, str(tmp_path), "/")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    assert device_roots(settings, dev=DRIVER) == (str(tmp_path), str(tmp_path), "/")
    settings.dev_root = "/named"
    assert device_roots(settings, dev=DRIVER) == ("/named", str(tmp_path), "/")


def test_other_node_has_no_extra_devices() -> None:
    """They are unknown: the GPUs are granted without them."""
    env = ["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_GDS=enabled", "NVIDIA_IMEX_CHANNELS=0"]
    spec = {"process": {"env": env}}
    injection = planned(spec, described("t4", is_elsewhere=True))
    assert injection.is_given
    grant = injection.grant
    assert grant.devices == ["nvidia.com/gpu=0"]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (parse.ENV, ["0"]),
        (parse.RESOURCES, ["0"]),
        (parse.MOUNTS, ["0"]),
        (parse.ANNOTATIONS, ["0", "nvidia.com/imex-channel=3"]),
    ],
)
def test_ignored_channels_have_no_cdi_name(kind: str, names: list[str]) -> None:
    """A CDI name must not provide what the settings deny to variables."""
    settings = Settings()
    source = parse.Source(kind, "somewhere", ["0", "nvidia.com/imex-channel=3"])
    warnings: list[GpuhookError] = []
    node = this_node(settings)
    assert extra_requests.with_extras({}, source, settings, node, warnings) == source.names
    settings.ignore_imex_channels = True
    assert extra_requests.with_extras({}, source, settings, node, warnings) == names
    assert [one.code for one in warnings] == (["GH1041"] if len(names) == 1 else [])
