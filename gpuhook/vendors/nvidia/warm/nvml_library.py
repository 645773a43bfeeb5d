# SPDX-License-Identifier: Apache-2.0
"""The path of a driver's libnvidia-ml.so.1, found without the host's dynamic loader.

A driver root is a separate file system (a driver container, GKE's directory): its links are
followed inside it, so that an absolute link never leads to a library of the host.
"""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError, fault
from gpuhook.vendors.nvidia.hot.extras.driver_root import DriverRoot

SONAME = "libnvidia-ml.so.1"

# The directories of drivers, as seen from their root. The bare "/" and /lib64 are those of
# a driver root that is not a whole file system (GKE, a copied tree).
DIRECTORIES = (
    "/",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu/nvidia/current",
    "/lib/aarch64-linux-gnu/nvidia/current",
    "/usr/lib",
)
_CACHE = "/etc/ld.so.cache"
_CACHE_LIMIT = 16 * 1024 * 1024


def find(
    driver_root: str, *, library: str | None = None, search_paths: tuple[str, ...] = ()
) -> str:
    """Return the host path of libnvidia-ml.so.1 below `driver_root`, links resolved.

    `library` (a host path) takes precedence; then `search_paths` and DIRECTORIES below the root are
    searched, then the root's ld.so.cache. Raises GH1200 or GH1201.
    """
    if library is not None:
        named = os.path.realpath(library)
        if not os.path.isfile(named):
            raise fault("GH1201", path=library)
        return named
    directories = (*search_paths, *DIRECTORIES)
    root = DriverRoot(os.path.abspath(driver_root))
    found = _first(root, [os.path.join(directory, SONAME) for directory in directories])
    found = found or _first(root, _from_cache(root))
    if found is not None:
        return found
    raise fault("GH1200", root=driver_root, looked=", ".join((*directories, _CACHE)))


def _first(root: DriverRoot, candidates: list[str]) -> str | None:
    for candidate in candidates:
        real = root.real(candidate)
        if real is not None and os.path.isfile(root.host(real)):
            return root.host(real)
    return None


def version_of(path: str) -> str | None:
    """Return the driver version in the file name of `path`, "580.95.05", or None."""
    version = os.path.basename(path).partition(".so.")[2]
    parts = version.split(".")
    return version if len(parts) > 1 and all(part.isdigit() for part in parts) else None


def _from_cache(root: DriverRoot) -> list[str]:
    """Return the paths of SONAME in the root's ld.so.cache, which may have unusual directories."""
    real = root.real(_CACHE)
    if real is None:
        return []
    from gpuhook.loader import ld_cache, ld_cache_entries

    try:
        with open(root.host(real), "rb") as stream:
            data = stream.read(_CACHE_LIMIT)
        entries = ld_cache_entries.parse(data)
        flags = ld_cache.flags_for(os.uname().machine)  # not the 32-bit library of the same name
    except (OSError, GpuhookError):
        return []  # the fault that follows names the cache as searched
    soname = os.fsencode(SONAME)
    return [
        os.fsdecode(entry.path)
        for entry in entries
        if entry.soname == soname and entry.flags == flags
    ]
