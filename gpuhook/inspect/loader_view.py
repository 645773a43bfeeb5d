# SPDX-License-Identifier: Apache-2.0
"""The libraries that a container's loader finds: in glibc's cache, or in musl's directories."""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError
from gpuhook.loader import ld_cache, ld_cache_entries, library_directory, musl_path
from gpuhook.loader.loader_paths import CACHE, MAX_CACHE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.apply.live.hotplug_steps import Live

_GLIBC = ("ld-linux", "ld64.so")  # names of its loader


class LoaderView:
    """The libraries by name. `trouble` is why the cache cannot be read, "" if it can."""

    def __init__(self, held: Live) -> None:
        self._root = held.root
        self._cache: dict[tuple[str, int], str] = {}  # by name and flags
        self._flags: dict[bool, int] = {}
        self._directories: list[str] = []
        self.trouble = ""
        self.is_musl = False
        names = self._root.directory_names("/lib")
        for architecture in musl_path.architectures(names)[:1]:
            text = self._root.read(musl_path.path_file(architecture), musl_path.MAX_BYTES)
            text = musl_path.DEFAULT if text is None else text.partition(b"\0")[0]
            found = os.fsdecode(text).replace("\n", ":").split(":")
            self._directories = list(filter(None, found))
            self.is_musl = True
        if self.is_musl and not self._has_glibc():
            return  # musl ignores the cache, which NVIDIA's hook writes there too
        try:
            content = self._root.read(CACHE, MAX_CACHE)
            machines = {False: os.uname().machine, True: library_directory.MACHINE}
            self._flags = {is_32: ld_cache.flags_for(name) for is_32, name in machines.items()}
            for entry in ld_cache_entries.parse(content) if content else ():
                if not entry.hwcap:
                    key = os.fsdecode(entry.soname), entry.flags
                    self._cache.setdefault(key, os.fsdecode(entry.path))
        except GpuhookError as error:
            self.trouble = error.message
        except OSError as error:
            self.trouble = f"{error.filename or CACHE}: {error.strerror}"

    def _has_glibc(self) -> bool:
        return any(
            name.startswith(_GLIBC)
            for where in ("/lib", "/lib64")
            for name in self._root.directory_names(where)
        )

    def place(self, name: str, *, is_32_bit: bool = False) -> str:
        """Return the path that the loader opens for a library's name, "" if it finds none."""
        key = name, self._flags.get(is_32_bit, 0)
        if key in self._cache:
            return self._cache[key]
        for where in self._directories:
            if self._root.status(f"{where}/{name}") is not None:
                return f"{where}/{name}"
        return ""

    def names(self) -> Iterator[tuple[str, bool, str]]:
        """Yield (name, whether it is a 32-bit library, path) of each library of the loader."""
        is_32_bit = {flags: is_32 for is_32, flags in self._flags.items()}
        known: set[str] = set()
        for (name, flags), path in self._cache.items():
            if flags in is_32_bit:
                known.add(name)
                yield name, is_32_bit[flags], path
        for where in self._directories:
            for name in filter(library_directory.is_library, self._root.directory_names(where)):
                if name not in known:
                    known.add(name)
                    yield name, False, f"{where}/{name}"

    def searches(self, where: str) -> bool:
        """Return whether the loader searches this directory; other libraries are opened by path."""
        return (
            library_directory.is_system(where)
            or where in self._directories
            or any(os.path.dirname(path) == where for path in self._cache.values())
        )
