# SPDX-License-Identifier: Apache-2.0
"""explain of pods that request AMD GPUs: allocation, labels, limits, and both vendors together."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from gpuhook.cli import main
from tests.simulated import amd_tree
from tests.unit.explain.test_pod_answers import SCHEMA
from tests.unit.pod_texts import POD, container, ids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

MIXED = "flags: {amd: {resourceNamingStrategy: mixed}}"
SLICES = "sharing: {timeSlicing: {resources: [{name: amd.com/gpu, replicas: 4}]}}"
RENAMED = SLICES.replace("timeSlicing: {", "timeSlicing: {renameByDefault: true, ")
FAIR = SLICES.replace("replicas: 4", "replicas: 4, memory: fair")
NAMED = "resources: {gpus: [{pattern: '*', name: amd.com/instinct}]}"
FIRST, SECOND = "0000:05:00.0", "0000:27:00.0"


@pytest.fixture
def explained(tmp_path: Path) -> Any:
    """Return the function that explains a pod with the fields `text` of its only container."""

    def one(text: str, *words: str, config: str = "", pod: str = "", code: int = 0) -> Any:
        path, chosen = tmp_path / "pod.yaml", tmp_path / "plugin.yaml"
        path.write_text(POD.format(text) + pod, encoding="utf-8")
        chosen.write_text(f"version: v1\n{config}\n", encoding="utf-8")
        asked = ["explain", "-o", "json", str(path), "--plugin-config", str(chosen), *words]
        shown = CliRunner().invoke(main, asked)
        assert shown.exit_code == code, shown.output
        (found,) = json.loads(shown.stdout)["containers"]
        jsonschema.validate(found["pod"], SCHEMA)
        return found

    return one


def _limits(**amounts: int) -> str:
    pairs = ", ".join(f"amd.com/{name.replace('__', '.')}: {n}" for name, n in amounts.items())
    return f"resources: {{limits: {{{pairs}}}}}"


def _passed(found: Any) -> list[str]:
    return [one["path"] for one in found["pod"]["allocation"]["devices"]]


def _units(found: Any) -> list[str]:
    return [unit for one in found["pod"]["allocation"]["resources"] for unit in one["units"]]


@pytest.mark.parametrize(
    ("profile", "unit", "nodes"),
    [
        ("mi300x8", FIRST, ["card1", "renderD128"]),
        ("mi300x-cpx", FIRST, ["card1", "renderD128"]),
        ("mixed", "0000:c3:00.0", ["card3", "renderD130"]),
        ("radeon", "0000:03:00.0", ["card1", "renderD128"]),
    ],
)
def test_a_gpu_is_allocated(explained: Any, profile: str, unit: str, nodes: list[str]) -> None:
    found = explained(_limits(gpu=1), "--inventory", profile)
    assert (found["result"], found["route"]["name"]) == ("gets", "device-plugin")
    assert _units(found) == [unit]
    assert _passed(found) == ["/dev/kfd", *(f"/dev/dri/{name}" for name in nodes)]
    assert [one["gpu"] for one in found["gpus"]] == [unit]
    assert found["fault"] is None
    assert "no files for containers" in found["route"]["note"]
    assert not any("runtimeClassName" in note for note in found["pod"]["notes"])


def test_partitions_have_the_names_of_their_modes(explained: Any) -> None:
    words = ("--inventory", "mi300x-cpx")
    found = explained(_limits(cpx_nps4=3), *words, config=MIXED)
    assert _units(found) == [FIRST, "amdgpu_xcp_0", "amdgpu_xcp_1"]  # all of one GPU
    (note,) = found["pod"]["allocation"]["resources"][0]["isolation"]
    assert "its own compute units" in note["compute"]
    found = explained(_limits(cpx_nps4=1), *words, code=1)
    (objection,) = found["pod"]["objections"]
    assert (objection["id"], found["result"]) == ("resource-unknown", "pending")
    assert "this node offers amd.com/gpu" in objection["instead"]


def test_resource_of_patterns_is_allocated(explained: Any) -> None:
    found = explained(_limits(instinct=2), "--inventory", "mi300x8", config=NAMED)
    assert (found["result"], _units(found)) == ("gets", [FIRST, SECOND])


def test_too_many_are_pending(explained: Any) -> None:
    found = explained(_limits(gpu=9), "--inventory", "mi300x8", code=1)
    (objection,) = found["pod"]["objections"]
    assert objection["id"] == "insufficient"
    assert objection["said"] == "0/1 nodes are available: 1 Insufficient amd.com/gpu."
    assert found["result"] == "pending"


def test_shared_gpu_has_the_isolation_of_slices(explained: Any) -> None:
    words = ("--inventory", "mi300x8")
    found = explained(_limits(gpu__shared=1), *words, config=RENAMED)
    assert _units(found) == [f"{FIRST}::0"]
    assert found["replicas"] == [f"{FIRST}::0"]
    assert found["isolation"][0]["sharing"] == "time-slicing"
    assert found["memory"] == []


def test_fair_memory_is_a_limit_of_the_runtime(explained: Any) -> None:
    found = explained(_limits(gpu=1), "--inventory", "mi300x8", config=FAIR)
    (limit,) = found["memory"]
    assert (limit["gpu"], limit["limit"], limit["trouble"]) == (FIRST, 49084 << 20, "")
    assert found["pod"]["allocation"]["env"]["AMD_GPU_MEMORY_LIMIT"] == "49084"
    assert "gpuhook-runtime limits the memory" in found["route"]["note"]
    assert any("only if the node's default runtime" in note for note in found["pod"]["notes"])
    assert "dmem" in found["isolation"][0]["isolation"]["memory"]


def test_memory_of_a_partition_is_not_limited_by_the_runtime(explained: Any) -> None:
    found = explained(_limits(gpu=1), "--inventory", "mi300x-cpx", config=FAIR)
    assert found["memory"] == []
    assert (
        "not of partitions" in found["pod"]["allocation"]["resources"][0]["isolation"][0]["memory"]
    )


def test_variable_of_the_plugin_is_a_request_to_the_runtime(explained: Any) -> None:
    config = "flags: {amd: {deviceListStrategy: [envvar]}}"
    found = explained(_limits(gpu=1), "--inventory", "mi300x8", config=config)
    assert found["pod"]["allocation"]["env"] == {"AMD_VISIBLE_DEVICES": FIRST}
    assert (found["result"], found["route"]["name"]) == ("gets", "wrapper")
    assert "/dev/dri/renderD128" in found["changes"]["nodes"]


def test_cdi_devices_of_the_plugin_are_applied_by_the_engine(explained: Any) -> None:
    config = "flags: {amd: {deviceListStrategy: [cdi-cri]}}"
    found = explained(_limits(gpu=1), "--inventory", "mi300x8", config=config)
    assert found["pod"]["allocation"]["cdi_devices"] == [f"k8s.device-plugin.amd.com/gpu={FIRST}"]
    assert (found["result"], found["route"]["name"]) == ("gets", "cdi")
    assert [one["gpu"] for one in found["gpus"]] == [FIRST]


BOTH = """
  - {name: a, resources: {limits: {nvidia.com/gpu: 1}}}
  - {name: b, resources: {limits: {amd.com/gpu: 2}}}
"""


def test_pod_with_a_container_of_each_vendor(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(POD.format("image: x") + BOTH, encoding="utf-8")
    words = ["explain", "-o", "json", str(path), "--inventory", "mixed"]
    shown = CliRunner().invoke(main, words)
    assert shown.exit_code == 0, shown.output
    none, nvidia, amd = json.loads(shown.stdout)["containers"]
    assert none["result"] == "nothing"
    assert (nvidia["route"]["name"], amd["route"]["name"]) == ("wrapper", "device-plugin")
    assert "/dev/nvidia0" in nvidia["changes"]["nodes"]
    assert [one["index"] for one in amd["gpus"]] == ["amd 0", "amd 1"]
    assert [one["objections"] for one in (nvidia["pod"], amd["pod"])] == [[], []]


def test_container_with_gpus_of_both_vendors(explained: Any) -> None:
    text = "resources: {limits: {nvidia.com/gpu: 1, amd.com/gpu: 1}}"
    found = explained(text, "--inventory", "mixed")
    assert [one["index"] for one in found["gpus"]] == ["0", "amd 0"]
    assert "/dev/dri/renderD130" in _passed(found)
    assert "/dev/nvidia0" in found["changes"]["nodes"]
    assert found["pod"]["objections"] == []


SELECTED = "  nodeSelector: {{{}}}\n"


@pytest.mark.parametrize(
    ("profile", "label", "value", "verdict"),
    [
        ("mi300x8", "amd.com/gpu.product-name", "AMD_Instinct_MI300X_OAM", "matches"),
        ("mi300x8", "beta.amd.com/gpu.cu-count.304", "8", "matches"),
        ("mi300x8", "amd.com/gpu.vram", "24G", "differs"),
        ("mi300x-cpx", "amd.com/gpu.vram", "24G", "matches"),
        ("mi300x8", "amd.com/gpu.count", "8", "matches"),
        ("mi300x8", "amd.com/gpu.memory-limit-by", "kernel", "not-judged"),
        ("mi300x8", "amd.com/else", "x", "not-judged"),
        ("mi300x8", "nvidia.com/gpu.product", "x", "differs"),
        ("mixed", "amd.com/gpu.device-id", "740f", "matches"),
        ("mixed", "nvidia.com/gpu.product", "Tesla-T4", "matches"),
    ],
)
def test_labels_of_all_vendors_are_compared(
    explained: Any, profile: str, label: str, value: str, verdict: str
) -> None:
    pod = SELECTED.format(f'{label}: "{value}"')
    code = 1 if verdict == "differs" else 0
    found = explained(_limits(gpu=1), "--inventory", profile, pod=pod, code=code)
    assert found["pod"]["scheduling"]["verdict"] == verdict


def test_firmware_labels_of_another_node_are_unknown(explained: Any) -> None:
    config = "gpuhook: {deviceLabels: [vram, firmware]}"
    pod = SELECTED.format('beta.amd.com/gpu.firmware.MEC.fw.1: "8"')
    found = explained(_limits(gpu=1), "--inventory", "mi300x8", config=config, pod=pod)
    assert found["pod"]["scheduling"]["verdict"] == "not-judged"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the root of this node, which has AMD GPUs only."""
    root = tmp_path / "node"
    root.mkdir()
    amd_tree.build(root, "mi300x8", real_nodes=True)
    settings = tmp_path / "config.yaml"
    settings.write_text(f"cdi:\n  specDirs: [{root}/cdi]\n", encoding="utf-8")
    monkeypatch.setenv("GPUHOOK_CONFIG", str(settings))
    monkeypatch.setenv("GPUHOOK_HOST_ROOT", str(root))
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    return root


@pytest.mark.usefixtures("here")
def test_this_node(explained: Any) -> None:
    pod = SELECTED.format("amd.com/gpu.vram: 192G")
    found = explained(_limits(gpu=2), pod=pod)
    assert (found["result"], _units(found)) == ("gets", [FIRST, SECOND])
    assert found["pod"]["scheduling"]["verdict"] == "matches"
    found = explained("resources: {limits: {nvidia.com/gpu: 1}}", code=1)
    (objection,) = found["pod"]["objections"]
    assert objection["id"] == "resource-unknown"


def test_this_node_without_its_driver_is_unknown(explained: Any, here: Path) -> None:
    """Without GPUs of any vendor, no resource is known."""
    (here / "sys").rename(here / "gone")
    assert explained(_limits(gpu=1))["result"] == "unknown"


def test_requests_by_hand_have_objections() -> None:
    env = "env: [{name: AMD_VISIBLE_DEVICES, value: all}]"
    found = container(f"{_limits(gpu=1)}, {env}")
    assert ids(found) == ["devices-by-hand"]
    assert "in addition to its allocation, 1 of amd.com/gpu" in found.objections[0].said
    assert ids(container(f"{_limits(gpu=1)}, {env.replace('all', 'void')}")) == []
    (objection,) = container(env).objections
    assert (objection.id, objection.instead) == (
        "devices-unbooked",
        "resources.limits: {amd.com/gpu: 1}",
    )


def test_two_resources_of_amd_have_no_objection() -> None:
    """Each passes its device nodes: no variable is lost."""
    assert ids(container(_limits(spx_nps1=1, cpx_nps4=1))) == []
