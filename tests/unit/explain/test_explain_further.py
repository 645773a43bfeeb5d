# SPDX-License-Identifier: Apache-2.0
"""explain of requests for AMD GPUs: on nodes of inventories, and on this node.

The nodes have no AMD driver here: the plan comes from what generate-cdi would write.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from click.testing import CliRunner

from gpuhook.cli import main
from tests.simulated import amd_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "train"},
    "spec": {
        "containers": [
            {
                "name": "train",
                "image": "rocm/pytorch",
                "resources": {"limits": {"amd.com/gpu": 1}},
            }
        ]
    },
}


def explained(*words: str, code: int = 0) -> Any:
    """Return the only container of the document that explain prints."""
    shown = CliRunner().invoke(main, ["explain", "-o", "json", *words])
    assert shown.exit_code == code, shown.output
    (container,) = json.loads(shown.stdout)["containers"]
    return container


def of_inventory(profile: str, request: str, code: int = 0) -> Any:
    return explained("--inventory", profile, "--env", f"AMD_VISIBLE_DEVICES={request}", code=code)


def nodes(container: Any) -> list[str]:
    return sorted(container["changes"]["nodes"])


@pytest.mark.parametrize(
    ("profile", "request_text", "gpus", "render"),
    [
        ("mi300x8", "0", ["0000:05:00.0"], [128]),
        ("mi300x8", "1-2", ["0000:27:00.0", "0000:47:00.0"], [136, 144]),
        ("mi300x8", "0000:e5:00.0", ["0000:e5:00.0"], [184]),
        ("mi300x-cpx", "0:1", ["amdgpu_xcp_0"], [129]),
        ("mi300x-cpx", "amdgpu_xcp_7", ["amdgpu_xcp_7"], [137]),
        ("radeon", "all", ["0000:03:00.0", "0000:0e:00.0"], [128, 129]),
    ],
)
def test_request_names_the_devices(
    profile: str, request_text: str, gpus: list[str], render: list[int]
) -> None:
    container = of_inventory(profile, request_text)
    assert container["result"] == "gets"
    assert [one["gpu"] for one in container["gpus"]] == gpus
    found = [path for path in nodes(container) if "renderD" in path]
    assert found == [f"/dev/dri/renderD{minor}" for minor in render]
    assert "/dev/kfd" in nodes(container)
    assert container["changes"]["env"] == ["AMD_VISIBLE_DEVICES=void"]


@pytest.mark.parametrize(
    ("request_text", "code"),
    [("9", "GH1102"), ("3-1", "GH1102"), ("0,all", "GH2510"), ("0,void", "GH2510")],
)
def test_request_of_no_device_is_refused(request_text: str, code: str) -> None:
    """Nothing of the request is called ignored: the fault is the whole answer."""
    container = of_inventory("mi300x8", request_text, code=1)
    assert (container["result"], container["fault"]["code"]) == ("refused", code)
    assert container["ignored"] == []


@pytest.mark.parametrize("request_text", ["none", "void", ""])
def test_request_of_nothing_gets_nothing(request_text: str) -> None:
    container = of_inventory("mi300x8", request_text)
    assert (container["result"], container["gpus"], nodes(container)) == ("nothing", [], [])


def test_repeated_variable_is_mentioned_for_each_vendor(tmp_path: Path) -> None:
    config = {
        "ociVersion": "1.0.2",
        "process": {"env": ["AMD_VISIBLE_DEVICES=0", "AMD_VISIBLE_DEVICES=1"]},
        "root": {"path": "rootfs"},
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    container = explained(str(path), "--inventory", "mi300x8")
    assert [one["gpu"] for one in container["gpus"]] == ["0000:27:00.0"]
    assert container["ignored"] == [
        "AMD_VISIBLE_DEVICES is set 2 times: the last one applies, AMD_VISIBLE_DEVICES=1"
    ]


def test_devices_of_both_vendors() -> None:
    words = ("--env", "NVIDIA_VISIBLE_DEVICES=0")
    container = explained("--inventory", "mixed", "--env", "AMD_VISIBLE_DEVICES=1", *words)
    assert [one["index"] for one in container["gpus"]] == ["0", "amd 1"]
    assert [one["where"] for one in container["sources"]] == [
        "NVIDIA_VISIBLE_DEVICES",
        "AMD_VISIBLE_DEVICES",
    ]
    assert {"/dev/nvidia0", "/dev/kfd", "/dev/dri/renderD131"} <= set(nodes(container))


def test_cdi_names_of_both_vendors_in_an_annotation() -> None:
    value = "cdi.k8s.io/x=nvidia.com/gpu=0,amd.com/gpu=0"
    container = explained("--inventory", "mixed", "--annotation", value)
    assert [one["device"] for one in container["devices"]] == ["nvidia.com/gpu=0", "amd.com/gpu=0"]
    assert {"/dev/nvidia0", "/dev/dri/renderD130"} <= set(nodes(container))


def _isolation(profile: str, request_text: str) -> dict[str, str]:
    (one,) = of_inventory(profile, request_text)["isolation"]
    found: dict[str, str] = one["isolation"]
    return found


def test_isolation_is_that_of_amd() -> None:
    whole, part = _isolation("mi300x8", "0"), _isolation("mi300x-cpx", "0:1")
    assert "dmem" in whole["memory"]
    assert "queues" in whole["compute"]
    assert "all of its partitions" in part["crash"]
    assert "MPS" not in json.dumps([whole, part])


def _this_node(path: Path, monkeypatch: pytest.MonkeyPatch, on_stale: str = "") -> amd_tree.AmdTree:
    """Make this node one with AMD GPUs, whose specs are in `path`/cdi."""
    tree = amd_tree.build(path, "mi300x8", real_nodes=True)
    settings = path / "config.yaml"
    more = f"  onStale: {on_stale}\n" if on_stale else ""
    settings.write_text(f"cdi:\n  specDirs: [{path}/cdi]\n{more}", encoding="utf-8")
    monkeypatch.setenv("GPUHOOK_CONFIG", str(settings))
    monkeypatch.setenv("GPUHOOK_HOST_ROOT", str(path))
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(path / "state"))
    return tree


@pytest.mark.parametrize(("on_stale", "result"), [("refresh", "gets"), ("refuse", "refused")])
def test_stale_spec_is_refreshed_first(
    on_stale: str, result: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for NVIDIA GPUs: gpuhook-runtime writes it again, if the settings say so."""
    tree = _this_node(tmp_path, monkeypatch, on_stale)
    words = ["generate-cdi", "--vendor", "amd", "--output-file", f"{tmp_path}/cdi/amd.yaml"]
    made = CliRunner().invoke(main, words)
    assert made.exit_code == 0, made.output
    tree.generation(11)
    shown = CliRunner().invoke(main, ["explain", "-o", "json", "--env", "AMD_VISIBLE_DEVICES=2"])
    document = json.loads(shown.stdout)
    (container,) = document["containers"]
    assert container["result"] == result
    is_noted = any("amd.yaml is stale (generation: " in one for one in document["node"]["notes"])
    assert is_noted is (on_stale == "refresh")


def test_this_node_without_a_spec_is_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _this_node(tmp_path, monkeypatch)
    shown = CliRunner().invoke(main, ["explain", "-o", "json", "--env", "AMD_VISIBLE_DEVICES=2"])
    document = json.loads(shown.stdout)
    assert document["node"]["gpus"] == 8
    assert "no spec of amd.com/gpu" in document["node"]["notes"][0]
    (container,) = document["containers"]
    assert (container["result"], container["fault"]) == ("gets", None)
    assert [one["gpu"] for one in container["gpus"]] == ["0000:47:00.0"]


@needs_root
@pytest.mark.parametrize("options", [["--driver-root={}/none"], ["--dev-root={}"]])
def test_node_of_the_options_of_another_driver(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The options select a node without specs; its AMD GPUs are those below the host root."""
    tree = amd_tree.build(tmp_path, "mi300x8", real_nodes=True)
    (tmp_path / "none").mkdir()
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    words = [one.format(tree.root) for one in options]
    words.append(f"--host-root={tree.root}")
    container = explained(*words, "--env", "AMD_VISIBLE_DEVICES=1,amdgpu_xcp_0", code=1)
    assert container["fault"]["code"] == "GH1102"
    container = explained(*words, "--env", "AMD_VISIBLE_DEVICES=1")
    assert [one["gpu"] for one in container["gpus"]] == ["0000:27:00.0"]
    assert nodes(container) == ["/dev/dri/card9", "/dev/dri/renderD136", "/dev/kfd"]
    pod = tmp_path / "pod.json"
    pod.write_text(json.dumps(POD), encoding="utf-8")
    container = explained(*words, "-f", str(pod))
    assert [one["gpu"] for one in container["gpus"]] == ["0000:05:00.0"]
    assert container["result"] == "gets"


def test_options_of_a_node_without_any_gpu(tmp_path: Path) -> None:
    words = [f"--driver-root={tmp_path}", f"--host-root={tmp_path}"]
    shown = CliRunner().invoke(
        main, ["explain", *words, "--env", "AMD_VISIBLE_DEVICES=1"], catch_exceptions=False
    )
    assert shown.exit_code == 1
    assert "GH1200" in shown.stderr


@needs_root
def test_pod_on_a_node_without_the_other_vendor_has_no_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = amd_tree.build(tmp_path, "mi300x8", real_nodes=True)
    specs = tmp_path / "cdi"
    specs.mkdir()
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"cdi": {"specDirs": [str(specs)]}}), encoding="utf-8")
    for name, value in {
        "HOST_ROOT": tree.root, "STATE_DIR": tmp_path / "state", "CONFIG": config,
    }.items():  # fmt: skip
        monkeypatch.setenv(f"GPUHOOK_{name}", str(value))
    made = CliRunner().invoke(main, ["generate-cdi", "--output-file", f"{specs}/amd.yaml"])
    assert made.exit_code == 0, made.output
    pod = tmp_path / "pod.json"
    pod.write_text(json.dumps(POD), encoding="utf-8")
    shown = CliRunner().invoke(main, ["explain", "-f", str(pod)])
    assert shown.exit_code == 0, shown.output
    assert f"Node: {specs}/amd.yaml (specs), 8 GPUs" in shown.stdout
    assert "GPU details unavailable" not in shown.stdout
