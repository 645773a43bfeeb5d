# SPDX-License-Identifier: Apache-2.0
"""The driver's libraries for containers without a hook: bind mounts and one variable.

Without a hook there are no links and no loader cache, so each library is bound under every name by
which programs open it, in one directory, and LD_LIBRARY_PATH names that directory.

The directory is /usr/local/nvidia/lib64, and the value is the one in CUDA images
(`LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/nvidia/lib64`, which GKE's driver mounts rely on,
too). CDI can only replace a variable, not append to it, so these images lose nothing, and they find
the driver even if an engine lets the image's value win. An image that has its own libraries only in
LD_LIBRARY_PATH loses them: such an image needs the hook.
"""

from __future__ import annotations

from posixpath import basename, dirname, join, normpath

from gpuhook.host.hot.files import MAX_LINKS
from gpuhook.loader.library_directory import is_narrow
from gpuhook.vendors.nvidia.inventory.inventory import VDPAU_PLUGIN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import DriverFile, Link

DIRECTORY = "/usr/local/nvidia/lib64"
ENV = f"LD_LIBRARY_PATH=/usr/local/nvidia/lib:{DIRECTORY}"


def bindings(
    files: tuple[DriverFile, ...], links: tuple[Link, ...], directory: str = DIRECTORY
) -> tuple[list[tuple[str, str]], list[str]]:
    """Return ([(host path, container path), ...], links without an equivalent mount).

    Libraries are bound in `directory`, .../lib64, those of 32 bits in .../lib, and files that the
    loader does not open at their own paths; links become binds of the files they lead to. A library
    bound twice is one library to the loader: it compares inodes.
    """
    host = _by_container_path(files)
    directories = {dirname(file.container_path) for file in files if file.kind == "library"}
    targets = {link.path: normpath(join(dirname(link.path), link.target)) for link in links}
    found: dict[str, str] = {}
    lost = []
    for path in [*host, *targets]:
        end = _end(path, targets)
        if end not in host:
            lost.append(f"{path} -> {targets[path]}")
            continue
        # The 32-bit library has the same name; the loader skips one of another width.
        own = directory.removesuffix("64") if is_narrow(path) else directory
        place = join(own, basename(path)) if dirname(path) in directories else path
        found.setdefault(place, host[end])
        if basename(path).startswith(VDPAU_PLUGIN):  # libvdpau falls back to its name alone
            found.setdefault(join(own, basename(path)), host[end])
    return [(source, place) for place, source in found.items()], lost


def _by_container_path(files: tuple[DriverFile, ...]) -> dict[str, str]:
    """Return the host path of each file by its path, and of each library by its SONAME's path."""
    host = {file.container_path: file.host_path for file in files}
    for file in files:
        if file.kind == "library" and file.soname:
            host.setdefault(join(dirname(file.container_path), file.soname), file.host_path)
    return host


def _end(path: str, targets: dict[str, str]) -> str:
    for _ in range(MAX_LINKS):
        if path not in targets:
            break
        path = targets[path]
    return path
