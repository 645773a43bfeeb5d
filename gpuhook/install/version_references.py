# SPDX-License-Identifier: Apache-2.0
"""What the containers of a host still name of an installation, in what engines keep of them."""

from __future__ import annotations

import glob
import os
import re
import stat
from dataclasses import dataclass

from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files
from gpuhook.install.mounted_host import inside
from gpuhook.install.tree_copy import PROGRAMS, VERSIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.install.container_directories import ContainerFiles

_MAX = 16 << 20  # bytes


@dataclass(frozen=True, slots=True)
class VersionReferences:
    """The names of versions, and whether a program is named by the path that outlives them.

    Each of `unknown` is a reason why another version could be named.
    """

    versions: frozenset[str] = frozenset()
    has_programs: bool = False
    unknown: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether every file could be read."""
        return not self.unknown


def version_references(root: str, at: str, where: ContainerFiles) -> VersionReferences:
    """Return what the containers' files of a host name below its directory `at`."""
    pattern = re.compile(re.escape(f"{at}/{VERSIONS}/").encode() + rb"([0-9A-Za-z.+~-]+)/")
    programs = f"{at}/{PROGRAMS}/".encode()
    unknown = list(where.unknown)
    names: set[bytes] = set()
    has_programs = False

    def search(content: bytes) -> None:
        nonlocal has_programs
        names.update(pattern.findall(content))
        has_programs = has_programs or programs in content

    for command in where.commands:
        search(os.fsencode(command))
    for directory in where.directories:
        try:
            here = inside(root, directory.path)
        except OSError as error:
            unknown.append(f"{directory.path}: {error.strerror}")
            continue
        for path in _paths(here, directory.files):
            content = _content(path)
            if content is None:
                unknown.append(f"{path} cannot be read")
            else:
                search(content)
    return VersionReferences(
        frozenset(name.decode() for name in names), has_programs, tuple(unknown)
    )


def _paths(here: str, patterns: tuple[str, ...]) -> Iterator[str]:
    for pattern in patterns:
        for name in glob.iglob(pattern, root_dir=here):
            yield os.path.join(here, name)


def _content(path: str) -> bytes | None:
    """Return what a file says: nothing if it is gone or is no file, None if it cannot be read."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):  # a link of the host means another file here
            return b""
        return files.read(path, _MAX)
    except (FileNotFoundError, NotADirectoryError):
        return b""  # its container has ended
    except (OSError, GpuhookError):
        return None
