# SPDX-License-Identifier: Apache-2.0
"""The driver's parameters as a container sees them."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.hot.rootfs import driver_params

TEXT = 'ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\nRegistryDwords: ""\n'


MASK = (
    "import sys; from gpuhook.vendors.nvidia.hot.rootfs import driver_params; "
    "print(driver_params.masked(sys.argv[1]))"
)
# Mount the driver's parameters for one process, as on a kernel with the driver.
KERNEL = (
    "mount -t tmpfs none /proc/driver && mkdir /proc/driver/nvidia"
    ' && printf %s "$1" >/proc/driver/nvidia/params && shift && exec "$@"'
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount over /proc/driver")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the root of a host whose params file lets every user make nodes."""
    file = tmp_path / "proc/driver/nvidia/params"
    file.parent.mkdir(parents=True)
    file.write_text(TEXT)
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    return tmp_path


def masked(kernel: str, host_root: str = "/") -> bytes | None:
    """Return the masked parameters on a kernel with the parameters `kernel`."""
    command = ["unshare", "--mount", "sh", "-c", KERNEL, "sh", kernel]
    command += [sys.executable, "-c", MASK, host_root]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: bytes | None = ast.literal_eval(done.stdout)
    return found


@needs_root
def test_only_one_line_is_masked() -> None:
    """ModifyDeviceFiles is 0, all other lines remain."""
    assert masked(TEXT) == TEXT.replace("Files: 1", "Files: 0").encode()


@needs_root
@pytest.mark.parametrize(
    "text", [TEXT.replace("Files: 1", "Files: 0"), "", "ModifyDeviceFiles: 12"]
)
def test_no_mask_if_the_driver_makes_no_nodes(text: str) -> None:
    assert masked(text) is None


@needs_root
def test_host_root_has_the_parameters(host: Path) -> None:
    """They are masked if this kernel has the file, too."""
    assert masked("", str(host)) == TEXT.replace("Files: 1", "Files: 0").encode()
    assert masked(TEXT, "/nowhere") is None


@pytest.mark.skipif(os.path.exists(driver_params.PATH), reason="this kernel has the driver")
def test_no_mask_without_the_file_in_this_kernel(host: Path) -> None:
    """Whatever another root has: there is no file in /proc to cover."""
    assert driver_params.masked(str(host)) is None


def test_masked_file_is_made_once(host: Path) -> None:
    """It is read-only, and made again if its content differs."""
    path = driver_params.masked_file(b"one")
    assert Path(path).read_bytes() == b"one"
    assert os.stat(path).st_mode & 0o7777 == 0o444
    inode = os.stat(path).st_ino
    assert driver_params.masked_file(b"one") == path
    assert os.stat(path).st_ino == inode
    assert driver_params.masked_file(b"two") == path
    assert Path(path).read_bytes() == b"two"


def test_writable_masked_file_is_replaced(host: Path) -> None:
    """A file that another user can change is not trusted."""
    path = driver_params.masked_file(b"one")
    inode = os.stat(path).st_ino
    os.chmod(path, 0o666)
    driver_params.masked_file(b"one")
    assert os.stat(path).st_ino != inode
    assert os.stat(path).st_mode & 0o7777 == 0o444


@pytest.mark.skipif(not os.access("/usr/bin/mount", os.X_OK), reason="no mount(8)")
def test_mask_is_mounted_by_a_hook() -> None:
    """The hook is mount(8) with its own environment, marked as the wrapper's."""
    hook = driver_params.mount_hook("/run/gpuhook/params", "/b/rootfs")
    assert hook is not None
    assert hook["path"] == "/usr/bin/mount"
    assert hook["args"][-2:] == ["/run/gpuhook/params", "/b/rootfs/proc/driver/nvidia/params"]
    assert "ro" in hook["args"]
    assert hook["env"] == ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "GPUHOOK_HOOK=params"]
