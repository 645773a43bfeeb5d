# SPDX-License-Identifier: Apache-2.0
"""The jobs of our hook for a container that already exists.

In a config.json they are a hook; here they become mounts and a provision, so that they are planned,
done and undone like everything else.
"""

from __future__ import annotations

import os

from gpuhook.apply.live.hotplug_plan import DesiredState
from gpuhook.apply.live.live_files import FileChange
from gpuhook.apply.rootfs.provision import Provision
from gpuhook.apply.rootfs.safe_walk import CrossingError
from gpuhook.errors import GpuhookError
from gpuhook.loader import ld_so_conf, loader_paths
from gpuhook.vendors.hot import rootfs_plan
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.hot.rootfs import driver_params, egl_profile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpuhook.apply.live.live_injection import InjectedItems
    from gpuhook.apply.live.live_root import LiveRoot
    from gpuhook.apply.rootfs.hook_args import Jobs
    from gpuhook.apply.rootfs.loader_files import Index
    from gpuhook.cdi.hot.container_edits import ContainerEdits, Mount

_MAX_PROFILE = 4096
_MASK_OPTIONS = ["ro", "nosuid", "nodev", "noexec", "bind"]


def desired_state(
    root: LiveRoot, edits: ContainerEdits, todo: list[Jobs], *, is_running: bool
) -> tuple[DesiredState, list[str]]:
    """Return the desired state of the container, and why CUDA compatibility is skipped.

    A container that `is_running` may have got other libraries at its start.
    """
    whole = edits.copy()
    # The entry `void` is for hooks; a running process must not get it.
    whole["env"] = [entry for entry in edits.get("env") or () if not _is_for_a_start(entry)]
    made, reasons = rootfs_plan.rootfs_plan(root, todo)
    ldconfig = next((job.ldconfig for job in todo if job.ldconfig), "")
    # If a running container has the entries already, ldconfig has made its cache.
    if ldconfig and not (is_running and _is_recorded(root, made.entries())):
        made.index = _index(root, ldconfig)
    if is_running and made.libraries:
        made.entries_now = _with_others(root, made.entries())
    for job in todo:
        mounts = whole.get("mounts") or []
        masks = [mask for mask in _masks(root, job) if mask not in mounts]
        if masks:
            whole["mounts"] = [*mounts, *masks]
    return DesiredState(whole, [made] if todo else []), reasons


def _index(root: LiveRoot, ldconfig: str) -> Index:
    known: dict[tuple[tuple[bytes, ...], ...], bytes] = {}

    def index(first: list[bytes], last: list[bytes]) -> bytes:
        key = tuple(first), tuple(last)
        if key not in known:
            known[key] = root.loader_cache(ldconfig, first, last)
        return known[key]

    return index


def _is_recorded(root: LiveRoot, own: list[tuple[bytes, bytes]]) -> bool:
    try:
        return set(_plain(own)).issubset(_plain(_recorded(root)))
    except OSError:
        return False


def _recorded(root: LiveRoot) -> list[tuple[bytes, bytes]]:
    return ld_so_conf.recorded(root.read(loader_paths.FIRST, ld_so_conf.MAX_BYTES) or b"")


def _with_others(root: LiveRoot, own: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the loader's entries of a running container: `own`, and those that it has already.

    Recorded entries keep their order: nothing changes if all of `own` are among them.
    """
    try:
        recorded = _recorded(root)
        ours = _plain(own)
        kept = [
            entry
            for entry, plain in zip(recorded, _plain(recorded))
            if plain in ours or _is_whole(root, entry[1])
        ]
    except OSError:
        return own  # the provision fails for the same reason and reports it
    known = _plain(kept)
    return [*(entry for entry, plain in zip(own, ours) if plain not in known), *kept]


def _plain(entries: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return entries whose paths compare equal for /lib and /usr/lib: an image may merge them."""
    return [(name, path[4:] if path.startswith(b"/usr/") else path) for name, path in entries]


def _is_whole(root: LiveRoot, path: bytes) -> bool:
    """Return whether a library exists, and is not just the empty file of a removed mount."""
    name = os.fsdecode(path)
    found = root.status(name)
    return found is not None and (found.st_size > 0 or root.is_mounted(name))


def add_profile(
    desired: DesiredState, root: LiveRoot, todo: Iterable[Jobs], gone: Collection[str] = ()
) -> None:
    """Add the application profile for the wanted and the existing nodes, if EGL reads it."""
    if any(rootfs_plan.needs_profile_of(job) for job in todo):
        renew_profile(desired, root, gone)


def renew_profile(desired: DesiredState, root: LiveRoot, gone: Collection[str]) -> None:
    """Add the application profile for the wanted and existing nodes, without the nodes `gone`."""
    nodes = [node["path"] for node in desired.edits.get("deviceNodes") or ()]
    change = profile_for(root, nodes, gone)
    provided = Provision([], [], [])
    provided.files.append((change.path, change.data or b""))
    desired.provisions.append(provided)


def paths() -> list[str]:
    """Return the files in a container that jobs read or change: the loader's, and the profile."""
    return [*loader_paths.paths(), egl_profile.PATH]


def has_profile(made: InjectedItems) -> bool:
    """Return whether the application profile is among the injected files."""
    return any(path == egl_profile.PATH for path, *_ in made.changes)


def shows_profile(root: LiveRoot) -> bool:
    """Return whether the container has an application profile of gpuhook."""
    try:
        return egl_profile.is_ours(root.read(egl_profile.PATH, _MAX_PROFILE))
    except (OSError, GpuhookError):
        return False


def profile_for(root: LiveRoot, nodes: Iterable[str], gone: Collection[str]) -> FileChange:
    """Return the application profile for `nodes` and the existing nodes, without `gone`."""
    existing = [path for path in _existing_nodes(root) if path not in gone]
    return FileChange(egl_profile.PATH, data=egl_profile.content([*nodes, *existing]))


def _existing_nodes(root: LiveRoot) -> list[str]:
    """Return the paths in the container's /dev, [] if that is another file system's."""
    try:
        return [f"/dev/{name}" for name in root.names("/dev")]
    except CrossingError:
        return []


def _masks(root: LiveRoot, job: Jobs) -> list[Mount]:
    """Return the mount that hides ModifyDeviceFiles: 1, if host and container need it."""
    content = driver_params.masked(job.host_root) if job.driver_params else None
    if content is None or root.status(driver_params.PATH) is None:
        return []
    source = driver_params.masked_file(content)
    return [{"hostPath": source, "containerPath": driver_params.PATH, "options": _MASK_OPTIONS}]


def _is_for_a_start(entry: str) -> bool:
    name = entry.partition("=")[0]
    return entry.endswith("=void") or name == vocabulary.LIBCUDA_DIRECTORY_ENV
