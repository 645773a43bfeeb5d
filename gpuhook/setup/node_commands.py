# SPDX-License-Identifier: Apache-2.0
"""The commands of gpuhook that setup runs, as functions of the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.configure_engine import Where
    from gpuhook.engines.configure.engine_plan import EngineOptions, Route
    from gpuhook.engines.configure.host_files import Host
    from gpuhook.errors import GpuhookError
    from gpuhook.node_facts.check import ExaminedNode

WRITES, HAS = "planned", "present"


@dataclass(frozen=True, slots=True)
class SpecState:
    """A CDI spec of the node: it has it, or `gpuhook refresh` writes it.

    `contents` are the devices and the number of edits of a spec that is written. `error` is why it
    cannot be written. `is_foreign` is set if another program wrote it.
    """

    path: str
    state: str
    reason: str
    contents: str = ""
    is_new: bool = False
    is_foreign: bool = False
    error: GpuhookError | None = None


class NodeCommands(Protocol):
    """The commands, for one node. They raise the faults of the commands, and OSError."""

    @property
    def host(self) -> Host:
        """The files of the node."""

    def node(self) -> ExaminedNode:
        """Return the node as `gpuhook doctor` examines it; each call reads it again."""

    def specs(self, *, is_dry: bool) -> list[SpecState]:
        """Write the first or stale specs as `gpuhook refresh` does, and return all."""

    def place(self, engine: str) -> Where:
        """Return the place of the files of the user's engine; GH2014 for one that is root's."""

    def options(
        self, engine: str, route: Route | None, names: tuple[str, ...], *, takes_over: bool
    ) -> EngineOptions:
        """Return the options of `gpuhook configure ENGINE`."""
