# SPDX-License-Identifier: Apache-2.0
"""The simulated node: loadable libraries, a loader cache, device nodes."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.hot import host_fingerprint
from tests.simulated import build, elf_maker, layouts
from tests.simulated.node import make_node

LOADS = "import ctypes, sys; [ctypes.CDLL(path) for path in sys.argv[1:]]"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")


def read_elf(option: str, path: str | Path) -> str:
    command = ["readelf", "-W", option, str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_every_library_loads(tmp_path: Path, layout: layouts.Layout) -> None:
    """glibc's dlopen takes each library and plugin of the tree, and each has its SONAME."""
    made = make_node(tmp_path, "t4", layout=layout, real_nodes=False)
    files = [f for f in made.node.files if f.kind in ("library", "plugin")]
    assert len(files) > 30
    subprocess.run([sys.executable, "-c", LOADS, *(f.host_path for f in files)], check=True)
    for file in files[::10]:
        assert f"Library soname: [{file.soname}]" in read_elf("-d", file.host_path)


@pytest.mark.parametrize("layout", [one for one in layouts.LAYOUTS if one != "gke"])
def test_the_loader_cache_lists_the_driver(tmp_path: Path, layout: layouts.Layout) -> None:
    """ldconfig has every library of the tree in the root's cache, by SONAME."""
    made = make_node(tmp_path, "t4", layout=layout, real_nodes=False)
    command = ["/sbin/ldconfig", "-r", made.driver_root, "-p"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    sonames = {line.split()[0] for line in listed.splitlines() if "=>" in line}
    assert {f.soname for f in made.node.files if f.kind == "library"} <= sonames


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_files_have_the_type_of_their_names(tmp_path: Path, layout: layouts.Layout) -> None:
    """Sockets are sockets, binaries can be executed, and all are below the driver root."""
    made = make_node(tmp_path, "h100x8", layout=layout, real_nodes=False)
    for file in made.node.files:
        mode = os.lstat(file.host_path).st_mode
        assert file.host_path == made.driver_root.rstrip("/") + file.container_path
        assert stat.S_ISSOCK(mode) == (file.kind == "socket")
        if file.kind == "binary":
            assert os.access(file.host_path, os.X_OK)


def test_debian_layout_uses_alternatives(tmp_path: Path) -> None:
    """In Debian's layout libcuda.so.1 is a link to /etc/alternatives and on to nvidia/current."""
    make_node(tmp_path, "t4", layout="debian", real_nodes=False)
    first = (tmp_path / "usr/lib/x86_64-linux-gnu/libcuda.so.1").readlink()
    assert first.parent == Path("/etc/alternatives")
    second = (tmp_path / str(first).lstrip("/")).readlink()
    assert second == Path("/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1")
    assert (tmp_path / str(second).lstrip("/")).resolve().name == "libcuda.so.580.95.05"


@needs_root
def test_device_nodes_have_the_driver_s_numbers(tmp_path: Path) -> None:
    """Each device node has the major, minor and mode of the profile, and no hardware behind it."""
    made = make_node(tmp_path, "h100x8")
    assert len(made.node.device_nodes) == 12
    for device in made.node.device_nodes:
        status = os.stat(device.host_path)
        assert stat.S_ISCHR(status.st_mode)
        assert status.st_rdev == os.makedev(device.major, device.minor)
        assert stat.S_IMODE(status.st_mode) == 0o666


def test_fingerprint_is_that_of_the_tree(tmp_path: Path) -> None:
    """The facts of a simulated node have the fingerprint of its own tree, each time."""
    made = make_node(tmp_path, "t4", real_nodes=False)
    (libcuda,) = (f.host_path for f in made.node.files if f.soname == "libcuda.so.1")
    assert made.node.fingerprint == host_fingerprint.fingerprint(made.host_root, libcuda)
    assert "majors=nvidia-caps:241+nvidia-modeset:195" in made.node.fingerprint
    assert ",driver=580.95.05,gpus=1-" in made.node.fingerprint
    assert host_fingerprint.module_version(made.host_root) == "580.95.05"


def test_node_is_made_over_an_existing_one(tmp_path: Path) -> None:
    """A node can be made over an existing one, also while its libraries are in use."""
    first = make_node(tmp_path, "t4", real_nodes=False)
    ctypes.CDLL(first.nvml_library)
    second = make_node(tmp_path, "t4", real_nodes=False)
    assert second.node.files == first.node.files


def test_command_line(tmp_path: Path) -> None:
    """`python -m tests.simulated.node` makes a node and prints the paths of its parts."""
    command = [sys.executable, "-m", "tests.simulated.node", str(tmp_path), "--no-nodes"]
    command += ["--profile", "lost-gpu", "--layout", "driver-container"]
    here = Path(__file__).parents[2]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, cwd=here).stdout
    paths = json.loads(shown)
    assert paths["driver_root"] == str(tmp_path / "run/nvidia/driver")
    assert Path(paths["nvml_library"]).name == "libnvidia-ml.so.550.163.01"


@needs_root
def test_nvidia_smi_lists_the_nodes(tmp_path: Path) -> None:
    """The stand-in for nvidia-smi runs in a root without libraries and lists what it sees."""
    (tmp_path / "dev").mkdir()
    os.mknod(tmp_path / "dev/nvidia3", stat.S_IFCHR | 0o666, os.makedev(195, 3))
    os.mknod(tmp_path / "dev/nvidiactl", stat.S_IFCHR | 0o666, os.makedev(195, 255))
    shutil.copy(build.nvidia_smi(), tmp_path / "nvidia-smi")

    def run() -> subprocess.CompletedProcess[str]:
        command = ["chroot", str(tmp_path), "/nvidia-smi"]
        return subprocess.run(command, check=False, capture_output=True, text=True)

    assert run().stdout.startswith("GPU /dev/nvidia3 (195:3): ")
    assert "nvidiactl" not in run().stdout
    (tmp_path / "dev/nvidia3").unlink()
    assert (run().returncode, run().stdout) == (6, "No devices were found\n")


def test_elf_note(tmp_path: Path) -> None:
    """A note is in a section of its name, readable by binutils, in a library that can be loaded."""
    library = tmp_path / "libcuda.so.1"
    content = b'{"format": 1}'
    note = elf_maker.Note(".note.cuda.fwd_compatibility", "NVIDIA Corporation", content)
    elf_maker.write(library, "libcuda.so.1", note=note)
    assert "NVIDIA Corporation" in read_elf("-n", library)
    dumped = tmp_path / "note"
    section = f"--dump-section={note.section}={dumped}"
    subprocess.run(["objcopy", section, library, tmp_path / "copy"], check=True)
    assert content in dumped.read_bytes()
    subprocess.run([sys.executable, "-c", LOADS, str(library)], check=True)


def test_needed_libraries_and_machine(tmp_path: Path) -> None:
    """NEEDED entries and the machine are the requested ones; a library may have no SONAME."""
    library = tmp_path / "libx.so"
    elf_maker.write(library, None, needed=("liba.so.1", "libb.so.2"), machine=elf_maker.EM_AARCH64)
    shown = read_elf("-d", library)
    assert "[liba.so.1]" in shown
    assert "[libb.so.2]" in shown
    assert "SONAME" not in shown
    assert "AArch64" in read_elf("-h", library)


def test_tiny_library_has_no_executable_stack(tmp_path: Path) -> None:
    """A newer glibc refuses to load a library that needs an executable stack."""
    library = tmp_path / "libx.so"
    elf_maker.write(library, "libx.so")
    (line,) = (line for line in read_elf("-l", library).splitlines() if "GNU_STACK" in line)
    assert " RW " in line
