# SPDX-License-Identifier: Apache-2.0
"""Driver trees with unusual layouts, and files other than libraries."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.discover import Roots
from gpuhook.vendors.nvidia.driver import companion_files, driver_files
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.inventory.inventory import DriverFile
from gpuhook.vendors.nvidia.spec.generate_options import Choices
from gpuhook.vendors.nvidia.spec.gpu_spec import describe
from tests.simulated import elf_maker

V = "580.95.05"
MPS = companion_files.MPS_DIRECTORY


def tree(root: Path, directory: str, *names: str) -> Path:
    """Make a small driver with these additional libraries in `directory` below `root`."""
    where = root / directory.lstrip("/")
    where.mkdir(parents=True)
    for name in (f"libcuda.so.{V}", f"libnvidia-ml.so.{V}", *names):
        elf_maker.write(where / name, name.partition(".so")[0] + ".so.1")
    return root


def put(root: Path, *paths: str, mode: int = 0o644) -> None:
    """Write small files below `root`."""
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("{}")
        (root / path).chmod(mode)


def others(root: Path, **choices: object) -> dict[str, DriverFile]:
    """Return the files other than libraries, by their paths in containers."""
    found = driver_files.find(Roots(str(root), host=str(root), **choices))  # type: ignore[arg-type]
    return {file.container_path: file for file in found.files if file.kind != "library"}


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear the variables of this machine's desktop and MPS daemon."""
    for name in ("XDG_DATA_DIRS", "CUDA_MPS_PIPE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)


def test_nixos_layout(tmp_path: Path) -> None:
    """Libraries and data are below /run/opengl-driver, programs in a NixOS directory."""
    store = "nix/store/abc-graphics-drivers"
    tree(tmp_path, f"{store}/lib")
    put(
        tmp_path,
        f"{store}/share/vulkan/icd.d/nvidia_icd.x86_64.json",
        f"{store}/share/glvnd/egl_vendor.d/10_nvidia.json",
        "nix/store/def-32/share/vulkan/icd.d/nvidia_icd.i686.json",
    )
    put(tmp_path, "nix/store/ghi-nvidia-x11/bin/nvidia-smi", mode=0o755)
    (tmp_path / "run/current-system/sw/bin").mkdir(parents=True)
    for path, target in (
        ("run/opengl-driver", f"/{store}"),
        ("run/opengl-driver-32", "/nix/store/def-32"),
        ("run/current-system/sw/bin/nvidia-smi", "/nix/store/ghi-nvidia-x11/bin/nvidia-smi"),
    ):
        (tmp_path / path).symlink_to(target)
    assert driver_files.find(Roots(str(tmp_path))).library_dirs == (f"/{store}/lib",)
    found = others(tmp_path)
    assert set(found) == {
        "/etc/vulkan/icd.d/nvidia_icd.x86_64.json",
        "/etc/vulkan/icd.d/nvidia_icd.i686.json",
        "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
        "/usr/bin/nvidia-smi",
    }
    smi = found["/usr/bin/nvidia-smi"].host_path
    assert smi == f"{tmp_path}/nix/store/ghi-nvidia-x11/bin/nvidia-smi"


def test_amazon_linux_layout(tmp_path: Path) -> None:
    """AL2023: all files in /usr/lib64 and /usr/share, X.Org's module in its updates directory."""
    tree(tmp_path, "/usr/lib64")
    modules = tmp_path / "usr/lib/xorg/modules/updates/drivers"
    modules.mkdir(parents=True)
    elf_maker.write(modules / "nvidia_drv.so", "nvidia_drv.so")
    put(tmp_path, "usr/share/nvidia/nvoptix.bin", "usr/share/vulkan/icd.d/nvidia_icd.json")
    assert set(others(tmp_path)) == {
        "/usr/share/nvidia/nvoptix.bin",
        "/etc/vulkan/icd.d/nvidia_icd.json",
        "/usr/lib/xorg/modules/updates/drivers/nvidia_drv.so",
    }


def test_vulkan_directory_at_the_top_of_the_root(tmp_path: Path) -> None:
    """A driver's own directory may have vulkan/icd.d at its top, in any layout."""
    tree(tmp_path, "/usr/lib64")
    put(tmp_path, "vulkan/icd.d/nvidia_icd.json", "OpenCL/vendors/nvidia.icd")
    assert set(others(tmp_path)) == {"/etc/vulkan/icd.d/nvidia_icd.json"}


def test_xdg_data_directories_are_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are searched after /etc and before the usual ones; a relative one is ignored."""
    tree(tmp_path, "/usr/lib64")
    name = "vulkan/icd.d/nvidia_icd.json"
    put(tmp_path, f"opt/share/{name}", f"usr/share/{name}", "usr/share/nvidia/nvoptix.bin")
    monkeypatch.setenv("XDG_DATA_DIRS", "opt/no:/opt/share:")
    found = others(tmp_path)
    assert found[f"/etc/{name}"].host_path == f"{tmp_path}/opt/share/{name}"
    assert "/usr/share/nvidia/nvoptix.bin" in found
    put(tmp_path, f"etc/{name}")
    assert others(tmp_path)[f"/etc/{name}"].host_path == f"{tmp_path}/etc/{name}"
    put(tmp_path, f"opt/configs/{name}")
    found = others(tmp_path, config_search_paths=("/opt/configs",))
    assert set(found) == {f"/etc/{name}"}
    assert found[f"/etc/{name}"].host_path == f"{tmp_path}/opt/configs/{name}"


@pytest.mark.parametrize("directory", ["", "/run/site-mps"])
def test_pipes_of_an_mps_daemon_are_mounted(
    directory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At MPS's default path, with the capability compute, wherever the host has them."""
    tree(tmp_path, "/usr/lib64")
    if directory:
        monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", directory)
    place = tmp_path / (directory or MPS)[1:]
    place.mkdir(parents=True)
    assert others(tmp_path) == {}
    os.mkfifo(place / "control")
    assert others(tmp_path) == {MPS: DriverFile("pipes", str(place), MPS)}
    assert vocabulary.is_wanted(MPS, frozenset({"compute"}))
    assert not vocabulary.is_wanted(MPS, frozenset({"utility", "graphics", "video"}))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a directory away")
def test_mps_pipes_of_other_users_are_ignored(tmp_path: Path) -> None:
    """Any user may make /tmp/nvidia-mps, and would be the MPS server of all users."""
    tree(tmp_path, "/usr/lib64")
    place = tmp_path / MPS[1:]
    place.mkdir(parents=True)
    os.mkfifo(place / "control")
    os.chown(place, 12345, 12345)
    assert others(tmp_path) == {}


def test_sockets_and_pipes_are_optional() -> None:
    """They are mounted writable, or with ipc false not at all."""
    node = dump_file.load("t4")
    pipes = DriverFile("pipes", "/tmp/host-mps", MPS)
    node = replace(node, files=(*node.files, pipes))
    given = describe(node, Choices()).spec["containerEdits"]["mounts"]
    mounts = {mount["containerPath"]: mount for mount in given}
    for path in (MPS, "/run/nvidia-persistenced/socket"):
        assert "ro" not in mounts[path]["options"]
        assert "noexec" in mounts[path]["options"]
    without = describe(node, Choices(ipc=False)).spec["containerEdits"]["mounts"]
    gone = set(mounts) - {mount["containerPath"] for mount in without}
    assert gone == {MPS, "/run/nvidia-persistenced/socket"}


def test_explicit_libraries_are_added_on_request(tmp_path: Path) -> None:
    """glvnd's libraries are added on request only, by their real names, with the host's links."""
    tree(tmp_path, "/usr/lib64", "libGL.so.1.7.0", "libOpenCL.so.1.0.0", "libEGLX.so.1")
    for link, target in (("libGL.so.1", "libGL.so.1.7.0"), ("libGL.so", "libGL.so.1")):
        (tmp_path / "usr/lib64" / link).symlink_to(target)
    plain = driver_files.find(Roots(str(tmp_path)))
    assert not any("libGL" in file.container_path for file in plain.files)
    found = driver_files.find(Roots(str(tmp_path)), explicit_libraries=True)
    more = [file for file in found.files if file not in plain.files]
    assert [(file.container_path, file.soname) for file in more] == [
        ("/usr/lib64/libGL.so.1.7.0", "libGL.so.1"),
        ("/usr/lib64/libOpenCL.so.1.0.0", "libOpenCL.so.1"),
    ]
    links = {link.path: link.target for link in found.links if link not in plain.links}
    assert links == {"/usr/lib64/libGL.so": "libGL.so.1"}
    assert not vocabulary.is_wanted(more[0].container_path, frozenset({"compute", "utility"}))


def test_sockets_in_both_run_directories(tmp_path: Path) -> None:
    """The fabric manager's socket is found below /var/run if that is not a link to /run."""
    tree(tmp_path, "/usr/lib64")
    place = tmp_path / "var/run/nvidia-fabricmanager"
    place.mkdir(parents=True)
    back = Path.cwd()
    with socket.socket(socket.AF_UNIX) as listening:
        os.chdir(place)  # the whole path is too long for a socket address
        listening.bind("socket")
        os.chdir(back)
        found = others(tmp_path)
    path = "/var/run/nvidia-fabricmanager/socket"
    assert found == {path: DriverFile("socket", f"{tmp_path}{path}", path)}
