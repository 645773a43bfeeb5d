# SPDX-License-Identifier: Apache-2.0
"""A file of amdgpu whose readers block in the kernel: commands end, and the plugin goes on.

The file is a mount of a FUSE file system that does not answer. The error names the driver and the
file, and NVIDIA's GPU of the same node is not affected. The deadlines are shorter here.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuhook.cli import main
from gpuhook.node import tree_worker
from gpuhook.vendors.amd.amd_vendor import AmdVendor
from gpuhook.vendors.amd.inventory import inventory_worker
from gpuhook.vendors.nvidia.generate import driver_spec
from gpuhook.vendors.usage import usage_worker
from tests.contract.fuse import silent
from tests.faults.impatient_node import SHORT, impatient_node
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.process import PluginProcess, plugin
from tests.simulated import amd_tree
from tests.simulated.amd_tree import AmdTree
from tests.simulated.node import SimulatedNode

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes and mounts need root")

AMD, NVIDIA = "amd.com/gpu", "nvidia.com/gpu"
DEADLINES = (
    (usage_worker, "SECONDS"),
    (AmdVendor, "deadline"),
    (inventory_worker, "SECONDS"),
    (tree_worker, "SECONDS"),
)
FIRST = "0000:c3:00.0"
DOCTOR = ("doctor", "--checks", "amd.answers", "-o", "json")
# In each Python process with this directory in its path.
IMPATIENT = f"""\
import gpuhook.device_plugin.metrics.scrape as scrape
from gpuhook.vendors.amd.amd_vendor import AmdVendor
AmdVendor.deadline = scrape.TIMEOUT = {SHORT}
"""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedNode:
    """Return a node with a T4 and two MI210, which the commands read with short deadlines."""
    return impatient_node(tmp_path, "mixed", monkeypatch, DEADLINES)


@pytest.fixture
def tree(node: SimulatedNode) -> AmdTree:
    return amd_tree.build(node.host_root, "mixed", real_nodes=True)


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def warned(done: Result) -> str:
    """Return the error output of a command that succeeds."""
    assert done.exit_code == 0, done.output
    return done.stderr


def listed(*words: str) -> tuple[Any, str]:
    """Return the document of a command that succeeds, and its error output."""
    done = run(*words, "-o", "json")
    return json.loads(done.stdout), warned(done)


def refused(*words: str) -> str:
    """Return the error output of a command that fails."""
    done = run(*words)
    assert done.exit_code == 1, done.output
    return done.stderr


def vram(tree: AmdTree) -> Path:
    return tree.gpu(FIRST) / "mem_info_vram_total"


def in_topology(tree: AmdTree) -> Path:
    return tree.kfd_node(130) / "properties"


def assert_named(text: str, file: Path) -> None:
    """Assert that a message has the driver, the deadline and the file."""
    named = re.search(r"the amdgpu driver did not answer within 0.5 seconds: ([^\s;]+)", text)
    assert named, text
    path = Path(named[1].removesuffix(":"))
    assert (path.parent.resolve(), path.name) == (file.parent.resolve(), file.name)


FILES = pytest.mark.parametrize("file_of", [vram, in_topology])


@FILES
def test_commands(tree: AmdTree, tmp_path: Path, file_of: Callable[[AmdTree], Path]) -> None:
    file, spec = file_of(tree), tmp_path / "amd.yaml"
    with silent(tmp_path, str(file)):
        error = refused("generate-cdi", "--vendor", "amd", "--output-file", str(spec))
        assert "GH2561" in error
        assert_named(error, file)
        assert not spec.exists()

        inventory, warning = listed("inventory")
        assert_named(warning, file)
        assert [gpu["name"] for gpu in inventory["gpus"]] == ["Tesla T4"]
        assert "amd" not in inventory

        usage, warning = listed("ps")
        assert_named(warning, file)
        assert [gpu["index"] for gpu in usage["gpus"]] == ["0"]

        labels, warning = listed("labels")
        assert_named(warning, file)
        assert labels["labels"]["nvidia.com/gpu.product"] == "Tesla-T4"
        assert not [name for name in labels["labels"] if name.startswith("amd.com/")]

    inventory, warning = listed("inventory")
    assert (len(inventory["amd"]["gpus"]), warning) == (2, "")


def test_labels_of_a_file_that_only_they_read(tree: AmdTree, tmp_path: Path) -> None:
    """The inventory of AMD is known, its labels are not: they are an error, as before."""
    file = tree.gpu(FIRST) / "fw_version/mec_fw_version"
    with silent(tmp_path, str(file)):
        error = refused("labels", "--device-labels", "firmware")
    assert "GH2561" in error
    assert_named(error, file)


@FILES
def test_doctor(
    node: SimulatedNode, tree: AmdTree, tmp_path: Path, file_of: Callable[[AmdTree], Path]
) -> None:
    file = file_of(tree)
    with silent(tmp_path, str(file)):
        found = json.loads(run(*DOCTOR, "--root", node.host_root).stdout)
    assert found["first"] == "amd.answers"
    (finding,) = [one for one in found["results"] if one["id"] == "amd.answers"]
    message, path = finding["said"].split(": ")
    assert message == "the amdgpu driver does not answer"
    assert (tree.root / path.lstrip("/")).parent.resolve() == file.parent.resolve()
    assert Path(path).name == file.name
    assert run(*DOCTOR, "--root", node.host_root).exit_code == 0


def test_one_vendor_does_not_delay_the_spec_of_the_other(
    node: SimulatedNode, tree: AmdTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each vendor in turn; NVML blocks in nvmlInit, which reads the profile of the stub."""
    monkeypatch.setattr(driver_spec, "_SECONDS", SHORT)
    specs = {name: tmp_path / f"cdi/{name}.yaml" for name in ("nvidia", "amd")}
    specs["amd"].parent.mkdir()
    cases = {"nvidia": (node.nvml_profile, "GH1256"), "amd": (str(vram(tree)), "GH2561")}
    for hung, (file, code) in cases.items():
        with silent(tmp_path, file, name=hung):
            error = refused("generate-cdi", "--output-file", str(specs["nvidia"]))
        assert f"{code}: the" in error
        assert "driver did not answer within 0.5 seconds" in error
        assert [name for name, spec in specs.items() if spec.exists()] == [
            name for name in specs if name != hung
        ]
        for spec in specs.values():
            spec.unlink(missing_ok=True)


@pytest.fixture
def serve(
    node: SimulatedNode, kubelet: Kubelet, tmp_path: Path
) -> Iterator[Callable[[], PluginProcess]]:
    """Return a function that starts the device plugin with short deadlines."""
    (tmp_path / "impatient").mkdir()
    (tmp_path / "impatient/sitecustomize.py").write_text(IMPATIENT, encoding="utf-8")
    made: list[Any] = []

    def start() -> PluginProcess:
        env = {"PYTHONPATH": f"{tmp_path / 'impatient'}:{Path(__file__).parents[2]}"}
        text = "version: v1\nflags: {failOnInitError: false}\n"
        made.append(plugin(tmp_path / "plugin", node, kubelet, text, env))
        running: PluginProcess = made[-1].__enter__()
        return running

    yield start
    for one in made:
        one.__exit__(None, None, None)


def test_plugin_that_starts(
    serve: Callable[[], PluginProcess], kubelet: Kubelet, tree: AmdTree, tmp_path: Path
) -> None:
    with silent(tmp_path, str(vram(tree))):
        running = serve()
        kubelet.wait_for_devices(NVIDIA, 1)
        (line,) = [one["event"] for one in running.log() if one["level"] == "warning"]
        assert line.endswith("its GPUs are not offered")
        assert_named(line, vram(tree))
        assert [one.resource for one in kubelet.registrations] == [NVIDIA]
    kubelet.wait_for_devices(AMD, 2)
    kubelet.wait_for_devices(NVIDIA, 1)


def test_plugin_that_runs(
    serve: Callable[[], PluginProcess], kubelet: Kubelet, tree: AmdTree, tmp_path: Path
) -> None:
    """Its AMD GPUs are unhealthy, the metrics say so, and all of it ends with the hang."""
    running = serve()
    kubelet.wait_for_devices(AMD, 2)
    kubelet.wait_for_devices(NVIDIA, 1)
    with silent(tmp_path, str(vram(tree))):
        kubelet.wait_for_devices(AMD, 0, 2)
        line = running.wait_for_log(reason="GpuUnhealthy")["event"]
        assert_named(line, vram(tree))
        metrics = running.metrics()
        assert 'gpuhook_source_up{source="amd"} 0' in metrics
        assert 'gpuhook_source_up{source="nvml"} 1' in metrics
        kubelet.wait_for_devices(NVIDIA, 1)
        kubelet.allocate(NVIDIA, 1)
    kubelet.wait_for_devices(AMD, 2)
    assert 'gpuhook_source_up{source="amd"} 1' in running.metrics()
    assert running.stop() == 0
