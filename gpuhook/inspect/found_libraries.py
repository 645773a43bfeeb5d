# SPDX-License-Identifier: Apache-2.0
"""The driver's libraries of a running container, as its loader finds them."""

from __future__ import annotations

import os
from typing import Any

from gpuhook.errors import GpuhookError
from gpuhook.inspect.loader_view import LoaderView
from gpuhook.loader import ld_so_conf, loader_paths
from gpuhook.loader.library_directory import is_library
from gpuhook.loader.loader_paths import CACHE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.apply.live.hotplug_steps import Live


def loader_facts(live: Live, mounts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the driver's libraries as the loader finds them, of these mounts of driver files."""
    try:
        view = LoaderView(live)
        if view.trouble:
            return {"libraries": [], "trouble": view.trouble}
        return {"libraries": _libraries(live, view, mounts), "trouble": None}
    except GpuhookError as error:
        return {"libraries": [], "trouble": error.message}
    except OSError as error:
        return {"libraries": [], "trouble": f"{error.filename or CACHE}: {error.strerror}"}


def _libraries(live: Live, view: LoaderView, mounts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the driver's libraries, each by one of its names.

    First those that gpuhook recorded, then all names that lead to a mounted driver file, then the
    mounted libraries that no name leads to. The last do not include libraries that programs open by
    path, such as modules of the X server.
    """
    ours = ld_so_conf.recorded(live.root.read(loader_paths.FIRST, ld_so_conf.MAX_BYTES) or b"")
    recorded = [(os.fsdecode(soname), os.fsdecode(path)) for soname, path in ours]
    known = {(name, path) for name, _, path in view.names()}
    paths = [one["path"] for one in mounts if is_library(os.path.basename(one["path"]))]
    mounted = {file: path for path in paths if (file := _identity(live, path))}
    stems = {_stem(path) for path in paths}
    candidates = sorted(one for one in known if _stem(one[0]) in stems)
    files = {one: _identity(live, one[1]) for one in candidates[: ld_so_conf.MAX_LIBRARIES]}
    cached = [one for one, file in files.items() if file in mounted]
    reached = {files[one] for one in cached}
    unreached = [
        (os.path.basename(path), path)
        for file, path in mounted.items()
        if file not in reached and view.searches(os.path.dirname(path))
    ]
    return [
        {
            "name": name,
            "path": path,
            "cached": (name, path) in known,
            "found": live.root.status(path) is not None,
        }
        for name, path in dict.fromkeys([*recorded, *cached, *unreached])
    ]


def _identity(live: Live, path: str) -> tuple[int, int] | None:
    found = live.root.status(path)
    return None if found is None else (found.st_dev, found.st_ino)


def _stem(path: str) -> str:
    return os.path.basename(path).partition(".so")[0]
