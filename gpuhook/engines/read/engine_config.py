# SPDX-License-Identifier: Apache-2.0
"""What the configuration of an engine says about the runtimes and devices of its containers."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.engines.read.config_files import ConfigFiles


# Where engines look for CDI specs unless they are told otherwise (container-device-interface,
# pkg/cdi DefaultSpecDirs); of two specs, that in the later directory wins.
CDI_DIRS = ("/etc/cdi", "/var/run/cdi")

# Runtimes that give containers GPUs, by the names of their programs: `.cdi`, `.legacy` and the
# like fix the mode of NVIDIA's, `.real` is what its installer's wrapper calls.
NVIDIA_RUNTIME = "nvidia-container-runtime"
GPUHOOK_RUNTIME = "gpuhook-runtime"


@dataclass(frozen=True, slots=True)
class ConfigPlace:
    """Where something is written: a file and its line, 0 where that is not known."""

    path: str
    line: int = 0

    def __str__(self) -> str:
        """Return it as compilers write it."""
        return f"{self.path}:{self.line}" if self.line else self.path


@dataclass(frozen=True, slots=True)
class Trouble:
    """What an engine will not accept, or will ignore, of what is written at a place."""

    where: ConfigPlace
    said: str
    is_fatal: bool = True  # the engine does not start
    is_unread: bool = False  # nothing is known: gpuhook does not read the file, the engine may


@dataclass(frozen=True, slots=True)
class Runtime:
    """An OCI runtime that is registered with an engine.

    `path` is its program as it is written, which the engine looks up in its PATH if it is a bare
    name; "" leaves the choice to the engine. `options` are the engine's own for it.
    """

    name: str
    path: str
    where: ConfigPlace
    type: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def gives_gpus(self) -> bool:
        """Whether its program is NVIDIA's or gpuhook's runtime."""
        program = posixpath.basename(self.path)
        return program == GPUHOOK_RUNTIME or (
            program == NVIDIA_RUNTIME or program.startswith(f"{NVIDIA_RUNTIME}.")
        )


@dataclass(frozen=True, slots=True)
class EngineConfiguration:
    """The configuration of one engine, merged as the engine merges its files.

    `files` are those that were read, in the order in which they are applied; `default` is the
    name of the runtime of containers that ask for none. `cdi_enabled` is None where nothing is
    said and the engine's version decides.
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

    @property
    def fatal(self) -> tuple[Trouble, ...]:
        """What keeps the engine from starting."""
        return tuple(one for one in self.trouble if one.is_fatal)


Version = tuple[int, ...]

_NUMBER = re.compile(r"\bv?(\d+(?:\.\d+)+)")


def parse_version(text: str) -> Version | None:
    """Return the first version in a text, such as (1, 7, 27) of "v1.7.27-rc1"; None without."""
    found = _NUMBER.search(text)
    return tuple(int(part) for part in found.group(1).split(".")) if found else None


# Where engines look for bare names: their PATH has the same.
DIRECTORIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_HEAD = 4096  # bytes of a script that say whose it is
_OF_NVIDIA = "nvidia-"


def is_front(files: ConfigFiles, path: str) -> bool:
    """Return whether a program by a name of NVIDIA's is a script of gpuhook's; raises OSError.

    A bare name is looked up where engines do.
    """
    if not posixpath.basename(path).startswith(_OF_NVIDIA):
        return False
    paths = [path] if "/" in path else [f"{place}/{path}" for place in DIRECTORIES]
    for one in paths:
        content = files.read(one)
        if content is not None:
            return is_gpuhook_script(content)
    return False


def is_gpuhook_script(content: bytes) -> bool:
    """Return whether a program is a script of gpuhook's."""
    return content.startswith(b"#!") and b"gpuhook" in content[:_HEAD]


def is_gpuhook_runtime(files: ConfigFiles, path: str) -> bool:
    """Return whether a runtime's program is gpuhook's, by its own name or by one of NVIDIA's."""
    return posixpath.basename(path) == GPUHOOK_RUNTIME or is_front(files, path)
