# SPDX-License-Identifier: Apache-2.0
"""Specs of generate-cdi, as podman reads and applies them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuhook.cdi import spec_file as spec_files
from gpuhook.cdi.hot import registry
from gpuhook.cli import main
from gpuhook.vendors.nvidia.driver import hookless_mounts
from gpuhook.vendors.nvidia.spec.generate_options import Choices
from gpuhook.vendors.nvidia.spec.gpu_spec import describe
from tests.contract import engines
from tests.contract.roots import Roots
from tests.contract.views import View, questions
from tests.simulated.node import SimulatedNode, make_node

LIBRARIES = ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libGLX_indirect.so.0")
LIB = "/usr/lib/x86_64-linux-gnu"


@pytest.fixture(scope="module")
def t4(tmp_path_factory: pytest.TempPathFactory) -> SimulatedNode:
    """Return a simulated node with one T4."""
    return make_node(tmp_path_factory.mktemp("t4"), "t4")


@pytest.fixture(scope="module")
def node_with_lost_gpu(tmp_path_factory: pytest.TempPathFactory) -> SimulatedNode:
    """Return a simulated node with four A100, one of them lost."""
    return make_node(tmp_path_factory.mktemp("lost"), "lost-gpu")


def write_spec(node: SimulatedNode, directory: Path, choices: Choices, fmt: str = "yaml") -> Path:
    """Write the spec of `node` into `directory`, as generate-cdi does."""
    spec_files.write(describe(node.node, choices).spec, str(directory / f"nvidia.{fmt}"), fmt)
    return directory


def podman_view(
    place: Path, root: Path, specs: Path, *devices: str, options: list[str] | None = None
) -> View:
    """Return the view of a container to which podman adds `devices`."""
    probe_questions = questions(
        "/usr/bin/nvidia-smi",
        f"{LIB}/vdpau/libvdpau_nvidia.so.1",
        tries=["195:0", "195:1", "195:2", "195:3"],
        runs=[["/dlprobe", *LIBRARIES], ["/usr/bin/nvidia-smi"]],
    )
    device_options = [
        word for device in devices for word in ("--device", f"nvidia.com/gpu={device}")
    ]
    device_options += ["--cap-add", "MKNOD", *(options or [])]
    return engines.podman(place, root, ["/probe", *probe_questions], device_options, cdi=specs).view


@pytest.mark.parametrize("kind", ["debian", "lib64", "distroless"])
def test_spec_without_hooks_provides_gpu_and_driver(
    kind: str, t4: SimulatedNode, tmp_path: Path, root_of: Roots
) -> None:
    """With --hooks none podman alone provides the GPU and a driver that the loader finds."""
    specs = write_spec(t4, tmp_path / "cdi", Choices(hooks="none"))
    view = podman_view(tmp_path / "podman", root_of(kind), specs, "0")
    assert {path: entry.open for path, entry in view.gpus().items()} == {
        "/dev/nvidia0": "ENXIO",
        "/dev/nvidia-modeset": "ENXIO",
        "/dev/nvidia-uvm": "ENXIO",
        "/dev/nvidia-uvm-tools": "ENXIO",
        "/dev/nvidiactl": "ENXIO",
    }
    assert view.tries["195:1"] == "EPERM"
    assert view.values("NVIDIA_VISIBLE_DEVICES") == ["void"]
    loaded, smi = view.runs
    # A library opened by a second name is the first again: the loader compares inodes.
    loaded_paths = {name: answer.get("path") for name, answer in loaded.found().items()}
    assert loaded_paths == {
        "libcuda.so.1": f"{hookless_mounts.DIRECTORY}/libcuda.so.1",
        "libcuda.so": f"{hookless_mounts.DIRECTORY}/libcuda.so.1",
        "libnvidia-ml.so.1": f"{hookless_mounts.DIRECTORY}/libnvidia-ml.so.1",
        "libGLX_indirect.so.0": f"{hookless_mounts.DIRECTORY}/libGLX_indirect.so.0",
    }
    assert smi.rc == 0
    for mount in view.mounts.values():
        if mount.target.startswith(hookless_mounts.DIRECTORY):
            assert {"ro", "nosuid", "nodev"} <= mount.options
    assert view.paths[f"{LIB}/vdpau/libvdpau_nvidia.so.1"].kind == "file"


def test_library_path_of_a_cuda_image_is_unchanged(
    t4: SimulatedNode, tmp_path: Path, root_of: Roots
) -> None:
    """CUDA images list these directories already: the variable does not change."""
    specs = write_spec(t4, tmp_path / "cdi", Choices(hooks="none"))
    name, _, value = hookless_mounts.ENV.partition("=")
    options = ["--env", f"{name}={value}"]
    view = podman_view(tmp_path / "podman", root_of("debian"), specs, "0", options=options)
    assert view.values(name) == [value]


@pytest.mark.parametrize("fmt", spec_files.FORMATS)
def test_podman_calls_the_hook_of_the_spec(
    fmt: str, t4: SimulatedNode, tmp_path: Path, root_of: Roots
) -> None:
    """podman finds the devices by each name, and calls the hook with the spec's arguments."""
    record = tmp_path / "record"
    hook = tmp_path / "gpuhook-hook"
    hook.write_text(f'#!/bin/sh\nprintf "%s\\n" "$0" "$@" > {record}; env > {record}.env\n')
    hook.chmod(0o755)
    choices = Choices(hook_path=str(hook), host_root=t4.host_root)
    specs = write_spec(t4, tmp_path / "cdi", choices, fmt)
    uuid = str(t4.node.gpus[0].uuid)
    root = root_of("debian")
    for name in ("0", uuid, "all"):
        view = podman_view(tmp_path / f"podman-{name}", root, specs, name)
        assert view.gpus()["/dev/nvidia0"].open == "ENXIO"
    hook_edit = describe(t4.node, choices).spec["containerEdits"]["hooks"][0]
    assert record.read_text("utf-8").splitlines()[1:] == hook_edit["args"][1:]
    assert "PATH=/usr/sbin:/usr/bin:/sbin:/bin" in Path(f"{record}.env").read_text("utf-8")
    assert "NVIDIA_VISIBLE_DEVICES" not in Path(f"{record}.env").read_text("utf-8")


def test_all_omits_the_lost_gpu(
    node_with_lost_gpu: SimulatedNode, tmp_path: Path, root_of: Roots
) -> None:
    """`all` has the GPUs that work; the lost one cannot be opened."""
    specs = write_spec(node_with_lost_gpu, tmp_path / "cdi", Choices(hooks="none"))
    view = podman_view(tmp_path / "podman", root_of("debian"), specs, "all")
    usable = {gpu.minor for gpu in node_with_lost_gpu.node.gpus if not gpu.lost}
    gpu_nodes = {path for path in view.gpus() if path[len("/dev/nvidia") :].isdigit()}
    assert gpu_nodes == {f"/dev/nvidia{minor}" for minor in usable}
    for minor in range(4):
        assert view.tries[f"195:{minor}"] == ("ENXIO" if minor in usable else "EPERM")


def test_two_devices_have_common_edits_once(
    node_with_lost_gpu: SimulatedNode, tmp_path: Path, root_of: Roots
) -> None:
    """Two devices of one spec are added, and their common edits once."""
    specs = write_spec(
        node_with_lost_gpu, tmp_path / "cdi", Choices(hooks="none", strategies=("index",)), "json"
    )
    document = json.loads((specs / "nvidia.json").read_text("utf-8"))
    names = [device["name"] for device in document["devices"]][:2]
    view = podman_view(tmp_path / "podman", root_of("debian"), specs, *names)
    gpu_nodes = {path for path in view.gpus() if path[len("/dev/nvidia") :].isdigit()}
    wanted = [device["containerEdits"]["deviceNodes"][0] for device in document["devices"][:2]]
    assert gpu_nodes == {node["path"] for node in wanted}
    assert view.values("NVIDIA_VISIBLE_DEVICES") == ["void"]


@pytest.mark.usefixtures("installed_hook")
def test_generate_cdi_writes_node_record_and_compiled_spec(
    t4: SimulatedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """generate-cdi reads NVML and the driver tree, and writes node.json and the compiled spec."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    path = tmp_path / "cdi/nvidia.yaml"
    done = CliRunner().invoke(main, ["generate-cdi", *t4.options, "--output-file", str(path)])
    assert done.exit_code == 0, done.output
    uuid = str(t4.node.gpus[0].uuid)
    record = json.loads((tmp_path / "state/node.json").read_text("utf-8"))
    assert record["fingerprint"] == t4.node.fingerprint
    aliases = record["aliases"]
    assert {aliases[name] for name in ("00000000:00:1e.0", "0000:00:1e.0", "0")} == {uuid}
    status = os.stat(path)
    identity = f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"
    assert record["spec"] == {"path": str(path), "identity": identity}

    def refuse_to_compile(*sources: str) -> None:
        raise AssertionError(sources)

    compiled, edits = registry.load([str(path.parent)], refuse_to_compile).device(
        f"nvidia.com/gpu={uuid}"
    )
    assert edits["deviceNodes"][0]["hostPath"] == f"{t4.dev_root}/dev/nvidia0"
    hook = compiled.edits["hooks"][0]["args"]
    assert hook[hook.index("--fingerprint") + 1] == t4.node.fingerprint
    assert hook[hook.index("--host-root") + 1] == t4.host_root
