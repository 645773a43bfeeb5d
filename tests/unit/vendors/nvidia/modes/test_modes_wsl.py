# SPDX-License-Identifier: Apache-2.0
"""Mode wsl: the driver of Windows that is in use, and its files in a container."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from gpuhook.apply.rootfs import hook_args
from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia import discover
from gpuhook.vendors.nvidia.hot.extras.driver_root import DriverRoot
from gpuhook.vendors.nvidia.modes import mode_table, wsl_store
from gpuhook.vendors.nvidia.spec.generate_options import Choices, Described
from gpuhook.vendors.nvidia.warm import hook_names
from tests.simulated import wsl_node

STORE = f"/{wsl_node.STORE}"
USED, OLD = wsl_node.PACKAGE, wsl_node.OLD_PACKAGE
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a WSL system, without its device node if the test does not run as root."""
    wsl_node.make(tmp_path, real_nodes=os.geteuid() == 0)
    return tmp_path


def place(root: Path, *search_paths: str) -> discover.Roots:
    return discover.roots(str(root), None, str(root), library_search_paths=search_paths)


def described(root: Path, choices: Choices | None = None) -> Described:
    return mode_table.describe(mode_table.WSL, place(root), choices or Choices())


def package(root: Path, *search_paths: str) -> tuple[str, tuple[str, ...]]:
    found = wsl_store.find(DriverRoot(str(root)), search_paths)
    return found.package.rpartition("/")[2], found.warnings


def test_only_driver_is_used(root: Path) -> None:
    assert package(root) == (USED, ())


def test_driver_in_use_is_that_of_the_front_libraries(root: Path) -> None:
    """Windows keeps earlier drivers: newer files do not make one the driver in use."""
    old = wsl_node.write_package(root, OLD, "old")
    for path in old.iterdir():
        os.utime(path, (2e9, 2e9))
    assert package(root) == (USED, ())


def test_without_a_copy_the_newest_driver_is_used_with_a_warning(root: Path) -> None:
    other = wsl_node.write_package(root, OLD, "old")
    for name in ("libcuda.so.1", "libcuda.so.1.1", "libnvidia-ml.so.1", "nvidia-smi"):
        (root / wsl_node.LIB / name).unlink()
    os.utime(other / "libcuda.so.1.1", (2e9, 2e9))
    name, (warning, *_) = package(root)
    assert name == OLD
    assert f"{OLD}, {USED}; the newest is used" in warning
    assert "--library-search-path" in warning


def test_search_path_selects_the_driver(root: Path) -> None:
    wsl_node.write_package(root, OLD, "old")
    assert package(root, "/usr/lib", f"{STORE}/{OLD}") == (OLD, ())
    assert package(root, f"{root}{STORE}/{OLD}") == (OLD, ())
    with pytest.raises(GpuhookError) as caught:
        package(root, "drivers")
    assert caught.value.code == "GH1515"


def test_without_a_driver_of_nvidia(root: Path) -> None:
    shutil.rmtree(root / STORE[1:] / USED)
    with pytest.raises(GpuhookError) as caught:
        package(root)
    assert caught.value.code == "GH1218"
    assert str(root / STORE[1:]) in caught.value.message


def test_missing_files_have_warnings(root: Path) -> None:
    (root / STORE[1:] / USED / "nvcubins.bin").unlink()
    (root / wsl_node.LIB / "libdxcore.so").unlink()
    _, (warning,) = package(root)
    assert warning.endswith("lacks libdxcore.so, nvcubins.bin")


def test_library_missing_in_the_package_is_the_front_one(root: Path) -> None:
    (root / STORE[1:] / USED / "libnvidia-ml.so.1").unlink()
    found = wsl_store.find(DriverRoot(str(root)))
    paths = [file.container_path for file in found.files if file.soname == "libnvidia-ml.so.1"]
    assert f"/{wsl_node.LIB}/libnvidia-ml.so.1" in paths


@pytest.mark.parametrize("broken", ["libcuda_loader.so", "libnvidia-ml.so.1"])
def test_broken_library_is_not_in_the_loader_cache(broken: str, root: Path) -> None:
    """It keeps its path."""
    (root / STORE[1:] / USED / broken).write_bytes(b"\x7fELF cut")
    found = wsl_store.find(DriverRoot(str(root)))
    (file,) = [one for one in found.files if one.container_path.endswith("/" + broken)]
    assert (file.kind, file.soname) == ("config", None)


def test_links_out_of_the_root_are_not_followed(root: Path) -> None:
    path = root / STORE[1:] / USED / "libevil.so"
    path.symlink_to("../../../../../../../../../../../etc/passwd")
    names = [file.container_path for file in wsl_store.find(DriverRoot(str(root))).files]
    assert f"{STORE}/{USED}/libevil.so" not in names


@needs_root
def test_spec_of_a_wsl_system(root: Path) -> None:
    found = described(root)
    assert found.spec["kind"] == "nvidia.com/gpu"
    (device,) = found.spec["devices"]
    assert device["name"] == "all"
    (node,) = device["containerEdits"]["deviceNodes"]
    assert (node["path"], node["hostPath"]) == ("/dev/dxg", f"{root}/dev/dxg")
    (hook,) = found.spec["containerEdits"]["hooks"]
    job = hook_args.of_hook(hook)
    announced = dict(job.libraries)
    front = f"{STORE}/{USED}"
    assert announced[f"{front}/libcuda_loader.so"] == "libcuda.so.1"
    assert announced[f"{front}/libnvidia-ml.so.1"] == "libnvidia-ml.so.1"
    assert f"{front}/libcuda.so.1.1" not in announced
    assert len(set(announced.values())) == len(announced)
    assert job.links == [(f"{front}/nvidia-smi", "/usr/bin/nvidia-smi")]
    assert job.cuda_compat == ""
    assert job.libcuda == f"{root}/{wsl_node.LIB}/libcuda.so.1.1"
    mounted = {mount["containerPath"] for mount in found.spec["containerEdits"]["mounts"]}
    assert {f"{front}/nvngx_dlss.dll", f"{front}/nvcubins.bin"} <= mounted
    assert f"{front}/nvlddmkm.sys" not in mounted
    assert found.warnings == ()


@needs_root
@pytest.mark.parametrize(
    "choices", [Choices(device_ids=("0",)), Choices(device_ids=("GPU-1",)), Choices(with_all=False)]
)
def test_single_gpus_cannot_be_selected(choices: Choices, root: Path) -> None:
    with pytest.raises(GpuhookError) as caught:
        described(root, choices)
    assert caught.value.code == "GH1219"
    assert described(root, Choices(device_ids=("all",))).spec["devices"][0]["name"] == "all"


@pytest.mark.parametrize("kind", ["missing", "a file"])
def test_missing_device_is_a_fault(kind: str, root: Path) -> None:
    path = root / "dev/dxg"
    path.unlink(missing_ok=True)
    if kind == "a file":
        path.write_text("")
    with pytest.raises(GpuhookError) as caught:
        described(root)
    assert caught.value.code == "GH1217"


@needs_root
def test_without_hooks_libraries_keep_their_paths(root: Path) -> None:
    """The front libraries open the others by path."""
    edits = described(root, Choices(hooks="none")).spec["containerEdits"]
    places = [mount["containerPath"] for mount in edits["mounts"]]
    assert f"{STORE}/{USED}/libcuda.so.1.1" in places
    assert "/usr/local/nvidia/lib64/libcuda.so.1" in places
    assert "/usr/bin/nvidia-smi" in places
    assert len(places) == len(set(places))
    assert "hooks" not in edits


@needs_root
def test_all_hooks_disabled(root: Path) -> None:
    """There is a spec without a hook, with a warning."""
    found = described(root, Choices(disabled_hooks=frozenset(hook_names.NAMES)))
    assert "hooks" not in found.spec["containerEdits"]
    assert any("every hook is disabled" in warning for warning in found.warnings)


@needs_root
def test_groups_of_the_device_are_optional(root: Path) -> None:
    os.chown(root / "dev/dxg", 0, 44)
    (root / "dev/dxg").chmod(0o660)
    assert described(root).spec["devices"][0]["containerEdits"]["additionalGids"] == [44]
    edits = described(root, Choices(additional_gids=False)).spec["devices"][0]["containerEdits"]
    assert "additionalGids" not in edits


@needs_root
def test_capabilities_limit_the_files(root: Path) -> None:
    found = described(root, Choices(capabilities=frozenset(("utility",))))
    places = {mount["containerPath"] for mount in found.spec["containerEdits"]["mounts"]}
    names = {place.rpartition("/")[2] for place in places}
    assert {"libnvidia-ml.so.1", "libdxcore.so", "nvidia-smi"} <= names
    assert names.isdisjoint(("libcuda.so.1.1", "libcuda_loader.so", "libnvcuvid.so.1"))
