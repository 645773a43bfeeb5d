# SPDX-License-Identifier: Apache-2.0
"""The engines that can be configured, by the names that people call them."""

from __future__ import annotations

import importlib
from typing import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.engine_options import EngineNode, EngineOptions
    from gpuhook.engines.configure.engine_plan import EnginePlan

# The engine's name -> its module below gpuhook.engines.configure.
_MODULES = {
    "containerd": "containerd.configure_containerd",
    "crio": "configure_crio",
    "docker": "docker.configure_docker",
    "podman": "configure_podman",
}
ENGINES = tuple(_MODULES)


class Engine(Protocol):
    """What each engine's module has."""

    def plan(self, node: EngineNode, wanted: EngineOptions) -> EnginePlan:
        """Return what is to change; raises a fault where it cannot be, and OSError."""

    def without(
        self, path: str, content: bytes, wanted: EngineOptions, before: bytes | None = None
    ) -> bytes | None:
        """Return a file that somebody has edited since, less what `wanted` had brought into it.

        What ours took the place of comes back: `before` is the file before it was configured,
        None where there was none. None where nothing but what was ours is left. Raises a fault
        where it cannot be told apart.
        """


def engine(name: str) -> Engine:
    """Return the engine of that name, one of ENGINES."""
    found: Engine = importlib.import_module(f"gpuhook.engines.configure.{_MODULES[name]}")
    return found
