# SPDX-License-Identifier: Apache-2.0
"""Containers of real runtimes on a simulated Jetson and in a simulated WSL."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.bundles import Bundles
from tests.contract.installation import Installation, asks
from tests.contract.integrations import Integrations
from tests.contract.roots import Roots
from tests.contract.views import View, questions
from tests.simulated import elf_maker, tegra_node, wsl_node

JETPACK = "NVIDIA_REQUIRE_JETPACK=csv-mounts=all"
CUDART = "/usr/local/cuda-12.6/targets/aarch64-linux/lib/libcudart.so.12.6.68"
SAMPLES = "/usr/src/jetson_multimedia_api/README"
STORE = f"/{wsl_node.STORE}/{wsl_node.PACKAGE}"
INTEGRATIONS = ["runc", "crun-v2", "runc-prestart", "podman-cdi"]
CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES=utility"
COMPAT = "/usr/local/cuda/compat_orin"


@pytest.fixture(scope="module")
def orin(node8: Installation, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return gpuhook installed on a Jetson Orin, which no test changes."""
    place = tmp_path_factory.mktemp("orin")
    return node8.apart(place, tegra_node.make(place / "node"))


@pytest.fixture(scope="module")
def wsl(node8: Installation, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return gpuhook installed in WSL, which no test changes."""
    place = tmp_path_factory.mktemp("wsl")
    return node8.apart(place, wsl_node.make(place / "node"))


def through(
    integration: str,
    installation: Installation,
    place: Path,
    root: Path,
    probe_args: list[str],
    *words: str,
) -> View:
    """Start a container by one integration, and return its view.

    The first of `words` is the requested device, the others are variables.
    """
    value, *env = words
    args = ["/probe", *probe_args]
    return Integrations(installation, place).through(integration, root, args, value, env).view


Start = Callable[..., View]


@pytest.fixture
def start(tmp_path: Path, root_of: Roots) -> Start:
    """Return `through` with the place and the root file system filled in."""

    def started(
        installation: Installation,
        integration: str,
        asked: list[str],
        *words: str,
        root: Path | None = None,
    ) -> View:
        return through(
            integration, installation, tmp_path, root or root_of("debian"), asked, *words
        )

    return started


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_container_on_a_jetson(integration: str, orin: Installation, start: Start) -> None:
    """The container has exactly the nodes, libraries and links of the system's CSV files."""
    lib = tegra_node.LIBRARIES
    args = questions(
        f"{lib}/libcuda.so",
        f"{tegra_node.NVIDIA}/libcuda.so.1",
        "/etc/nv_tegra_release",
        "/lib/firmware/tegra23x/nvhost.fw",
        CUDART,
        SAMPLES,
        tries=["505:3", "505:2", "10:121", "195:1", "505:9"],
        runs=[["/dlprobe", "libcuda.so.1", "libnvrm_gpu.so", "libnvidia-ptxjitcompiler.so.1"]],
    )
    view = start(orin, integration, args, "all")
    nodes = {path: (node.major, node.minor) for path, node in view.nodes.items() if "nv" in path}
    assert nodes == tegra_node.NODES
    assert {number for number, result in view.tries.items() if result == "EPERM"} == {
        "195:1",
        "505:9",
    }
    assert view.paths[f"{lib}/libcuda.so"].target == "nvidia/libcuda.so"
    assert view.paths[f"{tegra_node.NVIDIA}/libcuda.so.1"].target == "libcuda.so.1.1"
    assert view.paths["/etc/nv_tegra_release"].content.startswith(b"# R36")
    assert view.paths["/lib/firmware/tegra23x/nvhost.fw"].kind == "file"
    assert view.paths[CUDART].kind == view.paths[SAMPLES].kind == "missing"
    answers = view.runs[0].found()
    assert {name: answer.get("path") for name, answer in answers.items()} == {
        name: f"{tegra_node.NVIDIA}/{name}"
        for name in ("libcuda.so.1", "libnvrm_gpu.so", "libnvidia-ptxjitcompiler.so.1")
    }


@pytest.mark.parametrize("integration", ["runc", "runc-prestart"])
def test_jetpack_requirement_adds_all_files(
    integration: str, orin: Installation, start: Start
) -> None:
    """NVIDIA_REQUIRE_JETPACK=csv-mounts=all adds the entries of the other CSV files."""
    link = "/usr/local/cuda-12.6/lib64/libcudart.so.12"
    args = questions(CUDART, SAMPLES, link, runs=[["/dlprobe", "libcudart.so.12"]])
    view = start(orin, integration, args, "0", JETPACK)
    assert view.paths[CUDART].kind == view.paths[SAMPLES].kind == "file"
    assert view.paths[link].target == CUDART
    assert "path" in view.runs[0].found()["libcudart.so.12"]
    assert "/dev/nvhost-gpu" in view.nodes


def test_other_jetpack_requirement_adds_nothing(orin: Installation, start: Start) -> None:
    other = "NVIDIA_REQUIRE_JETPACK=csv-mounts=none"
    view = start(orin, "runc", questions(CUDART), "0", other)
    assert view.paths[CUDART].kind == "missing"
    assert "/dev/nvidia0" in view.nodes


@pytest.mark.parametrize("integration", ["runc", "runc-prestart"])
@pytest.mark.parametrize(
    ("text", "failing"),
    [
        ("cuda>=12.2", ""),
        ("cuda>=13.0,brand=tesla", "cuda>=13.0 (it is 12.6)"),
        ("driver>=999", "driver>=999"),
    ],
)
def test_requirements_on_a_jetson(
    integration: str,
    text: str,
    failing: str,
    orin: Installation,
    tmp_path: Path,
    root_of: Callable[..., Path],
) -> None:
    """CUDA's version is that of the release; a fact that Tegra does not have is not checked."""
    integrations = Integrations(orin, tmp_path)
    env = [f"NVIDIA_REQUIRE_X={text}"]
    done = integrations.through(integration, root_of("debian"), ["/probe"], "all", env)
    if failing:
        assert done.rc != 0
        assert failing in done.stderr + done.log
    else:
        assert "/dev/nvidia0" in done.view.nodes


def test_capabilities_do_not_filter_on_a_jetson(orin: Installation, start: Start) -> None:
    """NVIDIA_DRIVER_CAPABILITIES removes no file of the CSV files."""
    path = f"{tegra_node.NVIDIA}/libEGL_nvidia.so.0"
    loaded = [["/dlprobe", "libEGL_nvidia.so.0"]]
    view = start(orin, "runc", questions(path, runs=loaded), "0", CAPABILITIES)
    assert view.paths[path].kind == "file"
    assert view.runs[0].found()["libEGL_nvidia.so.0"]["path"] == path
    assert "/dev/nvidia-modeset" in view.nodes


@pytest.mark.parametrize(("version", "first"), [("13.2", True), ("12.6", False), ("12.2", False)])
def test_newer_cuda_compat_on_an_orin(
    version: str, first: bool, orin: Installation, start: Start, root_of: Roots
) -> None:
    """The image's libraries for Orin come first if their CUDA is newer than the system's."""
    root = root_of("debian")
    directory = Path(f"{root}{COMPAT}")
    directory.mkdir(parents=True)
    note_text = json.dumps({"CUDA Version": version, "Driver": [], "Device": []}).encode()
    note = elf_maker.Note(".note.cuda.fwd_compatibility", "NVIDIA Corporation", note_text)
    elf_maker.write(directory / "libcuda.so.1.1", "libcuda.so.1", note=note)
    (directory / "libcuda.so.1").symlink_to("libcuda.so.1.1")
    args = questions(runs=[["/dlprobe", "libcuda.so.1"]])
    view = start(orin, "runc", args, "all", root=root)
    expected = COMPAT if first else tegra_node.NVIDIA
    assert view.runs[0].found()["libcuda.so.1"]["path"] == f"{expected}/libcuda.so.1"


@pytest.mark.parametrize("on_stale", ["refresh", "refuse"])
def test_changed_driver_of_a_jetson_makes_the_spec_stale(
    on_stale: str, node8: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """The spec is regenerated with the same options, or the container is refused."""
    node = tegra_node.make(tmp_path / "node")
    mine = node8.apart(tmp_path, node)
    if on_stale == "refuse":
        mine.refuse_stale()
    made = bundle_of(tmp_path, env=asks("all"))
    assert mine.edit(made).rc == 0
    before = mine.spec.read_text()
    elf_maker.write(f"{node.driver_root}{tegra_node.NVIDIA}/libcuda.so.1.1", "libcuda.so.1")
    done = mine.edit(bundle_of(tmp_path, env=asks("all")))
    if on_stale == "refresh":
        assert done.rc == 0, done.stderr + done.log
        assert "name: csv-mounts-all" in mine.spec.read_text() != before
        assert "unchanged" in mine.gpuhook("refresh").stdout
        return
    assert done.rc != 0
    assert "GH1120" in done.stderr + done.log
    assert "tree: was" in done.stderr + done.log
    assert mine.spec.read_text() == before


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_container_in_wsl(integration: str, wsl: Installation, start: Start) -> None:
    """The container has /dev/dxg and the driver store, and finds the front libraries."""
    names = ("libcuda.so.1", "libnvidia-ml.so.1", "libdxcore.so")
    args = questions(
        "/usr/bin/nvidia-smi",
        f"{STORE}/libcuda.so.1",
        f"{STORE}/libcuda.so.1.1",
        f"{STORE}/nvcubins.bin",
        f"{STORE}/nvlddmkm.sys",
        tries=["10:125", "10:126"],
        runs=[["/dlprobe", *names]],
    )
    view = start(wsl, integration, args, "all")
    assert [path for path in view.nodes if path == "/dev/dxg"] == ["/dev/dxg"]
    assert view.nodes["/dev/dxg"].allowed
    assert view.tries["10:126"] == "EPERM"
    assert view.tries["10:125"] != "EPERM"
    assert view.paths["/usr/bin/nvidia-smi"].target == f"{STORE}/nvidia-smi"
    assert view.paths[f"{STORE}/libcuda.so.1"].target == "libcuda_loader.so"
    kinds = {
        path: view.paths[f"{STORE}/{path}"].kind for path in ("libcuda.so.1.1", "nvcubins.bin")
    }
    assert set(kinds.values()) == {"file"}
    assert view.paths[f"{STORE}/nvlddmkm.sys"].kind == "missing"
    assert {name: answer.get("path") for name, answer in view.runs[0].found().items()} == {
        "libcuda.so.1": f"{STORE}/libcuda.so.1",
        "libnvidia-ml.so.1": f"{STORE}/libnvidia-ml.so.1",
        "libdxcore.so": "/usr/lib/wsl/lib/libdxcore.so",
    }


def test_wsl_spec_without_hooks(wsl: Installation, tmp_path: Path, start: Start) -> None:
    """With --hooks none, podman alone mounts a driver that the loader finds."""
    mine = replace(wsl, place=tmp_path)
    mine.specs.mkdir()
    mine.generate("--hooks", "none")
    args = questions(f"{STORE}/libcuda.so.1.1", runs=[["/dlprobe", "libcuda.so.1"]])
    view = start(mine, "podman-cdi", args, "all")
    assert view.paths[f"{STORE}/libcuda.so.1.1"].kind == "file"
    assert "path" in view.runs[0].found()["libcuda.so.1"]


def test_index_in_wsl_is_refused(wsl: Installation, bundle_of: Bundles) -> None:
    """All GPUs are behind one node: the error names the device `all`."""
    done = wsl.edit(bundle_of(wsl.place, env=asks("0")))
    assert done.rc != 0
    assert "GH1102" in done.stderr
    assert "nvidia.yaml has all" in done.stderr


@pytest.mark.parametrize("which", ["orin", "wsl"])
def test_request_for_all_without_kernel_module(
    which: str, node8: Installation, tmp_path: Path, start: Start
) -> None:
    """`all` applies on Jetson and WSL even if no kernel module of NVIDIA is loaded."""
    made = {"orin": tegra_node.make, "wsl": wsl_node.make}[which](tmp_path / "node")
    Path(made.host_root, "sys/module/nvidia/version").unlink(missing_ok=True)
    mine = node8.apart(tmp_path, made)
    view = start(mine, "runc", questions(), "all")
    assert {"orin": "/dev/nvmap", "wsl": "/dev/dxg"}[which] in view.nodes
