# SPDX-License-Identifier: Apache-2.0
"""What the configuration of an engine says about the runtimes and devices of its containers."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

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
