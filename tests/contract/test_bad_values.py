# SPDX-License-Identifier: Apache-2.0
"""Hostile values in each source of requests: the create is refused, or assigns the one GPU."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.bundles import CAPABILITIES, Bundle, Bundles
from tests.contract.installation import Installation, asks

SWARM = "DOCKER_RESOURCE_GPU"
MOUNTS = "/var/run/nvidia-container-devices/"
IMEX = MOUNTS + "imex/"
HOSTILE = {
    "empty": "",
    "commas": ",,,",
    "long": "x" * 65536,
    "nul": "0\0",
    "surrogate": "\ud800",
    "newline": "0\n1",
    "equals": "nvidia.com/gpu=0=1",
    "negative": "-1",
    "unicode digit": "\u0663",
    "above": "../../../dev/mem",
}
VARIABLES = [
    "NVIDIA_REQUIRE_CUDA",
    "CUDA_VERSION",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_IMEX_CHANNELS",
    "NVIDIA_GDS",
    "NVIDIA_MIG_CONFIG_DEVICES",
    SWARM,
]


@pytest.fixture(scope="module")
def accepting_installation(
    node8: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Installation:
    """Return the node with settings by which swarm resources and volume mounts apply."""
    request = {"acceptVolumeMounts": True, "swarmResources": [SWARM]}
    return node8.apart(tmp_path_factory.mktemp("taking"), request=request)


@pytest.fixture
def bundle(bundle_of: Bundles) -> Bundle:
    """Return the bundle of a privileged container."""
    process = {"capabilities": {"bounding": [*CAPABILITIES, "CAP_SYS_ADMIN"]}}
    return bundle_of("distroless", ["/probe"], [], process=process)


def assert_refused_or_one_gpu(
    made: Installation, bundle: Bundle, config: dict[str, Any], own: str = ""
) -> None:
    """Assert that a create is refused without changes, or assigns the one GPU `own`."""
    bundle.file.write_text(json.dumps(config), encoding="utf-8")
    before, entries = bundle.file.read_bytes(), made.entries()
    result = made.edit(bundle)
    assert "Traceback" not in result.stderr
    assert "GH149" not in result.stderr, result.stderr
    assert len(result.stderr) < 4000
    assert result.stderr.replace("\n", "").isprintable()
    for line in result.log.splitlines():
        json.loads(line)
    if result.rc == 0:
        devices = json.loads(bundle.file.read_bytes())["linux"].get("devices", [])
        gpus = {one["path"] for one in devices if one["path"][len("/dev/nvidia") :].isdigit()}
        assert gpus == ({own} if own else set()), result
        assert "/dev/mem" not in {one["path"] for one in devices}
    else:
        assert result.rc == 1
        assert "error GH1" in result.stderr
        assert bundle.file.read_bytes() == before
        assert made.entries() == entries


@pytest.mark.parametrize("variable", VARIABLES)
def test_hostile_variable_assigns_no_other_gpu(
    variable: str, accepting_installation: Installation, bundle: Bundle
) -> None:
    """With a hostile value in another variable, the container has GPU 0 only or is refused."""
    config = bundle.config()
    for value in HOSTILE.values():
        config["process"]["env"] = ["PATH=/", *asks("0"), f"{variable}={value}"]
        # A variable of swarm resources replaces NVIDIA_VISIBLE_DEVICES.
        assert_refused_or_one_gpu(
            accepting_installation,
            bundle,
            config,
            "" if variable == SWARM else accepting_installation.device(0),
        )


@pytest.mark.parametrize("place", [MOUNTS, MOUNTS + "cdi/nvidia.com/gpu=", IMEX])
def test_hostile_mount_path_assigns_no_other_gpu(
    place: str, accepting_installation: Installation, bundle: Bundle
) -> None:
    """With a hostile path of a request mount, the container has GPU 0 only or is refused."""
    config = bundle.config()
    config["process"]["env"] = ["PATH=/", *asks("0")]
    mounts = config["mounts"]
    for value in HOSTILE.values():
        mount = {"destination": place + value, "source": "/dev/null", "type": "bind"}
        config["mounts"] = [*mounts, mount]
        assert_refused_or_one_gpu(
            accepting_installation, bundle, config, accepting_installation.device(0)
        )
