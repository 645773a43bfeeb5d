# SPDX-License-Identifier: Apache-2.0
"""The NVML libraries of this process, and the one that pynvml's calls use.

pynvml supports one library per process and caches its functions by name. A watch has its library
open for days, and meanwhile another thread reads the node again, possibly from a new driver's
library; so pynvml is made to look up each function in the library of the calling code.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock

import pynvml

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# The names in older libraries. The older structures are the first part of pynvml's, and a C
# function ignores an additional argument.
OLDER_NAMES = {
    "nvmlInitWithFlags": ("nvmlInit_v2", "nvmlInit"),
    "nvmlDeviceGetAttributes_v2": ("nvmlDeviceGetAttributes",),
    "nvmlDeviceGetCount_v2": ("nvmlDeviceGetCount",),
    "nvmlDeviceGetHandleByIndex_v2": ("nvmlDeviceGetHandleByIndex",),
    "nvmlDeviceGetPciInfo_v3": ("nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"),
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": ("nvmlDeviceGetNvLinkRemotePciInfo",),
    "nvmlEventSetWait_v2": ("nvmlEventSetWait",),
    "nvmlSystemGetCudaDriverVersion_v2": ("nvmlSystemGetCudaDriverVersion",),
}


class Symbols:
    """A loaded library in which a missing name is looked up by its older names."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def __getattr__(self, name: str) -> object:
        names = (name, *OLDER_NAMES.get(name, ()))
        present = next((known for known in names if hasattr(self._library, known)), name)
        return getattr(self._library, present)


@dataclass(frozen=True, slots=True, eq=False)
class LoadedLibrary:
    """A library in this process's memory: `identity` is the device and inode of its file."""

    path: str
    identity: tuple[int, int]
    symbols: Symbols


_lock = Lock()
_by_path: dict[str, list[LoadedLibrary]] = {}  # the newest file of each path last
_open: list[LoadedLibrary] = []  # once for each user, the last one last
_here: ContextVar[LoadedLibrary | None] = ContextVar("nvml", default=None)


def load(path: str) -> LoadedLibrary:
    """Return the library at `path`, loaded once for each file that had this path.

    Raises OSError with the dynamic loader's reason.
    """
    with _lock:
        found = os.stat(path)
        identity = (found.st_dev, found.st_ino)
        before = _by_path.setdefault(path, [])
        known = next((loaded for loaded in before if loaded.identity == identity), None)
        if known is None:
            known = LoadedLibrary(path, identity, Symbols(ctypes.CDLL(_spelled(path, len(before)))))
            before.append(known)
        return known


def _spelled(path: str, number: int) -> str:
    """Return `path` in its `number`th spelling.

    The dynamic loader returns the library that it loaded by this name before, even if the file was
    replaced: after an upgrade in place, only another spelling loads the new driver's library.
    """
    directory, name = os.path.split(path)
    return os.path.join(directory, *["."] * number, name)


@contextmanager
def used(library: LoadedLibrary) -> Iterator[None]:
    """Send pynvml's calls of this thread or task to `library`.

    Other code of the process that has not chosen a library uses the one opened last.
    """
    before = _here.get()
    with _lock:
        _open.append(library)
    _here.set(library)
    try:
        yield
    finally:
        _here.set(before)
        with _lock:
            _open.remove(library)


def current() -> LoadedLibrary:
    """Return the library of the calling code. Raises NVMLError if none is open."""
    with _lock:
        library = _here.get() or (_open[-1] if _open else None)
    if library is None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
    return library


def function(name: str) -> ctypes._NamedFuncPointer:
    """Return the C function of the library of the calling code. Raises NVMLError."""
    symbols = current().symbols
    try:
        found: ctypes._NamedFuncPointer = getattr(symbols, name)
    except AttributeError:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from None
    return found


# pynvml has no argument for a library: its wrappers call this by name, and with the variable set
# it does not search for one.
vars(pynvml).update(_nvmlGetFunctionPointer=function, nvmlLib=function)
