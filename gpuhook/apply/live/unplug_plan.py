# SPDX-License-Identifier: Apache-2.0
"""The plan that removes injected items from a running container: the reverse of hotplug_plan.py.

Items that were made for the container are removed; items of its config.json are denied and hidden,
and return when the container is started again.
"""

from __future__ import annotations

import os
import stat

from gpuhook.apply.live import live_files
from gpuhook.apply.live.bind_mounts import Bind
from gpuhook.apply.live.hotplug_plan import HotplugPlan
from gpuhook.apply.live.live_files import FileChange, current
from gpuhook.apply.live.unplug_steps import PutBack, RemoveEmpty, RemoveNode, Unmount
from gpuhook.errors import GpuhookError
from gpuhook.loader import ld_cache, ld_cache_entries, library_directory
from gpuhook.loader.loader_paths import CACHE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.apply.live.hotplug_steps import Live
    from gpuhook.apply.live.live_injection import InjectedItems
    from gpuhook.apply.rootfs.provision import Provision


def plan_nodes(
    live: Live, made: InjectedItems, taken: list[tuple[str, int]], binds: dict[str, Bind]
) -> HotplugPlan:
    """Return the plan that removes device nodes, (path, device number) each.

    `binds` are the mounts that may have to be made again, by their targets. A node that the runtime
    bound remains visible, and cannot be opened.
    """
    plan = HotplugPlan()
    mounted = {path: (device, inode) for path, device, inode in made.mounts}
    for path, number in taken:
        found = live.root.status(path, follow=False)
        if found is None:
            continue
        if path in mounted:
            _unmount(live, plan, [binds[path]] if path in binds else [], mounted)
            if path in made.files:
                plan.operations.append(RemoveEmpty([path]))
        elif live.root.is_mounted(path):
            plan.skipped.append(f"{path} remains visible: the runtime mounted it")
        elif not _is_removable(live, path):
            plan.skipped.append(f"{path} remains visible: its directory is not the container's own")
        elif found.st_rdev != number or not stat.S_ISCHR(found.st_mode):
            plan.skipped.append(f"{path} is kept: it is now a different device")
        else:
            plan.operations.append(RemoveNode(path, found))
    return plan


def _is_removable(live: Live, path: str) -> bool:
    try:
        live.root.writer(path)
    except OSError:
        return False
    return True


def plan_other_items(
    live: Live, made: InjectedItems, binds: dict[str, Bind], provisions: list[Provision]
) -> HotplugPlan:
    """Return the plan that removes all other items: mounts, links, loader files."""
    plan = HotplugPlan()
    mounted = {path: (device, inode) for path, device, inode in made.mounts}
    _unmount(live, plan, [binds[path] for path in mounted if path in binds], mounted)
    with live.as_root():
        changes = _changes(live, made, provisions, plan.skipped)
    if made.changes:
        plan.operations.append(PutBack(changes, [path for path, *_ in made.changes]))
    empty = [*made.files, *reversed(made.directories)]
    if empty:
        plan.operations.append(RemoveEmpty(empty))
    return plan


def _unmount(
    live: Live, plan: HotplugPlan, binds: list[Bind], mounted: dict[str, tuple[int, int]]
) -> None:
    """Plan to unmount the mounts that show their source, wherever they are by now."""
    ours: list[Bind] = []
    shown: dict[str, tuple[int, int]] = {}
    for bind in binds:
        what = mounted[bind.target]
        place = _place(live, bind.target, what)
        if place is None:
            plan.skipped.append(f"{bind.target}: it is no longer mounted there")
            continue
        here = Bind(bind.source, place, bind.attributes, is_directory=bind.is_directory)
        here.is_mapped = bind.is_mapped
        ours.append(here)
        shown[place] = what
    if ours:
        plan.operations.append(Unmount(ours, shown))


def _place(live: Live, target: str, what: tuple[int, int]) -> str | None:
    """Return where a file (device, inode) is mounted: a container can rename its directories."""
    if live.root.is_mounted(target) and _shows(live, target, what):
        return target
    device = f"{os.major(what[0])}:{os.minor(what[0])}"
    for mount in live.root.mounts():
        if mount.device == device and _shows(live, mount.target, what):
            return mount.target
    return None


def _shows(live: Live, path: str, what: tuple[int, int]) -> bool:
    found = live.root.status(path)
    return found is not None and (found.st_dev, found.st_ino) == what


def _changes(
    live: Live, made: InjectedItems, provisions: list[Provision], skipped: list[str]
) -> list[FileChange]:
    """Return the earlier links and files; one that was changed since is left alone.

    Except for the loader's cache: gpuhook's libraries are removed from it in any case.
    """
    changes: list[FileChange] = []
    for path, summary, note in made.changes:
        now, before = current(live.root, path), live_files.old_content(path, note)
        if not now.is_something:
            continue
        is_ours = now.summary() == summary
        if is_ours and before is not None:
            changes.append(before)
        elif path == CACHE and now.data is not None:
            ours = [entry for provision in provisions for entry in provision.entries()]
            ours += _entries_of_links(made)
            changes += _without(ours, now.data, was_there=bool(note))
        elif is_ours:
            is_link = summary[0] == "link"
            left = "" if is_link else "is left as it is: "
            skipped.append(f"{path}: {left}the image's own file was too large to keep")
            changes += [FileChange(path)] if is_link else []
    return changes


def _entries_of_links(made: InjectedItems) -> list[tuple[bytes, bytes]]:
    """Return the entries that an ldconfig in the container makes of the links: name and path."""
    paths = [os.fsencode(path) for path, summary, _ in made.changes if summary[:1] == ["link"]]
    return [(path.rpartition(b"/")[2], path) for path in paths]


def _without(ours: list[tuple[bytes, bytes]], data: bytes, *, was_there: bool) -> list[FileChange]:
    """Return the loader's cache without the entries `ours`; nothing if no others are left."""
    try:
        held = [(entry.soname, entry.path) for entry in ld_cache_entries.parse(data)]
        # Where an image merges /lib with /usr/lib, its ldconfig may name the one for the other.
        ours = [*ours, *((name, library_directory.other_spelling(path)) for name, path in ours)]
        if not set(held).intersection(ours):
            return []
        flags = ld_cache.flags_for(os.uname().machine)
        left: bytes | None = ld_cache.merged(data, [], ours, flags=flags)
    except GpuhookError:
        return []
    if not was_there and left is not None and not ld_cache_entries.parse(left):
        left = None
    return [FileChange(CACHE, data=left)]
