# SPDX-License-Identifier: Apache-2.0
"""The replicas that a device plugin sets, and those that the ledger records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuhook.cdi import spec_file
from gpuhook.entry.hooks import apply_hook
from gpuhook.host.hot.settings import Settings
from gpuhook.node.kept_log import KeptLog
from gpuhook.request import replicas
from gpuhook.request.parse import MAX_NAMES
from gpuhook.request.replicas import replicas_of
from gpuhook.vendors.nvidia.hot import node_json
from gpuhook.vendors.nvidia.hot.nvidia_node import NvidiaNode
from tests.plans import this_node


def spec_with_replicas(value: str) -> dict[str, Any]:
    return {"process": {"env": [f"GPUHOOK_REPLICAS={value}"]}}


def no_aliases() -> list[str]:
    raise AssertionError("asked for further names")


def test_replicas_of_granted_devices() -> None:
    """GPUHOOK_REPLICAS may name replicas of granted devices, and nothing else."""
    told = spec_with_replicas("GPU-1::3, GPU-2::0,GPU-1::x,GPU-1,GPU-1::3")
    assert replicas_of(told, ["nvidia.com/gpu=GPU-1"], list) == ["GPU-1::3"]


def test_replicas_of_several_resources() -> None:
    """Each resource of a container has its own variable."""
    env = ["GPUHOOK_REPLICAS=GPU-1::3", "GPUHOOK_REPLICAS_AMD_COM_GPU=0000:05:00.0::1,GPU-1::3"]
    devices = ["nvidia.com/gpu=GPU-1", "amd.com/gpu=0000:05:00.0"]
    found = replicas_of({"process": {"env": env}}, devices, list)
    assert found == ["GPU-1::3", "0000:05:00.0::1"]


def test_variable_of_the_container_displaces_none_of_the_plugin() -> None:
    """Its user may set one with more names than are read."""
    env = ["GPUHOOK_REPLICAS_A=" + "," * MAX_NAMES, "GPUHOOK_REPLICAS=GPU-1::3"]
    found = replicas_of({"process": {"env": env}}, ["nvidia.com/gpu=GPU-1"], list)
    assert found == ["GPU-1::3"]


def test_replica_by_another_name_of_its_device() -> None:
    """A device that was granted as 0 may have its UUID in the variable."""
    told = spec_with_replicas("GPU-1::3,GPU-2::0,GPU-1::0")
    assert replicas_of(told, ["nvidia.com/gpu=0"], lambda: ["GPU-1", "0"]) == [
        "GPU-1::3",
        "GPU-1::0",
    ]


@pytest.mark.parametrize("value", ["", "GPU-1::1", "GPU-1::1,GPU-1::2", "nonsense"])
def test_aliases_are_read_only_when_needed(value: str) -> None:
    """Without replicas, or with those of named devices alone, no spec is read."""
    replicas_of(spec_with_replicas(value), ["nvidia.com/gpu=GPU-1"], no_aliases)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Give a node whose own spec has indices, and whose plugin's spec has UUIDs and an instance."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    settings = Settings()
    settings.spec_dirs = [str(tmp_path)]
    own: dict[str, list[str]] = {"0": ["/dev/nvidia0"], "1": ["/dev/nvidia1"]}
    instance = ["/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap3", "/dev/nvidia-caps/nvidia-cap4"]
    for kind, devices in {
        "nvidia.com/gpu": own,
        "k8s.device-plugin.nvidia.com/gpu": {"GPU-0": ["/dev/nvidia0"], "MIG-1": instance},
        "example.com/gpu": {"GPU-9": ["/dev/nvidia0"]},
    }.items():
        document: Any = {"cdiVersion": "0.5.0", "kind": kind}
        document["devices"] = [
            {"name": name, "containerEdits": {"deviceNodes": [{"path": path} for path in paths]}}
            for name, paths in devices.items()
        ]
        spec_file.write(document, str(tmp_path / (kind.replace("/", "-") + ".json")), "json")
    return settings


@pytest.fixture
def node(settings: Settings) -> NvidiaNode:
    """Give that node."""
    return this_node(settings)


@pytest.mark.parametrize(
    ("nodes", "names"),
    [
        ([], set()),
        (["/dev/nvidiactl", "/dev/nvidia0"], {"0", "GPU-0"}),
        (["/dev/nvidia1"], {"1"}),
        (["/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap3"], {"1"}),
        (
            ["/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap3", "/dev/nvidia-caps/nvidia-cap4"],
            {"1", "MIG-1"},
        ),
    ],
)
def test_device_is_covered_by_all_of_its_nodes(
    node: NvidiaNode, nodes: list[str], names: set[str]
) -> None:
    """The node's own specs and a device plugin's define these nodes."""
    assert node.covered(nodes) == names


def test_missing_or_broken_specs_cover_nothing(node: NvidiaNode, tmp_path: Path) -> None:
    """They do not stop a container."""
    for path in tmp_path.glob("*.json"):
        path.write_text("{", encoding="utf-8")
    assert node.covered(["/dev/nvidia0"]) == frozenset()


def test_specs_of_the_plugin_are_enough_without_an_inventory(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If only the device plugin writes specs, the hook finds the devices in them."""
    monkeypatch.setattr(apply_hook, "Settings", lambda: settings)
    assert set(apply_hook._known_devices({}, ["/dev/nvidia0"], KeptLog())) == {"0", "GPU-0"}
    monkeypatch.setattr(node_json, "uuids", lambda: {"/dev/nvidia0": "GPU-7"})
    nodes = ["/dev/nvidia0", "/dev/nvidiactl"]
    assert apply_hook._known_devices({}, nodes, KeptLog()) == {"GPU-7"}


def claims(*values: str, devices: tuple[str, ...] = ("nvidia.com/gpu=GPU-1",)) -> list[str]:
    """Return the claims in variables with these values; GPU-2 is known by its nodes only."""
    env = [f"GPUHOOK_CLAIM_{number}={value}" for number, value in enumerate(values)]
    spec = {"process": {"env": env}}
    found = replicas.claims_of(spec, devices, lambda: ["GPU-2"])
    return [f"{one['namespace']}/{one['claim']} {one['device']} {one['share']}" for one in found]


def test_claims_of_devices_that_the_container_has() -> None:
    own = replicas.claim_entry("team", "mine", "gpu", "GPU-1", "5f0c")
    assert claims(own) == ["team/mine GPU-1 5f0c"]
    assert claims(own, own.replace("GPU-1", "GPU-2"), own.replace("GPU-1", "GPU-3")) == [
        "team/mine GPU-1 5f0c",
        "team/mine GPU-2 5f0c",
    ]
    assert claims("team/mine/gpu/GPU-1/") == ["team/mine GPU-1 "]


@pytest.mark.parametrize(
    "value",
    ["", "/", "a/b/c/GPU-1", "a/b/c/GPU-1/d/e", "a/\x1b[31m/c/GPU-1/d", "x" * 1025 + "/b/c/GPU-1/"],
)
def test_malformed_claims_are_skipped(value: str) -> None:
    assert claims(value) == []


def test_huge_environments_have_bounded_claims() -> None:
    assert len(claims(*["a/b/c/GPU-1/d"] * 5000)) == 4096
    assert claims("a/b/c/GPU-1/" + "d" * (4 << 20)) == []
