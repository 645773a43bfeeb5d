# SPDX-License-Identifier: Apache-2.0
"""`gpuhook-hook toolkit`: the createContainer hooks that NVIDIA's CDI specs name.

A spec of NVIDIA's toolkit has a hook for each task, and each is a process. Here they work as
gpuhook's own hook does: the loader's cache is merged, not made by an ldconfig; a second start
changes nothing; a read-only root file system does not stop the container.
"""

from __future__ import annotations

import os

from gpuhook.apply.rootfs.rootfs_files import Provision
from gpuhook.entry.hooks import apply_hook, oci_state
from gpuhook.entry.hooks.hook_root import HookRoot
from gpuhook.errors import fault
from gpuhook.host.hot import fastjson
from gpuhook.loader import elf, library_directory
from gpuhook.vendors.nvidia.hot.rootfs import egl_profile, hook_args, rootfs_jobs
from gpuhook.vendors.nvidia.hot.rootfs.hook_args import Jobs
from gpuhook.vendors.nvidia.warm import hook_names, toolkit_hooks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from gpuhook.host.hot.engine_log import EngineLog
    from gpuhook.vendors.nvidia.warm.toolkit_hooks import Call

_MAX_LIBRARIES = 4096


def run(words: list[str], log: EngineLog) -> None:
    """Do the work of one of NVIDIA's hooks for the container whose state is on standard input.

    An unknown hook is ignored with a warning, as NVIDIA's program does: it belongs to a newer
    toolkit, and most of a driver works without it. Raises GH2140 and as `apply` does.
    """
    call = toolkit_hooks.call(words)
    if not call.is_known:
        log.warning(fault("GH2141", hook=call.name or "without a name"))
        return
    _take_state(call)
    state = oci_state.read()
    log.container = state.id
    with HookRoot(state) as root:
        _do(call, root, state.spec, log)
    oci_state.keep_warnings(state, log)


def _take_state(call: Call) -> None:
    """Put the state on standard input, if an option names its file."""
    path = call.last(toolkit_hooks.STATE_FILE)
    if path and path != "-":
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(fd, 0)
        os.close(fd)


def _do(call: Call, root: HookRoot, spec: dict[str, Any], log: EngineLog) -> None:
    job = toolkit_hooks.jobs_of(call)
    if call.name == hook_names.LINKS:
        apply_hook.file_system(root, job, spec, log)
    elif call.name == hook_names.LOADER:
        apply_hook.file_system(root, loader(root, spec, call.all("--folder")), spec, log)
    elif call.name == hook_names.PROFILE:
        made = Provision([], [], [])
        made.files.append((egl_profile.PATH, egl_profile.content(rootfs_jobs.nodes(spec))))
        apply_hook.provided(root, made, [], log)
    elif call.name == hook_names.PARAMS:
        apply_hook.mask_params(root, job, log)
    for mode, path in job.chmod:
        apply_hook.chmod(root, mode, path, log)


def loader(root: HookRoot, spec: dict[str, Any], folders: Sequence[str] = ()) -> Jobs:
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


def _mounted(root: HookRoot, spec: dict[str, Any], folders: list[str]) -> list[tuple[str, str]]:
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


def _libraries(root: HookRoot, folder: str) -> list[str]:
    """Return the paths of the libraries in a directory that is mounted as a whole."""
    names = root.directory_names(folder)
    return [f"{folder}/{name}" for name in names if library_directory.is_library(name)]


def _soname(root: HookRoot, path: str) -> str:
    """Return the name by which the loader opens a mounted library, "" for another file."""
    fd = root.lookup(path)
    if fd is None:
        return ""
    try:
        library = elf.read(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
    return (library.soname or path.rpartition("/")[2]) if library is not None else ""
