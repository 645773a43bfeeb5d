# SPDX-License-Identifier: Apache-2.0
"""A driver tree with every file that NVIDIA's container toolkit knows: all of them are found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.discover import Roots
from gpuhook.vendors.nvidia.driver import companion_files, driver_files
from gpuhook.vendors.nvidia.hot import vocabulary
from tests.simulated import elf_maker
from tests.unit.vendors.nvidia.driver.test_driver_trees import put

V = "580.95.05"
_NAMED = {"cuda": "1", "nvidia-allocator": "1", "nvidia-opticalflow": "1", "vdpau_nvidia": "1"}
_OF_VERSION = [
    "cuda", "cudadebugger", "nvcuvid", "nvidia-allocator", "nvidia-api", "nvidia-cbl",
    "nvidia-cfg", "nvidia-compiler", "nvidia-eglcore", "nvidia-encode",
    "nvidia-fatbinaryloader", "nvidia-fbc", "nvidia-glcore", "nvidia-glsi",
    "nvidia-glvkspirv", "nvidia-gpucomp", "nvidia-gtk2", "nvidia-gtk3", "nvidia-ifr",
    "nvidia-ml", "nvidia-ngx", "nvidia-nscq", "nvidia-nvvm", "nvidia-opencl",
    "nvidia-opticalflow", "nvidia-pkcs11", "nvidia-pkcs11-openssl3", "nvidia-present",
    "nvidia-ptxjitcompiler", "nvidia-rtcore", "nvidia-sandboxutils", "nvidia-tileiras",
    "nvidia-tls", "nvidia-vksc-core", "nvidia-vulkan-producer", "nvidia-wayland-client",
    "EGL_nvidia", "GLESv1_CM_nvidia", "GLESv2_nvidia", "GLX_nvidia", "nvoptix",
]  # fmt: skip
_OF_THEIR_OWN = {
    "nvidia-nvvm70": "4",
    "nvidia-egl-gbm": "1.1.2",
    "nvidia-egl-wayland": "1.1.20",
    "nvidia-egl-wayland2": "1.0.0",
    "nvidia-egl-xcb": "1.0.3",
    "nvidia-egl-xlib": "1.0.3",
}
_EXPLICIT = ("EGL", "GL", "GLESv1_CM", "GLESv2", "GLX", "GLdispatch", "OpenCL", "OpenGL")
_CONFIGS = [
    *(
        f"/usr/share/{name}"
        for name in (
            "glvnd/egl_vendor.d/10_nvidia.json",
            "egl/egl_external_platform.d/15_nvidia_gbm.json",
            "egl/egl_external_platform.d/10_nvidia_wayland.json",
            "egl/egl_external_platform.d/09_nvidia_wayland2.json",
            "egl/egl_external_platform.d/20_nvidia_xcb.json",
            "egl/egl_external_platform.d/20_nvidia_xlib.json",
            "nvidia/nvoptix.bin",
            "X11/xorg.conf.d/10-nvidia.conf",
            "X11/xorg.conf.d/nvidia-drm-outputclass.conf",
        )
    ),
    *(
        f"/etc/{name}"
        for name in (
            "OpenCL/vendors/nvidia.icd",
            "vulkan/icd.d/nvidia_icd.json",
            "vulkan/icd.d/nvidia_layers.json",
            "vulkan/icd.d/nvidia_icd.x86_64.json",
            "vulkan/icd.d/nvidia_icd.aarch64.json",
            "vulkan/implicit_layer.d/nvidia_layers.json",
        )
    ),
]
_PROGRAMS = [
    "nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server", "nvidia-imex", "nvidia-imex-ctl", "nvidia-xconfig",
    "nv-fabricmanager",
]  # fmt: skip
_FIRMWARE = ("gsp_ga10x.bin", "gsp_tu10x.bin", "gsp_log_ga10x.bin")
_MULTIARCH = "/usr/lib/x86_64-linux-gnu"
PLACES = [  # libraries; X.Org driver; its GLX module
    (_MULTIARCH, "/usr/lib/xorg/modules/drivers", "/usr/lib/xorg/modules/extensions"),
    ("/usr/lib64", "/usr/lib64/xorg/modules/drivers", "/usr/lib64/xorg/modules/extensions"),
    ("/usr/lib64", "/usr/lib64/nvidia/xorg", "/usr/lib64/nvidia/xorg"),
    (f"{_MULTIARCH}/nvidia/current", f"{_MULTIARCH}/nvidia/xorg", f"{_MULTIARCH}/nvidia/xorg"),
    (
        "/usr/lib64",
        "/usr/lib64/xorg/modules/updates/drivers",
        "/usr/lib64/xorg/modules/updates/extensions",
    ),
    (_MULTIARCH, "/usr/X11R6/lib64/modules/drivers", "/usr/X11R6/lib64/modules/extensions"),
]


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear the variables of this machine's desktop and MPS daemon."""
    for name in ("XDG_DATA_DIRS", "CUDA_MPS_PIPE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)


def libraries(directory: str, drivers: str, extensions: str) -> dict[str, str]:
    """Return the path of each library with its SONAME."""
    found = {
        f"{directory}/lib{name}.so.{V}": f"lib{name}.so.{_NAMED.get(name, V)}"
        for name in _OF_VERSION
    }
    found[f"{directory}/vdpau/libvdpau_nvidia.so.{V}"] = "libvdpau_nvidia.so.1"
    for name, version in _OF_THEIR_OWN.items():
        found[f"{directory}/lib{name}.so.{version}"] = f"lib{name}.so.{version[0]}"
    found |= {f"{directory}/lib{name}.so.1.7.0": f"lib{name}.so.1" for name in _EXPLICIT}
    found[f"{drivers}/nvidia_drv.so"] = "nvidia_drv.so"
    found[f"{extensions}/libglxserver_nvidia.so.{V}"] = "libglxserver_nvidia.so"
    return found


def firmware() -> list[str]:
    """Return the path in each directory in which the kernel searches firmware."""
    release = os.uname().release
    below = ["/var/lib/firmware", "/lib/firmware", "/lib/firmware/updates"]
    below += [f"{place}/{release}" for place in below[1:]]
    return [f"{place}/nvidia/{V}/{name}" for place in below for name in _FIRMWARE]


@pytest.mark.parametrize("places", PLACES)
def test_every_file_of_a_driver_is_found(places: tuple[str, str, str], tmp_path: Path) -> None:
    """Libraries, plugins, programs, configuration, firmware and MPS's pipes, with their paths."""
    shared = libraries(*places)
    for path, soname in shared.items():
        (tmp_path / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        elf_maker.write(tmp_path / path[1:], soname)
    programs = [f"/usr/bin/{name}" for name in _PROGRAMS]
    put(tmp_path, *(path[1:] for path in programs), mode=0o755)
    others = [*_CONFIGS, *firmware()]
    put(tmp_path, *(path[1:] for path in others))
    parameter = tmp_path / "sys/module/firmware_class/parameters/path"
    parameter.parent.mkdir(parents=True)
    parameter.write_text("/var/lib/firmware\n")
    pipes = tmp_path / companion_files.MPS_DIRECTORY[1:]
    pipes.mkdir(parents=True)
    os.mkfifo(pipes / "control")
    found = driver_files.find(Roots(str(tmp_path), host=str(tmp_path)), explicit_libraries=True)
    expected = {*shared, *programs, *others, companion_files.MPS_DIRECTORY}
    assert {file.container_path for file in found.files} == expected
    assert all(file.host_path == f"{tmp_path}{file.container_path}" for file in found.files)
    assert found.warnings == ()


def test_every_library_has_its_capability() -> None:
    """No file is given to every container because the table lacks an entry."""
    paths = libraries(*PLACES[0])
    unknown = [
        path
        for path in paths
        if len(vocabulary.capabilities_of(path)) == len(vocabulary.CAPABILITIES)
    ]
    assert unknown == []
