# SPDX-License-Identifier: Apache-2.0
"""The device plugin as a process on nodes with AMD GPUs, and with GPUs of both vendors."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from click.testing import CliRunner

from gpuhook.cli.node.health import health
from gpuhook.vendors.amd.inventory import amd_dump
from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
from tests.kubelet.kubelet import AdmissionError, Kubelet
from tests.kubelet.process import PluginProcess, plugin
from tests.simulated import amd_profiles, amd_tree, stub_events
from tests.simulated.amd_tree import AmdTree
from tests.simulated.node import SimulatedNode, make_node
from tests.waiting import eventually

AMD, NVIDIA = "amd.com/gpu", "nvidia.com/gpu"
PLAIN = "version: v1\n"
MIXED = "version: v1\nflags: {amd: {resourceNamingStrategy: mixed}}\n"
SHARED = """\
version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    resources:
    - {name: amd.com/gpu, replicas: 4, memory: fair}
"""
FIRST = "0000:05:00.0"
Serve = Callable[..., PluginProcess]


@pytest.fixture
def serve(tmp_path: Path, kubelet: Kubelet) -> Iterator[Serve]:
    """Return a function that starts a plugin on a node whose files are below `root`."""
    with ExitStack() as stack:

        def start(root: Path, text: str = PLAIN, *options: str, driver: str = "") -> PluginProcess:
            place = str(root)
            roots = SimpleNamespace(host_root=place, dev_root=place, driver_root=driver or place)
            node = cast(SimulatedNode, roots)
            env = {"GPUHOOK_CDI_DIRECTORY": str(tmp_path / "cdi")}
            return stack.enter_context(
                plugin(tmp_path / "plugin", node, kubelet, text, env, options)
            )

        yield start


@pytest.fixture
def tree(tmp_path: Path) -> AmdTree:
    return amd_tree.build(tmp_path / "node", "mi300x8")


@pytest.fixture
def both(tmp_path: Path) -> tuple[SimulatedNode, AmdTree]:
    """Return a node with a T4 and two MI210."""
    if os.geteuid() != 0:
        pytest.skip("device nodes need root")
    node = make_node(tmp_path / "node", "mixed")
    return node, amd_tree.build(node.host_root, "mixed")


def replace_tree(tree: AmdTree, node: AmdNode) -> None:
    """Replace the GPUs of a running node, as a change of the partition modes does."""
    made = amd_tree.build(tree.root.parent / "next", node)
    for name in ("sys", "proc"):
        shutil.move(tree.root / name, tree.root.parent / f"old-{name}")
        shutil.move(made.root / name, tree.root / name)
    shutil.rmtree(made.root, ignore_errors=True)


def test_whole_gpus_get_the_nodes_of_amds_plugin(
    serve: Serve, kubelet: Kubelet, tree: AmdTree
) -> None:
    running = serve(tree.root, PLAIN, "-pulse=1")
    kubelet.wait_for_devices(AMD, 8)
    device = kubelet.devices(AMD)["0000:85:00.0"]
    assert [node.ID for node in device.topology.nodes] == [1]
    pod = kubelet.allocate(AMD, 2)
    paths = ["/dev/kfd", "/dev/dri/card1", "/dev/dri/renderD128", "/dev/dri/card9"]
    paths.append("/dev/dri/renderD136")
    assert [one.host_path for one in pod.response.devices] == paths
    assert dict(pod.response.envs) == {"AMD_VISIBLE_DEVICES": "void"}
    assert list(pod.response.mounts) == []
    (registration,) = kubelet.registrations
    assert registration.endpoint == "amd-gpu.sock"
    assert not [line for line in running.log() if line.get("level") == "warning"]
    assert running.stop() == 0


def test_partitions_have_resources_of_their_modes(
    serve: Serve, kubelet: Kubelet, tmp_path: Path
) -> None:
    cpx = amd_tree.build(tmp_path / "node", "mi300x-cpx")
    serve(cpx.root, PLAIN, "-resource_naming_strategy=mixed")
    name = "amd.com/cpx_nps4"
    kubelet.wait_for_devices(name, 64)
    parents = {device.id: gpu.pci_address for gpu, device in cpx.node.devices()}
    first = kubelet.allocate(name, 3)
    second = kubelet.allocate(name, 8)
    third = kubelet.allocate(name, 5)  # the rest of the first GPU
    used = [{parents[one] for one in pod.ids} for pod in (first, second, third)]
    assert [len(one) for one in used] == [1, 1, 1]
    assert used[0] == used[2] != used[1]


def test_shared_gpus_have_limited_replicas(serve: Serve, kubelet: Kubelet, tree: AmdTree) -> None:
    running = serve(tree.root, SHARED)
    kubelet.wait_for_devices("amd.com/gpu.shared", 32)
    pods = [kubelet.allocate("amd.com/gpu.shared", 1) for _ in range(8)]
    assert len({pod.ids[0].partition("::")[0] for pod in pods}) == 8
    (mount,) = pods[0].response.mounts
    assert mount.host_path == "/dev/null"
    assert pods[0].response.envs["GPUHOOK_REPLICAS_AMD_COM_GPU_SHARED"] == pods[0].ids[0]
    line = running.wait_for_log(event="sharing")
    assert "which is not enforced (" in line["memory"]  # the tree has no controller dmem


def test_different_modes_with_strategy_single_end_the_plugin(serve: Serve, tmp_path: Path) -> None:
    gpus = amd_profiles.mi300x(amd_profiles.BUSES, ["SPX"] * 5 + ["CPX"] * 3)
    node = AmdNode(amd_dump.load("mi300x8").driver, tuple(gpus), token="generation=9")
    running = serve(amd_tree.build(tmp_path / "node", node).root)
    assert running.ended() == 1
    assert any("GH2530" in line.get("text", "") for line in running.log())


def test_repartition_is_offered_without_a_restart(
    serve: Serve, kubelet: Kubelet, tree: AmdTree
) -> None:
    running = serve(tree.root, MIXED)
    kubelet.wait_for_devices("amd.com/spx_nps1", 8)
    replace_tree(tree, amd_dump.load("mi300x-cpx"))
    kubelet.wait_for_devices("amd.com/cpx_nps4", 64)
    kubelet.wait_for(lambda: kubelet.capacity("amd.com/spx_nps1") == 0, "no GPU of the old mode")
    with pytest.raises(AdmissionError):
        kubelet.allocate("amd.com/spx_nps1", 1)
    assert running.stop() == 0


def test_repartition_is_offered_under_one_name(
    serve: Serve, kubelet: Kubelet, tree: AmdTree
) -> None:
    serve(tree.root)
    kubelet.wait_for_devices(AMD, 8)
    replace_tree(tree, amd_dump.load("mi300x-cpx"))
    kubelet.wait_for_devices(AMD, 64)


def test_lost_gpu_is_unhealthy_until_it_is_back(
    serve: Serve, kubelet: Kubelet, tree: AmdTree
) -> None:
    running = serve(tree.root)
    kubelet.wait_for_devices(AMD, 8)
    shutil.copytree(tree.root / "sys", tree.root.parent / "saved", symlinks=True)
    tree.lose_gpu(FIRST)
    kubelet.wait_for_devices(AMD, 7, 1)
    assert kubelet.devices(AMD)[FIRST].health == "Unhealthy"
    line = running.wait_for_log(reason="GpuUnhealthy", gpu=FIRST)
    assert "no longer has it" in line["event"]
    shutil.move(tree.root / "sys", tree.root.parent / "lost")
    shutil.move(tree.root.parent / "saved", tree.root / "sys")
    kubelet.wait_for_devices(AMD, 8)


def test_uncorrectable_errors_make_one_gpu_unhealthy(
    serve: Serve, kubelet: Kubelet, tree: AmdTree
) -> None:
    errors = tree.gpu(FIRST) / "ras/umc_err_count"
    errors.write_text("ue: 3\nce: 0\n")  # from before the start
    running = serve(tree.root)
    kubelet.wait_for_devices(AMD, 8)
    numbers = count(4)

    def has_risen() -> bool:
        errors.write_text(f"ue: {next(numbers)}\nce: 0\n")
        return any(line.get("reason") == "GpuUnhealthy" for line in running.log())

    eventually(has_risen, "a GPU with more errors is unhealthy")
    kubelet.wait_for_devices(AMD, 7, 1)
    errors.write_text("ue: 0\nce: 0\n")  # a reset
    kubelet.wait_for_devices(AMD, 8)
    line = running.wait_for_log(reason="GpuHealthy")
    assert "uncorrectable errors have risen" in line["event"]


def test_operator_clears_risen_errors(
    serve: Serve, kubelet: Kubelet, tree: AmdTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = serve(tree.root)
    kubelet.wait_for_devices(AMD, 8)
    pages = tree.gpu(FIRST) / "ras/gpu_vram_bad_pages"
    numbers = count(1)

    def has_risen() -> bool:
        pages.write_text("0x00000123 : 0x00001000 : R\n" * next(numbers))
        return any(line.get("reason") == "GpuUnhealthy" for line in running.log())

    eventually(has_risen, "a GPU with new bad pages is unhealthy")
    kubelet.wait_for_devices(AMD, 7, 1)
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(running.state))
    result = CliRunner().invoke(health, ["clear", FIRST])
    assert result.exit_code == 0, result.output
    kubelet.wait_for_devices(AMD, 8)


def test_driver_that_appears_late_is_offered(serve: Serve, kubelet: Kubelet, tree: AmdTree) -> None:
    module = tree.root / "sys/module/amdgpu"
    module.rename(module.with_name("away"))
    running = serve(tree.root, "version: v1\nflags: {failOnInitError: false}\n")
    running.wait_for_log(reason="NotOffered")
    module.with_name("away").rename(module)
    kubelet.wait_for_devices(AMD, 8)


def test_gpu_with_residual_memory_is_refused_at_the_start(
    serve: Serve, kubelet: Kubelet, tree: AmdTree
) -> None:
    """A killed pod can leave memory in use: the next one would fail without a reason."""
    text = "version: v1\ngpuhook: {preStartCheck: true, minFreeMemory: 100Gi}\n"
    serve(tree.root, text)
    kubelet.wait_for_devices(AMD, 8)
    pod = kubelet.allocate(AMD, 1)
    (tree.gpu(pod.ids[0]) / "mem_info_vram_used").write_text(f"{150 << 30}\n")
    with pytest.raises(AdmissionError, match="GH1858"):
        kubelet.pre_start(pod)
    (tree.gpu(pod.ids[0]) / "mem_info_vram_used").write_text("0\n")
    kubelet.pre_start(pod)


def test_cdi_strategy_names_a_written_spec(
    serve: Serve, kubelet: Kubelet, tree: AmdTree, tmp_path: Path
) -> None:
    serve(tree.root, PLAIN, "--amd-device-list-strategy=cdi-cri")
    kubelet.wait_for_devices(AMD, 8)
    pod = kubelet.allocate(AMD, 1)
    names = [one.name for one in pod.response.cdi_devices]
    assert names == [f"k8s.device-plugin.amd.com/gpu={pod.ids[0]}"]
    written = [path.name for path in (tmp_path / "cdi").iterdir()]
    assert written == ["k8s.device-plugin.amd.com-gpu.json"]


def test_mixed_node_offers_both_vendors(
    serve: Serve, kubelet: Kubelet, both: tuple[SimulatedNode, AmdTree]
) -> None:
    node, _ = both
    serve(Path(node.host_root), PLAIN, driver=node.driver_root)
    kubelet.wait_for_devices(NVIDIA, 1)
    kubelet.wait_for_devices(AMD, 2)
    assert kubelet.allocate(AMD, 1).response.devices[0].host_path == "/dev/kfd"
    assert "NVIDIA_VISIBLE_DEVICES" in kubelet.allocate(NVIDIA, 1).response.envs


def test_vanished_nvidia_driver_leaves_amd_gpus_healthy(
    serve: Serve, kubelet: Kubelet, both: tuple[SimulatedNode, AmdTree]
) -> None:
    node, tree = both
    running = serve(Path(node.host_root), PLAIN, driver=node.driver_root)
    kubelet.wait_for_devices(NVIDIA, 1)
    stub_events.take_away(node)
    kubelet.wait_for_devices(NVIDIA, 0, 1)
    kubelet.wait_for_devices(AMD, 2)
    kubelet.allocate(AMD, 1)
    # AMD's GPUs are also watched meanwhile.
    tree.lose_gpu("0000:e3:00.0")
    kubelet.wait_for_devices(AMD, 1, 1)
    kubelet.wait_for_devices(NVIDIA, 0, 1)
    stub_events.bring_back(node)
    kubelet.wait_for_devices(NVIDIA, 1)
    assert running.stop() == 0


def test_missing_nvidia_driver_does_not_end_the_plugin(
    serve: Serve, kubelet: Kubelet, both: tuple[SimulatedNode, AmdTree]
) -> None:
    """Although failOnInitError is set: the other GPUs of the node are served."""
    node, _ = both
    stub_events.take_away(node)
    running = serve(Path(node.host_root), PLAIN, driver=node.driver_root)
    kubelet.wait_for_devices(AMD, 2)
    running.wait_for_log(reason="NotOffered")
    stub_events.bring_back(node)
    kubelet.wait_for_devices(NVIDIA, 1)


def test_vanished_amd_driver_leaves_nvidia_gpus_healthy(
    serve: Serve, kubelet: Kubelet, both: tuple[SimulatedNode, AmdTree]
) -> None:
    node, tree = both
    running = serve(Path(node.host_root), PLAIN, driver=node.driver_root)
    kubelet.wait_for_devices(AMD, 2)
    module = tree.root / "sys/module/amdgpu"
    module.rename(module.with_name("away"))
    kubelet.wait_for_devices(AMD, 0, 2)
    kubelet.wait_for_devices(NVIDIA, 1)
    kubelet.allocate(NVIDIA, 1)
    assert "not loaded" in running.wait_for_log(reason="GpuUnhealthy")["event"]
    module.with_name("away").rename(module)
    kubelet.wait_for_devices(AMD, 2)
