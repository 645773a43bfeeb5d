# SPDX-License-Identifier: Apache-2.0
"""The configuration of an engine: runtimes, CDI, and the problems of its files."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from typing import Any

from gpuhook.host.hot.state import PROGRAM_DIRS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.engines.read.config_files import ConfigFiles


# The default directories of CDI specs (container-device-interface, pkg/cdi DefaultSpecDirs); a spec
# in the later directory has precedence.
CDI_DIRS = ("/etc/cdi", "/var/run/cdi")

# The programs of runtimes that give containers GPUs. `.cdi` and `.legacy` set the mode of NVIDIA's
# runtime; the wrapper of its installer calls `.real`.
NVIDIA_RUNTIME = "nvidia-container-runtime"
GPUHOOK_RUNTIME = "gpuhook-runtime"


@dataclass(frozen=True, slots=True)
class ConfigPlace:
    """A place in a file: path and line, 0 if the line is unknown."""

    path: str
    line: int = 0

    def __str__(self) -> str:
        """Return "PATH:LINE", as compilers do."""
        return f"{self.path}:{self.line}" if self.line else self.path


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem with which the engine does not start."""

    where: ConfigPlace
    said: str
    is_unread: bool = False  # gpuhook does not read the file, the engine may


@dataclass(frozen=True, slots=True)
class Runtime:
    """An OCI runtime that is registered with an engine.

    `path` is the program in the file; the engine searches its PATH for a bare name, and chooses
    the program for "". `options` are the engine's settings of the runtime.
    """

    name: str
    path: str
    where: ConfigPlace
    type: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def gives_gpus(self) -> bool:
        """Whether its program is NVIDIA's or gpuhook's runtime."""
        return gives_gpus(self.path)


@dataclass(frozen=True, slots=True)
class EngineConfiguration:
    """The configuration of one engine, merged as the engine merges its files.

    `files` has the files in the order in which the engine applies them. `default` is the name of
    the default runtime. `cdi_enabled` is None if no file sets it: the engine's version decides.
    """

    engine: str
    files: tuple[str, ...]
    runtimes: Mapping[str, Runtime]
    default: str
    cdi_enabled: bool | None
    cdi_dirs: tuple[str, ...]
    trouble: tuple[Trouble, ...] = ()

    @property
    def gpu_runtimes(self) -> tuple[Runtime, ...]:
        """The registered runtimes that give containers GPUs."""
        return tuple(one for one in self.runtimes.values() if one.gives_gpus)


def gives_gpus(program: str) -> bool:
    """Return whether a program is NVIDIA's or gpuhook's runtime."""
    name = posixpath.basename(program)
    return name in (GPUHOOK_RUNTIME, NVIDIA_RUNTIME) or name.startswith(f"{NVIDIA_RUNTIME}.")


Version = tuple[int, ...]

_NUMBER = re.compile(r"\bv?(\d+(?:\.\d+)+)")


def parse_version(text: str) -> Version | None:
    """Return the first version in a text, such as (1, 7, 27) of "v1.7.27-rc1", or None."""
    found = _NUMBER.search(text)
    return tuple(int(part) for part in found.group(1).split(".")) if found else None


_HEAD = 4096  # bytes of a script that identify it
_OF_NVIDIA = "nvidia-"


def is_front(files: ConfigFiles, path: str) -> bool:
    """Return whether a program with a name of NVIDIA's is a script of gpuhook. Raises OSError.

    A bare name is searched in the directories of the engines' PATH.
    """
    if not posixpath.basename(path).startswith(_OF_NVIDIA):
        return False
    paths = [path] if "/" in path else [f"{place}/{path}" for place in PROGRAM_DIRS]
    for one in paths:
        content = files.read(one)
        if content is not None:
            return is_gpuhook_script(content)
    return False


def is_gpuhook_script(content: bytes) -> bool:
    """Return whether a program is a script of gpuhook."""
    return content.startswith(b"#!") and b"gpuhook" in content[:_HEAD]


def is_gpuhook_runtime(files: ConfigFiles, path: str) -> bool:
    """Return whether a runtime's program is gpuhook's, under its own name or NVIDIA's."""
    return posixpath.basename(path) == GPUHOOK_RUNTIME or is_front(files, path)
