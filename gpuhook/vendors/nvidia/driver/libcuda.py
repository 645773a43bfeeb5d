# SPDX-License-Identifier: Apache-2.0
"""The driver below a root: its libcuda.so.<version>, found by directory or loader cache."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import files
from gpuhook.loader import elf, ld_cache_entries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuhook.vendors.nvidia.hot.extras.driver_root import DriverRoot

_PLAIN = ("/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu")
_ROOTED = ("/lib64", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu")
# The order of NVIDIA's container toolkit, and last the flat /usr/lib of Arch, and NixOS.
DIRECTORIES = (
    "/",
    *_PLAIN,
    *(d + "/nvidia/current" for d in _PLAIN),
    *_ROOTED,
    *(d + "/nvidia/current" for d in _ROOTED),
    "/usr/lib",
    "/run/opengl-driver/lib",
)
# Directories of 32-bit libraries; /usr/lib has them if /usr/lib64 has the others.
_NARROW = (
    "/usr/lib/i386-linux-gnu",
    "/usr/lib/i386-linux-gnu/nvidia/current",
    "/usr/lib32",
    "/usr/lib32/nvidia/current",
    "/lib/i386-linux-gnu",
    "/lib32",
    "/usr/lib",
    "/lib",
    "/run/opengl-driver-32/lib",
)
_NARROW_MACHINES = {62: 3}  # EM_X86_64: EM_386
_VERSIONED = re.compile(r"\.so\.([0-9]+(?:\.[0-9]+){1,2})$")


@dataclass(frozen=True)
class Libcuda:
    """The libcuda of one driver. `path` and `directories` are inside the root, links followed."""

    path: str
    version: str
    machine: int  # e_machine
    directories: tuple[str, ...]  # of the driver's libraries, libcuda's own first
    bits: int = 64


def locate(root: DriverRoot, version: str | None, search_paths: Sequence[str] = ()) -> Libcuda:
    """Return the libcuda below `root`: of `version`, else the one that libcuda.so.1 points to.

    Faults: GH1230 there is none, GH1232 it has another version, GH1233 several without a
    libcuda.so.1, GH1234 it is broken, GH1231 libnvidia-ml has another version.
    """
    searched = [root.inside(_absolute(path)) for path in search_paths] + list(DIRECTORIES)
    directories = _existing(root, searched)
    found = _candidates(root, directories)
    if not found:
        # The libcuda.so.1 of the host's loader cache may be in any directory.
        from_cache = _existing(root, _cached(root))
        found = _candidates(root, from_cache)
        directories += [d for d in from_cache if d not in directories]
        searched.append("/etc/ld.so.cache")
    if not found:
        raise fault("GH1230", root=root.path, searched=", ".join(searched))
    chosen = version or _current(root, directories, found)
    if chosen not in found:
        raise fault(
            "GH1232",
            version=chosen,
            root=root.path,
            have=" and ".join(found),
            searched=", ".join(directories),
        )
    path = found[chosen]
    machine = _machine(root, path)
    home = path.rpartition("/")[0] or "/"
    ordered = (home, *(d for d in directories if d != home))
    _check_ml(root, ordered, chosen)
    return Libcuda(path, chosen, machine, ordered)


def narrow(root: DriverRoot, wide: Libcuda) -> Libcuda | None:
    """Return the directories of the 32-bit libraries of the driver `wide`, None if it has none.

    Its `path` is "": packages for graphics only have no 32-bit libcuda.
    """
    machine = _NARROW_MACHINES.get(wide.machine)
    if machine is None:
        return None
    return Libcuda("", wide.version, machine, tuple(_existing(root, _NARROW)), bits=32)


def version_in(name: str) -> str | None:
    """Return the version at the end of a library's file name, "580.95.05", or None."""
    found = _VERSIONED.search(name)
    return found.group(1) if found else None


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise fault("GH1515", what="the search path", path=path)
    return path


def _existing(root: DriverRoot, directories: Iterable[str]) -> list[str]:
    real = (root.directory(path) for path in directories)
    return list(dict.fromkeys(path for path in real if path))


def _candidates(root: DriverRoot, directories: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for directory in directories:
        for name in root.names(directory):
            # libcuda.so.1 may be the only name that leads into a directory of another name,
            # Debian's nvidia/tesla-470 for one.
            if not name.startswith("libcuda.so."):
                continue
            path = root.real(posixpath.join(directory, name))
            version = version_in(name) or version_in(path or "")
            if path and version and not _is_32_bit(root, path):
                found.setdefault(version, path)
    return found


def _cached(root: DriverRoot) -> list[str]:
    """Return the directories of libcuda.so.1 in the root's own loader cache."""
    path = root.real("/etc/ld.so.cache")
    try:
        entries = ld_cache_entries.parse(
            files.read(root.host(path or "/etc/ld.so.cache"), 16 << 20)
        )
    except (OSError, GpuhookError):
        return []
    paths = [
        e.path.decode("utf-8", "surrogateescape") for e in entries if e.soname == b"libcuda.so.1"
    ]
    # The target of the link, as the files with a version may be in another directory.
    real = [root.real(path) or path for path in paths]
    return [path.rpartition("/")[0] for path in real + paths]


def _current(root: DriverRoot, directories: list[str], found: dict[str, str]) -> str:
    """Return the version that the first libcuda.so.1 points to, or the only version."""
    if len(found) == 1:
        return next(iter(found))
    for directory in directories:
        path = root.real(posixpath.join(directory, "libcuda.so.1"))
        version = version_in(path or "")
        if version in found:
            return version
    raise fault("GH1233", root=root.path, have=" and ".join(found))


def _is_32_bit(root: DriverRoot, path: str) -> bool:
    try:
        found = elf.read(root.host(path))
    except OSError:
        return False
    return found is not None and found.bits == 32


def _machine(root: DriverRoot, path: str) -> int:
    try:
        found = elf.read(root.host(path))
    except OSError as error:
        raise fault("GH1234", path=root.host(path)) from error
    if found is None:
        raise fault("GH1234", path=root.host(path))
    return found.machine


def _check_ml(root: DriverRoot, directories: Sequence[str], version: str) -> None:
    """Raise GH1231 if there is a libnvidia-ml, but none of `version`."""
    names = (name for directory in directories for name in root.names(directory))
    versions = [version_in(n) for n in names if n.startswith("libnvidia-ml.so.")]
    have = list(dict.fromkeys(v for v in versions if v))
    if have and version not in have:
        raise fault("GH1231", root=root.path, libcuda=version, ml=" and ".join(have))
