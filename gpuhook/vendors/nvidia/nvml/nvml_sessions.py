# SPDX-License-Identifier: Apache-2.0
"""The NVML libraries that this process has loaded, and which of them pynvml's calls go to.

pynvml knows one library per process and keeps its functions by name. A watch has its library open
for days, and in between the node is asked again, by another thread or of a new driver's library;
so pynvml is made to look up each function in the library of the code that calls it.
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

# What a name was called in older libraries. The older structures are the front part of pynvml's,
# and an argument too many is not looked at by a C function.
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
    """A loaded library in which a missing name is looked up under its older ones."""

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
    """Return the library at `path`, loaded once for each file that is found there.

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

    The dynamic loader gives back what it loaded under a name before, whatever the file is by now:
    after an upgrade in place, only another spelling gets the new driver's library.
    """
    directory, name = os.path.split(path)
    return os.path.join(directory, *["."] * number, name)


@contextmanager
def used(library: LoadedLibrary) -> Iterator[None]:
    """Send pynvml's calls of this thread or task to `library`.

    Other code of the process that hasn't chosen a library talks to the one opened last.
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
    """Return the library that this code talks to. Raises NVMLError when none is open."""
    with _lock:
        library = _here.get() or (_open[-1] if _open else None)
    if library is None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
    return library


def function(name: str) -> ctypes._NamedFuncPointer:
    """Return the C function of the library that this code talks to. Raises NVMLError."""
    symbols = current().symbols
    try:
        found: ctypes._NamedFuncPointer = getattr(symbols, name)
    except AttributeError:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from None
    return found


# pynvml has no argument for a library: its wrappers call this by name, and the variable keeps it
# from looking for one by itself.
vars(pynvml).update(_nvmlGetFunctionPointer=function, nvmlLib=function)
