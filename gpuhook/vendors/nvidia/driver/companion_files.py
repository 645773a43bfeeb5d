# SPDX-License-Identifier: Apache-2.0
"""The driver's files other than libraries: programs, GSP firmware, sockets and configuration."""

from __future__ import annotations

import os
import posixpath
import stat

from gpuhook.loader import elf
from gpuhook.vendors.nvidia.hot.extras.driver_root import DriverRoot
from gpuhook.vendors.nvidia.inventory.inventory import DriverFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpuhook.vendors.nvidia.driver.libcuda import Libcuda

BINARIES = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
    "nvidia-xconfig",
    "nv-fabricmanager",  # in libnvidia-container, not in the toolkit's CDI specs
)
_BINARY_DIRECTORIES = (
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
)
# NixOS has programs in a directory that is not in a container's PATH.
_NIXOS_BINARIES = "/run/current-system/sw/bin"
_PREFIX_FIRMWARE = "/firmware"
_SOCKETS = ("nvidia-persistenced/socket", "nvidia-fabricmanager/socket")
_CONFIG_DIRECTORIES = ("/etc", "/usr/local/share", "/usr/share", "/run/opengl-driver/share")
_NARROW_SHARE = "/run/opengl-driver-32/share"
_BELOW_ROOT = "vulkan/"
MPS_DIRECTORY = "/tmp/nvidia-mps"  # noqa: S108 # MPS clients use it; its owner is checked
# Directory in containers -> names below the directories that are searched.
_CONFIGS = {
    "/etc": (
        "OpenCL/vendors/nvidia.icd",
        "vulkan/icd.d/nvidia_icd.json",
        "vulkan/icd.d/nvidia_icd.x86_64.json",
        "vulkan/icd.d/nvidia_icd.aarch64.json",
        "vulkan/icd.d/nvidia_icd.i686.json",
        "vulkan/icd.d/nvidia_layers.json",
        "vulkan/implicit_layer.d/nvidia_layers.json",
    ),
    "/usr/share": (
        "X11/xorg.conf.d/10-nvidia.conf",
        "X11/xorg.conf.d/nvidia-drm-outputclass.conf",
        "egl/egl_external_platform.d/09_nvidia_wayland2.json",
        "egl/egl_external_platform.d/10_nvidia_wayland.json",
        "egl/egl_external_platform.d/15_nvidia_gbm.json",
        "egl/egl_external_platform.d/20_nvidia_xcb.json",
        "egl/egl_external_platform.d/20_nvidia_xlib.json",
        "glvnd/egl_vendor.d/10_nvidia.json",
        "nvidia/nvoptix.bin",
    ),
}


def companions(
    root: DriverRoot,
    located: Libcuda,
    *,
    config_search_paths: Sequence[str] = (),
    host_root: str = "/",
) -> list[DriverFile]:
    """Return the files below `root` of the driver with this libcuda that are not libraries.

    The kernel's extra firmware directory is read below `host_root`/sys.
    """
    return [
        *_binaries(root, located),
        *_firmware(root, located.version, host_root),
        *_sockets(root),
        *_mps(root, host_root),
        *_configs(root, config_search_paths),
    ]


def _binaries(root: DriverRoot, located: Libcuda) -> Iterable[DriverFile]:
    """Yield each program once: a binary rather than a script.

    A script calls a program that is not in containers: some hosts have one in /usr/bin that calls
    the program next to the directory of the driver's libraries.
    """
    own = posixpath.dirname(posixpath.dirname(located.path)).rstrip("/") + "/bin"
    for name in BINARIES:
        found = [
            (directory, root.host(real))
            for directory in dict.fromkeys((*_BINARY_DIRECTORIES, _NIXOS_BINARIES, own))
            if (real := root.real(f"{directory}/{name}"))
            and _is(root, real, stat.S_ISREG)
            and os.access(root.host(real), os.X_OK)
        ]
        if found:
            directory, path = next((one for one in found if _is_elf(one[1])), found[0])
            in_path = directory if directory in _BINARY_DIRECTORIES else "/usr/bin"
            yield DriverFile("binary", path, root.container(f"{in_path}/{name}"))


def _is_elf(path: str) -> bool:
    try:
        return elf.read(path) is not None
    except OSError:
        return False


def _firmware(root: DriverRoot, version: str, host_root: str) -> Iterable[DriverFile]:
    release = os.uname().release
    directories = [
        _firmware_parameter(host_root),
        "/lib/firmware/updates/" + release,
        "/lib/firmware/updates",
        "/lib/firmware/" + release,
        "/lib/firmware",
        _PREFIX_FIRMWARE if root.is_prefix else "",
    ]
    seen = set()
    for directory in filter(None, directories):
        below = f"{directory.rstrip('/')}/nvidia/{version}"
        for name in root.names(below):
            real = root.real(f"{below}/{name}")
            fits = name.startswith("gsp") and name.endswith(".bin")
            if fits and real and real not in seen and _is(root, real, stat.S_ISREG):
                seen.add(real)
                # No program in a container reads GKE's own directory.
                place = ("/lib" if directory == _PREFIX_FIRMWARE else "") + f"{below}/{name}"
                yield DriverFile("firmware", root.host(real), place)


def _firmware_parameter(host_root: str) -> str:
    """Return the kernel's extra firmware directory, "" when none is set."""
    try:
        with open(host_root.rstrip("/") + "/sys/module/firmware_class/parameters/path") as file:
            path = file.read(4096).strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return path if path.startswith("/") else ""


def _sockets(root: DriverRoot) -> Iterable[DriverFile]:
    for name in _SOCKETS:
        for directory in ("/run", "/var/run"):
            real = root.real(f"{directory}/{name}")
            if real and _is(root, real, stat.S_ISSOCK):
                yield DriverFile("socket", root.host(real), f"{directory}/{name}")
                break


def _mps(root: DriverRoot, host_root: str) -> Iterable[DriverFile]:
    """Yield the directory of an MPS daemon's pipes, which clients open by its usual name.

    Its control pipe identifies it. Every user may make a directory in /tmp: only one of root, or of
    the current user, is accepted. The shared memory that clients need as well is the host's whole
    /dev/shm, which a container has with the host's IPC namespace (--ipc host).
    """
    directory = os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or MPS_DIRECTORY
    for where in dict.fromkeys((root.path, os.path.abspath(host_root))):
        tree = DriverRoot(where)
        real = tree.directory(tree.inside(directory))
        if real is None or not _is(tree, f"{real}/control", stat.S_ISFIFO):
            continue
        if os.lstat(tree.host(real)).st_uid in (0, os.geteuid()):
            yield DriverFile("pipes", tree.host(real), MPS_DIRECTORY)
            break


def _configs(root: DriverRoot, search_paths: Sequence[str]) -> Iterable[DriverFile]:
    directories = [root.inside(path) for path in search_paths] or _config_directories()
    for place, names in _CONFIGS.items():
        for name in names:
            below = ["/"] if root.is_prefix or name.startswith(_BELOW_ROOT) else []
            paths = (posixpath.join(directory, name) for directory in directories + below)
            real = next(
                (r for r in map(root.real, paths) if r and _is(root, r, stat.S_ISREG)), None
            )
            if real:
                yield DriverFile("config", root.host(real), f"{place}/{name}")


def _config_directories() -> list[str]:
    """Return the directories of configuration files: /etc, then XDG's data directories.

    Source: XDG Base Directory Specification, XDG_DATA_DIRS. GKE has vulkan/icd.d next to lib64.
    """
    more = [path for path in os.environ.get("XDG_DATA_DIRS", "").split(":") if path[:1] == "/"]
    first, *rest = _CONFIG_DIRECTORIES
    return list(dict.fromkeys((first, *more, *rest, _NARROW_SHARE)))


def _is(root: DriverRoot, real: str, kind: Callable[[int], bool]) -> bool:
    """Return whether the file `real` is of the kind that a function of stat tests."""
    try:
        return kind(os.lstat(root.host(real)).st_mode)
    except OSError:
        return False
