# SPDX-License-Identifier: Apache-2.0
"""A root file system for a driver's program, made of files of this host, without the driver.

It has the C library and directories only: the program and the driver's libraries must come from
what was set up. So no registry is needed, and the proof is of this node's configuration.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import tarfile
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory, gettempdir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuhook.engines.configure.host_programs import HostPrograms

LIST = "ldd"  # the program that lists libraries
_NOT_TEMPORARY = "/var/lib"
_DIRECTORIES = ("dev", "etc", "proc", "run", "sys", "tmp", "usr/bin")
_LIBRARY = re.compile(r"(?:^|=>)\s*(/\S+) \(0x", re.MULTILINE)  # a line of ldd(1)


@dataclass(frozen=True, slots=True)
class MinimalRoot:
    """The directory of the root file system, and one for further files."""

    path: str
    place: str

    @property
    def archive(self) -> str:
        """The path of the tar archive of the root file system."""
        return f"{self.place}/root.tar"

    def pack(self) -> None:
        """Write the archive; all files in it are root's."""
        with tarfile.open(self.archive, "w") as archive:
            for name in sorted(os.listdir(self.path)):
                archive.add(f"{self.path}/{name}", name, filter=_as_root)


def _as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


@contextmanager
def minimal_root(
    programs: HostPrograms,
    files: Iterable[str],
    copies: Iterable[str] = (),
    driver: tuple[str, ...] = (),
) -> Iterator[MinimalRoot]:
    """Make a root file system with what the host's `files` need, and remove it. Raises OSError.

    It also has `copies`, programs of the host by name, and what they need, but no library whose
    name starts as in `driver`.
    """
    copied = [path for path in map(programs.find, copies) if path is not None]
    with TemporaryDirectory(prefix="gpuhook-setup-", dir=_directory()) as place:
        root = f"{place}/root"
        os.mkdir(root)
        for directory in _DIRECTORIES:
            os.makedirs(f"{root}/{directory}")
        libraries = _libraries(programs, [*files, *copied])
        own = [one for one in libraries if not posixpath.basename(one).startswith(driver)]
        for path in (*copied, *own):
            os.makedirs(root + posixpath.dirname(path), exist_ok=True)
            shutil.copyfile(path, root + path)
            shutil.copymode(path, root + path)
        yield MinimalRoot(root, place)


def _directory() -> str:
    """Return the directory for temporary files, or another one if programs cannot run in it."""
    usual = gettempdir()
    if os.statvfs(usual).f_flag & os.ST_NOEXEC and os.access(_NOT_TEMPORARY, os.W_OK):
        return _NOT_TEMPORARY
    return usual


def _libraries(programs: HostPrograms, files: Iterable[str]) -> list[str]:
    """Return the libraries and the loader that the host's loader finds for files."""
    ran = programs.run((LIST, *files))  # its status is 1 if one of several files is static
    return list(dict.fromkeys(_LIBRARY.findall(ran.output))) if ran else []
