# SPDX-License-Identifier: Apache-2.0
"""The driver's files in the layouts of distributions, with small real libraries."""

import os
import socket
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.discover import Roots
from gpuhook.vendors.nvidia.driver import driver_files

V = "580.95.05"
MULTIARCH = "/usr/lib/x86_64-linux-gnu"
ARM = "/usr/lib/aarch64-linux-gnu"
SONAMES = {
    f"libcuda.so.{V}": "libcuda.so.1",
    f"libnvidia-ml.so.{V}": "libnvidia-ml.so.1",
    f"libGLX_nvidia.so.{V}": "libGLX_nvidia.so.0",
    f"libnvidia-allocator.so.{V}": "libnvidia-allocator.so.1",
    f"libnvidia-opticalflow.so.{V}": "libnvidia-opticalflow.so.1",
    "libnvidia-egl-gbm.so.1.1.2": "libnvidia-egl-gbm.so.1",
    "libnvidia-nvvm70.so.4": "libnvidia-nvvm70.so.4",
}
PLACE = "S" * 48


@cache
def compiled() -> bytes:
    """Return a shared object whose SONAME is a long placeholder."""
    with TemporaryDirectory() as where:
        made = Path(where, "library.so")
        command = ["gcc", "-shared", "-nostdlib", "-x", "c", "-", "-o", str(made)]
        subprocess.run([*command, f"-Wl,-soname,{PLACE}"], input=b"int gpu;", check=True)
        return made.read_bytes()


def library(path: Path, soname: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(compiled().replace(PLACE.encode(), soname.encode().ljust(48, b"\0")))


def link(root: Path, path: str, target: str) -> None:
    where = root / path[1:]
    where.parent.mkdir(parents=True, exist_ok=True)
    where.symlink_to(target)


def tree(root: Path, directory: str, names: dict[str, str] | None = None) -> Path:
    """Make libraries in `directory` below `root`, with the links that an installer makes."""
    for name, soname in (names or SONAMES).items():
        library(root / directory[1:] / name, soname)
        if soname != name:
            link(root, f"{directory}/{soname}", name)
    return root


def by_path(found: driver_files.DriverFileFacts) -> dict[str, tuple[str, str, str | None]]:
    return {f.container_path: (f.kind, f.host_path, f.soname) for f in found.files}


def links(found: driver_files.DriverFileFacts) -> dict[str, str]:
    return {made.path: made.target for made in found.links}


def code_of(root: Path, libraries: tuple[str, ...] = (), configs: tuple[str, ...] = ()) -> str:
    with pytest.raises(GpuhookError) as caught:
        driver_files.find(
            Roots(str(root), library_search_paths=libraries, config_search_paths=configs)
        )
    return caught.value.code


@pytest.mark.parametrize("directory", [MULTIARCH, ARM, "/usr/lib64", "/usr/lib"])
def test_flat_directory_is_kept(directory: str, tmp_path: Path) -> None:
    """Libraries of a flat directory keep their path in the container, and have their SONAMEs."""
    found = driver_files.find(Roots(str(tree(tmp_path, directory))))
    assert found.version == V
    assert found.libcuda == f"{tmp_path}{directory}/libcuda.so.{V}"
    assert found.library_dirs == (directory,)
    assert found.warnings == ()
    assert by_path(found) == {
        f"{directory}/{name}": ("library", f"{tmp_path}{directory}/{name}", soname)
        for name, soname in SONAMES.items()
    }


def test_expected_links_are_always_added(tmp_path: Path) -> None:
    """Programs find the links that they expect, even if the host has none."""
    found = driver_files.find(Roots(str(tree(tmp_path, "/usr/lib64"))))
    assert links(found) == {
        "/usr/lib64/libcuda.so": "libcuda.so.1",
        "/usr/lib64/libGLX_indirect.so.0": f"libGLX_nvidia.so.{V}",
        "/usr/lib64/libnvidia-opticalflow.so": "libnvidia-opticalflow.so.1",
        "/usr/lib64/gbm/nvidia-drm_gbm.so": "../libnvidia-allocator.so.1",
    }


def test_development_links_lead_to_the_driver(tmp_path: Path) -> None:
    """A libX.so of the host is added if it leads to the driver's file, and only then."""
    tree(tmp_path, "/usr/lib64")
    link(tmp_path, "/usr/lib64/libnvidia-ml.so", "libnvidia-ml.so.1")
    library(tmp_path / "usr/lib64/other.so", "other.so")
    link(tmp_path, "/usr/lib64/libnvidia-allocator.so", "other.so")
    found = links(driver_files.find(Roots(str(tmp_path))))
    assert found["/usr/lib64/libnvidia-ml.so"] == "libnvidia-ml.so.1"
    assert "/usr/lib64/libnvidia-allocator.so" not in found


def test_debian_alternatives_are_followed(tmp_path: Path) -> None:
    """Debian's absolute links are followed inside the root, and each file is listed once."""
    current = f"{MULTIARCH}/nvidia/current"
    tree(tmp_path, current)
    core = f"libnvidia-eglcore.so.{V}"
    library(tmp_path / MULTIARCH[1:] / core, core)  # in Debian this one is outside nvidia/current
    library(tmp_path / current[1:] / f"libvdpau_nvidia.so.{V}", "libvdpau_nvidia.so.1")
    for name in ("libcuda.so.1", f"libnvidia-ml.so.{V}"):
        link(tmp_path, f"{MULTIARCH}/{name}", f"/etc/alternatives/nvidia--{name}")
        link(tmp_path, f"/etc/alternatives/nvidia--{name}", f"{current}/{name}")
    smi = tmp_path / "usr/lib/nvidia/current/nvidia-smi"
    smi.parent.mkdir(parents=True)
    smi.write_text("#!/bin/sh\n")
    smi.chmod(0o755)
    link(tmp_path, "/usr/bin/nvidia-smi", "/etc/alternatives/nvidia--nvidia-smi")
    link(tmp_path, "/etc/alternatives/nvidia--nvidia-smi", "/usr/lib/nvidia/current/nvidia-smi")
    found = driver_files.find(Roots(str(tmp_path)))
    assert found.library_dirs == (current, MULTIARCH)
    paths = by_path(found)
    assert paths[f"{current}/libcuda.so.{V}"][1] == f"{tmp_path}{current}/libcuda.so.{V}"
    assert f"{MULTIARCH}/{core}" in paths
    assert f"{MULTIARCH}/libnvidia-ml.so.{V}" not in paths
    assert paths["/usr/bin/nvidia-smi"] == ("binary", str(smi), None)
    assert paths[f"{current}/libvdpau_nvidia.so.{V}"][0] == "plugin"
    made = links(found)
    target = f"../nvidia/current/libvdpau_nvidia.so.{V}"
    assert made[f"{MULTIARCH}/vdpau/libvdpau_nvidia.so.1"] == target
    gbm = made[f"{MULTIARCH}/gbm/nvidia-drm_gbm.so"]
    assert gbm == "../nvidia/current/libnvidia-allocator.so.1"


def test_binary_rather_than_a_script_that_calls_it(tmp_path: Path) -> None:
    """Ubuntu with a driver in /usr/local/nvidia: /usr/bin/nvidia-smi is a script of the host.

    A script is the driver's program only if there is no binary.
    """
    tree(tmp_path, "/usr/local/nvidia/lib64")
    library(tmp_path / "usr/local/nvidia/bin/nvidia-smi", "")
    (tmp_path / "usr/local/nvidia/bin/nvidia-smi").chmod(0o755)
    (tmp_path / "usr/bin").mkdir()
    for name in ("nvidia-smi", "nvidia-debugdump"):
        script = tmp_path / "usr/bin" / name
        script.write_text(f'#!/bin/sh\nexec /usr/local/nvidia/bin/{name} "$@"\n')
        script.chmod(0o755)
    roots = Roots(str(tmp_path), library_search_paths=("/usr/local/nvidia/lib64",))
    paths = by_path(driver_files.find(roots))
    assert paths["/usr/bin/nvidia-smi"][1] == f"{tmp_path}/usr/local/nvidia/bin/nvidia-smi"
    assert paths["/usr/bin/nvidia-debugdump"][1] == f"{tmp_path}/usr/bin/nvidia-debugdump"
    assert "/usr/local/nvidia/bin/nvidia-smi" not in paths


def test_links_never_leave_the_root(tmp_path: Path) -> None:
    """An absolute link is relative to the driver's root: the host's file is not used."""
    outside = tmp_path / "host"
    library(outside / f"libnvidia-cfg.so.{V}", "libnvidia-cfg.so.1")
    root = tmp_path / "root"
    tree(root, "/usr/lib64")
    for name, target in (
        (f"libnvidia-cfg.so.{V}", f"{outside}/libnvidia-cfg.so.{V}"),
        (f"libnvidia-tls.so.{V}", f"../../../host/libnvidia-cfg.so.{V}"),
        (f"libnvidia-fbc.so.{V}", f"libnvidia-fbc.so.{V}"),
    ):
        link(root, f"/usr/lib64/{name}", target)
    found = driver_files.find(Roots(str(root)))
    assert all(f.host_path.startswith(f"{root}/") for f in found.files)
    assert sorted(w.rpartition("/")[2] for w in found.warnings) == [
        f"libnvidia-{name}.so.{V} is a dangling link; skipped" for name in ("cfg", "fbc", "tls")
    ]


def test_gke_prefix_is_removed(tmp_path: Path) -> None:
    """GKE's directory is a prefix: in a container it is the directory of GKE's images."""
    root = tree(tmp_path / "home/kubernetes/bin/nvidia", "/lib64")
    for path in ("bin/nvidia-smi", "vulkan/icd.d/nvidia_icd.json"):
        (root / path).parent.mkdir(parents=True)
        (root / path).write_text("#")
        (root / path).chmod(0o755)
    (root / f"firmware/nvidia/{V}").mkdir(parents=True)
    (root / f"firmware/nvidia/{V}/gsp_tu10x.bin").write_text("#")
    found = driver_files.find(Roots(str(root)))
    assert found.library_dirs == ("/usr/local/nvidia/lib64",)
    paths = by_path(found)
    assert paths["/usr/local/nvidia/bin/nvidia-smi"][1] == f"{root}/bin/nvidia-smi"
    assert paths["/etc/vulkan/icd.d/nvidia_icd.json"][0] == "config"
    assert f"/lib/firmware/nvidia/{V}/gsp_tu10x.bin" in paths
    assert links(found)["/usr/local/nvidia/lib64/libcuda.so"] == "libcuda.so.1"


def test_lib64_with_a_loader_is_not_a_prefix(tmp_path: Path) -> None:
    """A root whose real /lib64 contains the dynamic loader keeps its paths."""
    tree(tmp_path, "/lib64")
    (tmp_path / "lib64/ld-linux-x86-64.so.2").write_text("#")
    assert driver_files.find(Roots(str(tmp_path))).library_dirs == ("/lib64",)


def test_files_other_than_libraries_are_found(tmp_path: Path) -> None:
    """Programs, firmware, sockets and configuration, in their own directories."""
    tree(tmp_path, "/usr/lib64")
    for path in (
        f"lib/firmware/nvidia/{V}/gsp_ga10x.bin",
        f"opt/firmware/nvidia/{V}/gsp_tu10x.bin",
        f"lib/firmware/nvidia/{V}/other.bin",
        "usr/share/vulkan/icd.d/nvidia_icd.json",
        "usr/share/glvnd/egl_vendor.d/10_nvidia.json",
        "etc/OpenCL/vendors/nvidia.icd",
        "usr/bin/nvidia-debugdump",
        "sys/module/firmware_class/parameters/path",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("/opt/firmware\n")
    (tmp_path / "usr/lib64/vdpau").mkdir()
    library(tmp_path / f"usr/lib64/vdpau/libvdpau_nvidia.so.{V}", "libvdpau_nvidia.so.1")
    library(tmp_path / "usr/lib64/xorg/modules/drivers/nvidia_drv.so", "nvidia_drv.so")
    (tmp_path / "run/nvidia-persistenced").mkdir(parents=True)
    (tmp_path / "run/nvidia-fabricmanager").mkdir(parents=True)
    (tmp_path / "run/nvidia-fabricmanager/socket").write_text("no socket")
    with socket.socket(socket.AF_UNIX) as listening:
        back = Path.cwd()
        os.chdir(tmp_path / "run/nvidia-persistenced")  # the path is too long for a socket address
        listening.bind("socket")
        os.chdir(back)
        found = driver_files.find(Roots(str(tmp_path), host=str(tmp_path)))
    others = {path: kind for path, (kind, _, _) in by_path(found).items() if kind != "library"}
    assert others == {
        f"/opt/firmware/nvidia/{V}/gsp_tu10x.bin": "firmware",
        f"/lib/firmware/nvidia/{V}/gsp_ga10x.bin": "firmware",
        "/etc/vulkan/icd.d/nvidia_icd.json": "config",
        "/usr/share/glvnd/egl_vendor.d/10_nvidia.json": "config",
        "/etc/OpenCL/vendors/nvidia.icd": "config",
        "/run/nvidia-persistenced/socket": "socket",
        f"/usr/lib64/vdpau/libvdpau_nvidia.so.{V}": "plugin",
        "/usr/lib64/xorg/modules/drivers/nvidia_drv.so": "plugin",
    }
    made = links(found)["/usr/lib64/vdpau/libvdpau_nvidia.so.1"]
    assert made == f"libvdpau_nvidia.so.{V}"


def test_broken_files_are_warnings(tmp_path: Path) -> None:
    """Text, an empty file and a dangling link among the libraries are reported and left out."""
    tree(tmp_path, "/usr/lib64")
    (tmp_path / f"usr/lib64/libnvidia-tls.so.{V}").write_text("GROUP ( libtls )")
    (tmp_path / f"usr/lib64/libnvidia-cfg.so.{V}").write_text("")
    link(tmp_path, f"/usr/lib64/libnvcuvid.so.{V}", "gone")
    found = driver_files.find(Roots(str(tmp_path)))
    assert len(found.warnings) == 3
    assert not {"libnvidia-tls", "libnvidia-cfg", "libnvcuvid"} & {
        Path(path).name.partition(".")[0] for path in by_path(found)
    }


def test_32_bit_libraries_are_left_out(tmp_path: Path) -> None:
    """Libraries of another ELF class than libcuda's are skipped."""
    tree(tmp_path, "/usr/lib64")
    narrow = bytearray(compiled()[:64])
    narrow[4] = 1
    narrow[28:52] = bytes(24)
    (tmp_path / f"usr/lib64/libnvidia-tls.so.{V}").write_bytes(narrow)
    found = driver_files.find(Roots(str(tmp_path)))
    assert found.warnings == ()
    assert f"/usr/lib64/libnvidia-tls.so.{V}" not in by_path(found)


def test_requested_one_of_two_drivers_is_used(tmp_path: Path) -> None:
    """Without a request, it is the one that libcuda.so.1 names."""
    tree(tmp_path, MULTIARCH)
    old = {f"{name}.so.535.261.03": f"{name}.so.1" for name in ("libcuda", "libnvidia-ml")}
    for name, soname in old.items():
        library(tmp_path / MULTIARCH[1:] / name, soname)
    assert driver_files.find(Roots(str(tmp_path))).version == V
    found = driver_files.find(Roots(str(tmp_path)), "535.261.03")
    assert sorted(Path(path).name for path in by_path(found) if "egl" not in path) == [
        "libcuda.so.535.261.03",
        "libnvidia-ml.so.535.261.03",
        "libnvidia-nvvm70.so.4",
    ]
    (tmp_path / MULTIARCH[1:] / "libcuda.so.1").unlink()
    assert code_of(tmp_path) == "GH1233"


def test_version_of_the_module_and_the_libraries_must_match(tmp_path: Path) -> None:
    """The fault has both versions."""
    tree(tmp_path, MULTIARCH)
    with pytest.raises(GpuhookError) as caught:
        driver_files.find(Roots(str(tmp_path)), "570.1.2")
    assert caught.value.code == "GH1232"
    assert "570.1.2" in caught.value.message
    assert V in caught.value.message


def test_version_of_libcuda_and_nvml_must_match(tmp_path: Path) -> None:
    """An incomplete upgrade is a fault; a missing libnvidia-ml only a warning."""
    library(tmp_path / f"usr/lib64/libcuda.so.{V}", "libcuda.so.1")
    assert "libnvidia-ml" in driver_files.find(Roots(str(tmp_path))).warnings[0]
    library(tmp_path / "usr/lib64/libnvidia-ml.so.570.1.2", "libnvidia-ml.so.1")
    assert code_of(tmp_path) == "GH1231"


def test_missing_driver_is_a_fault(tmp_path: Path) -> None:
    """The fault lists the searched directories."""
    with pytest.raises(GpuhookError) as caught:
        driver_files.find(Roots(str(tmp_path), library_search_paths=("/opt/none",)))
    assert caught.value.code == "GH1230"
    for place in ("/opt/none", MULTIARCH, "/usr/lib64", "/etc/ld.so.cache"):
        assert place in caught.value.message


def test_invalid_arguments_are_refused(tmp_path: Path) -> None:
    """A root that is not a directory, and a relative search path."""
    assert code_of(tmp_path / "none") == "GH1235"
    tree(tmp_path, "/usr/lib64")
    assert code_of(tmp_path, libraries=("opt",)) == "GH1515"
    assert code_of(tmp_path, configs=("etc",)) == "GH1515"


def test_broken_libcuda_is_a_fault(tmp_path: Path) -> None:
    """A libcuda that is not a library is a fault with its path."""
    tree(tmp_path, "/usr/lib64")
    (tmp_path / f"usr/lib64/libcuda.so.{V}").write_text("")
    assert code_of(tmp_path) == "GH1234"


def test_search_path_is_searched_first(tmp_path: Path) -> None:
    """With the root as prefix or without."""
    tree(tmp_path, "/opt/gpu/lib")
    for path in ("/opt/gpu/lib", f"{tmp_path}/opt/gpu/lib"):
        found = driver_files.find(Roots(str(tmp_path), library_search_paths=(path,)))
        assert found.library_dirs == ("/opt/gpu/lib",)


def test_loader_cache_of_the_host_is_used(tmp_path: Path) -> None:
    """A driver in a directory on the host's ld.so.conf is found by the host's own cache."""
    tree(tmp_path, "/opt/gpu/lib")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.conf").write_text("/opt/gpu/lib\n")
    subprocess.run(["ldconfig", "-r", str(tmp_path)], check=True)
    assert driver_files.find(Roots(str(tmp_path))).library_dirs == ("/opt/gpu/lib",)
