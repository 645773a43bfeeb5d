# SPDX-License-Identifier: Apache-2.0
"""The versions of an installation that the files of a host's containers name."""

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
    """The names of versions; `has_programs` if a file names a program by the path of all versions.

    `unknown` has the reasons why other versions could be in use.
    """

    versions: frozenset[str] = frozenset()
    has_programs: bool = False
    unknown: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether every file could be read."""
        return not self.unknown


def version_references(root: str, at: str, where: ContainerFiles) -> VersionReferences:
    """Return the versions below the host's directory `at` that the containers' files name."""
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
    """Return the content of a file, b"" if it does not exist, None if it cannot be read."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):  # a link of the host has another target here
            return b""
        return files.read(path, _MAX)
    except (FileNotFoundError, NotADirectoryError):
        return b""  # its container ended
    except (OSError, GpuhookError):
        return None
