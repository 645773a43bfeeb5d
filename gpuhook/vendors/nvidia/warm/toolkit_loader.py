# SPDX-License-Identifier: Apache-2.0
"""The loader's cache in a container whose CDI spec is NVIDIA's, with a hook for each task."""

from __future__ import annotations

import os

from gpuhook.apply.rootfs import hook_args
from gpuhook.apply.rootfs.hook_args import Jobs
from gpuhook.host.hot import fastjson
from gpuhook.loader import elf, library_directory
from gpuhook.vendors.nvidia.warm import hook_names, toolkit_hooks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from gpuhook.apply.rootfs.root_directory import Root

_MAX_LIBRARIES = 4096


def loader_jobs(root: Root, spec: dict[str, Any], folders: Sequence[str] = ()) -> Jobs:
    """Return the job of the loader's cache: the libraries that are mounted into directories.

    These are `folders` and those of all such hooks of the container: in any order of the hooks, the
    cache is the same. Another hook names the libraries of the image that come before them; it has
    no other effect than on the cache.
    """
    made = Jobs("")
    every = list(folders)
    links: list[tuple[str, str]] = []
    for call in toolkit_hooks.calls_in(spec):
        if call.name == hook_names.CUDA_COMPAT:
            made = toolkit_hooks.jobs_of(call)
        elif call.name == hook_names.LINKS:
            links += toolkit_hooks.jobs_of(call).links
        elif call.name == hook_names.LOADER:
            every += call.all("--folder")
    made.links = links  # libcuda.so has an entry as well
    made.libraries = _mounted(root, spec, every)
    made.skipped = [hook_args.PROFILE]  # it has its own hook
    return made


def _mounted(root: Root, spec: dict[str, Any], folders: list[str]) -> list[tuple[str, str]]:
    """Return (container path, SONAME) of the libraries that are mounted into these directories."""
    real = {folder: root.real(folder) for folder in folders}
    places = set(real.values())
    paths: list[str] = []
    for mount in fastjson.objects(spec, "mounts"):
        destination = mount.get("destination")
        if not isinstance(destination, str):
            continue
        parent, _, name = destination.rpartition("/")
        if library_directory.is_library(name):
            if root.real(parent or "/") in places:
                paths.append(destination)
            continue
        below = root.real(destination).rstrip("/") + "/"
        for folder, place in real.items():
            if mount.get("type") != "proc" and (place + "/").startswith(below):
                paths += _libraries(root, folder)
    found = []
    for path in dict.fromkeys(paths[:_MAX_LIBRARIES]):
        soname = _soname(root, path)
        if soname:
            found.append((path, soname))
    return found


def _libraries(root: Root, folder: str) -> list[str]:
    """Return the paths of the libraries in a directory that is mounted as a whole."""
    names = root.directory_names(folder)
    return [f"{folder}/{name}" for name in names if library_directory.is_library(name)]


def _soname(root: Root, path: str) -> str:
    """Return the name by which the loader opens a mounted library, "" for another file."""
    fd = root.lookup(path)
    if fd is None:
        return ""
    try:
        library = elf.read(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
    return (library.soname or path.rpartition("/")[2]) if library is not None else ""
