# SPDX-License-Identifier: Apache-2.0
"""The driver's shared libraries and plugins below a root, and their links.

A container gets a library at its path on the host (including Debian's
/usr/lib/x86_64-linux-gnu/nvidia/current) with every image: the container's loader cache and
ld.so.conf.d name its directory. That works with every layout of an image, while a directory that is
built into one image's loader is unknown to the next. Plugins are found by path only, so they keep
their directory, and get a link at the path that their callers use.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field

from gpuhook.loader import elf, library_directory
from gpuhook.vendors.nvidia.inventory.inventory import VDPAU_PLUGIN, DriverFile, Link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.driver.libcuda import Libcuda
    from gpuhook.vendors.nvidia.hot.extras.driver_root import DriverRoot

# Libraries of the driver with another version number.
_OWN_VERSION = re.compile(
    r"(libnvidia-(?:nvvm70|egl-gbm|egl-wayland2?|egl-xcb|egl-xlib))\.so\.([0-9]+(?:\.[0-9]+)*)$"
)
_BELOW_SYSTEM = re.compile(r"(.*/lib(?:64)?(?:/[^/]+-linux-gnu)?)/nvidia/[^/]+$")
_XORG_SERVER = "libglxserver_nvidia.so."
_XORG_PLACES = (
    "nvidia/xorg",
    "xorg/modules/drivers",
    "xorg/modules/extensions",
    "xorg/modules/updates/drivers",
    "xorg/modules/updates/extensions",
)
_XORG_DIRECTORIES = (
    "/usr/lib/nvidia",  # Debian's alternatives
    "/usr/lib/xorg/modules/drivers",
    "/usr/lib/xorg/modules/extensions",
    "/usr/lib/xorg/modules/updates/drivers",
    "/usr/lib/xorg/modules/updates/extensions",
    "/usr/lib64/xorg/modules/drivers",
    "/usr/lib64/xorg/modules/extensions",
    "/usr/X11R6/lib/modules/drivers",
    "/usr/X11R6/lib/modules/extensions",
    "/usr/X11R6/lib64/modules/drivers",
    "/usr/X11R6/lib64/modules/extensions",
)
# Libraries of no driver version. Most images for graphics have their own, so containers get them
# only on request (feature flag enable-explicit-driver-libraries). The list is the toolkit's.
_EXPLICIT = (
    "libEGL",
    "libGL",
    "libGLESv1_CM",
    "libGLESv2",
    "libGLX",
    "libGLdispatch",
    "libOpenCL",
    "libOpenGL",
    "libnvidia-api",
    "libnvidia-egl-xcb",
    "libnvidia-egl-xlib",
)


@dataclass
class Libraries:
    """The libraries found; `links` leave out the SONAME links, which follow from the files."""

    files: list[DriverFile] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)  # in the container, for the loader
    warnings: list[str] = field(default_factory=list)


def libraries(root: DriverRoot, libcuda: Libcuda) -> Libraries:
    """Return the libraries and plugins of the driver of `libcuda`, of its width.

    A dangling link, and a file that is unreadable or not a library, becomes a warning. There is no
    X.Org server of 32 bits that could load a driver.
    """
    found = Libraries()
    seen: set[str] = set()
    for directory in libcuda.directories:
        for name in _names(root, directory, libcuda.version):
            key = _stem(name)
            if key not in seen and _take(found, root, libcuda, posixpath.join(directory, name)):
                seen.add(key)
    for directory in libcuda.directories:
        for name in root.names(posixpath.join(directory, "vdpau")):
            if name == VDPAU_PLUGIN + libcuda.version and _stem(name) not in seen:
                _take(found, root, libcuda, posixpath.join(directory, "vdpau", name))
    if libcuda.bits == 64:
        _take_xorg(found, root, libcuda)
    _link_always(found, libcuda.version)
    return found


def soname_of(path: str) -> str | None:
    """Return the SONAME of a 64-bit library, None for a file that is not one, or not readable."""
    try:
        found = elf.read(path)
    except OSError:
        return None
    return found.soname if found is not None and found.bits == 64 else None


def _names(root: DriverRoot, directory: str, version: str) -> list[str]:
    """Return the driver's file names in `directory`, the newest of each stem."""
    own: dict[str, tuple[list[int], str]] = {}
    names = []
    for name in root.names(directory):
        match = _OWN_VERSION.match(name)
        if match:
            parts = [int(part[:9]) for part in match.group(2).split(".")]
            # The directory has links of fewer parts, too: the SONAME's.
            own[match.group(1)] = max(own.get(match.group(1), ([], "")), (parts, name))
        elif name.startswith("lib") and name.endswith(".so." + version):
            names.append(name)
    return names + [name for _, name in own.values()]


def _stem(name: str) -> str:
    return name.partition(".so")[0]


def _take(found: Libraries, root: DriverRoot, libcuda: Libcuda, path: str) -> bool:
    """Add the library `path` (inside the root) with its links; return whether it is one."""
    name = path.rpartition("/")[2]
    plugin = name.startswith((VDPAU_PLUGIN, _XORG_SERVER)) or name == "nvidia_drv.so"
    real = root.real(path)
    try:
        binary = elf.read(root.host(real)) if real else None
    except OSError as error:
        found.warnings.append(f"{root.host(path)} cannot be read: {error.strerror}; skipped")
        return False
    if binary is None or real is None:
        reason = "is a dangling link" if real is None else "is not a shared library"
        found.warnings.append(f"{root.host(path)} {reason}; skipped")
        return False
    if binary.bits != libcuda.bits or binary.machine != libcuda.machine:
        return False
    place = _place(root, libcuda, path)
    plugin = plugin and place == root.container(path)
    kind = "plugin" if plugin else "library"
    file = DriverFile(kind, root.host(real), place, binary.soname)
    found.files.append(file)
    directory = posixpath.dirname(place)
    if not plugin and directory not in found.directories:
        found.directories.append(directory)
    if not plugin:
        _link_development(found, root, path, file)
    return True


def _place(root: DriverRoot, libcuda: Libcuda, path: str) -> str:
    """Return the path of a library in containers: its directory must show its width.

    A plugin that moves for that reason is found by the loader, which its callers try last.
    """
    place = root.container(path)
    if libcuda.bits == 64 or library_directory.is_narrow(place):
        return place
    return f"{library_directory.DIRECTORY}/{posixpath.basename(path)}"


def _link_development(found: Libraries, root: DriverRoot, path: str, file: DriverFile) -> None:
    """Add libX.so -> its SONAME if the host has that link."""
    short = _stem(path) + ".so"
    if root.host(root.real(short) or "") == file.host_path and short != path:
        target = file.soname or posixpath.basename(file.container_path)
        directory = posixpath.dirname(file.container_path)
        found.links.append(Link(f"{directory}/{posixpath.basename(short)}", target))


def _take_xorg(found: Libraries, root: DriverRoot, libcuda: Libcuda) -> None:
    """Add the X.Org driver and its GLX module, each from the first directory that has it."""
    homes = [_system_directory(d) for d in libcuda.directories]
    places = [f"{home}/{place}" for home in dict.fromkeys(homes) for place in _XORG_PLACES]
    for name in ("nvidia_drv.so", _XORG_SERVER + libcuda.version):
        for directory in (*places, *_XORG_DIRECTORIES, "/usr/lib/nvidia/current"):
            path = posixpath.join(directory, name)
            if root.real(path) and _take(found, root, libcuda, path):
                break


def _system_directory(directory: str) -> str:
    """Return the library directory that callers use: Debian's without nvidia/current."""
    below = _BELOW_SYSTEM.match(directory)
    return below.group(1) if below else directory


def _link_always(found: Libraries, version: str) -> None:
    """Add the links that programs expect, although no file of the driver has these names."""
    by_name = {posixpath.basename(file.container_path): file for file in found.files}

    def link(file_name: str, name: str, target: str) -> None:
        if file_name in by_name:
            directory = posixpath.dirname(by_name[file_name].container_path)
            _add(found, posixpath.join(directory, name), target)

    versioned = {name: f"{name}.{version}" for name in ("libcuda.so", "libGLX_nvidia.so")}
    link(versioned["libcuda.so"], "libcuda.so", "libcuda.so.1")
    link(versioned["libGLX_nvidia.so"], "libGLX_indirect.so.0", versioned["libGLX_nvidia.so"])
    flow = "libnvidia-opticalflow.so"
    link(f"{flow}.{version}", flow, flow + ".1")
    for name in ("libnvidia-vulkan-producer.so", _XORG_SERVER.rstrip(".")):
        link(f"{name}.{version}", name, f"{name}.{version}")
    _link_plugin(
        found, by_name.get("libnvidia-allocator.so." + version), "gbm/nvidia-drm_gbm.so", 1
    )
    _link_plugin(found, by_name.get(VDPAU_PLUGIN + version), "vdpau/" + VDPAU_PLUGIN + "1", None)


def _link_plugin(found: Libraries, file: DriverFile | None, place: str, number: int | None) -> None:
    """Add the link `place`, below the directory that callers use, to `file`.

    With `number` the link leads to the file's SONAME link, as with the driver's installer.
    """
    if file is None:
        return
    directory, _, name = file.container_path.rpartition("/")
    if number is not None:
        name = f"{_stem(name)}.so.{number}"
    home = _system_directory(directory)
    if home.endswith("/vdpau"):
        home = posixpath.dirname(home)
    link = f"{home}/{place}"
    _add(found, link, posixpath.relpath(f"{directory}/{name}", posixpath.dirname(link)))


def _add(found: Libraries, path: str, target: str) -> None:
    if all(link.path != path for link in found.links):
        found.links.append(Link(path, target))


def add_explicit(found: Libraries, root: DriverRoot, libcuda: Libcuda) -> None:
    """Add each explicit library from the first of the driver's library directories that has it."""
    present = {_stem(posixpath.basename(file.container_path)) for file in found.files}
    for stem in _EXPLICIT:
        if stem not in present:
            _add_by_stem(found, root, libcuda, stem)


def _add_by_stem(found: Libraries, root: DriverRoot, libcuda: Libcuda, stem: str) -> None:
    for directory in libcuda.directories:
        names = [name for name in root.names(directory) if f"{name}.".startswith(f"{stem}.so.")]
        # Links are followed, so that the container gets the file under its own name.
        for real in dict.fromkeys(root.real(f"{directory}/{name}") for name in names):
            if real and _take(found, root, libcuda, real):
                return
