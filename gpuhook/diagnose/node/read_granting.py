# SPDX-License-Identifier: Apache-2.0
"""How gpuhook grants by this node's CDI specs, for who only looks: nothing is kept or compiled."""

from __future__ import annotations

from gpuhook.cdi import reading
from gpuhook.cdi.registry import Registry
from gpuhook.diagnose import settings_file
from gpuhook.diagnose.node.described import Heard
from gpuhook.programs.granting import Granting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engine_log import EngineLog
    from gpuhook.settings import Settings


class ReadGranting(Granting):
    """Granting by the specs as they are now, read once."""

    def __init__(self, chosen: Settings, log: EngineLog) -> None:
        super().__init__(chosen, log, _no_compiler)
        self._registry: Registry | None = None

    def registry(self) -> Registry:
        """Return the registry of this node's CDI specs."""
        if self._registry is None:
            dirs = self.settings.spec_dirs
            vendor = self.default_kind().partition("/")[0]
            self._registry = Registry(dirs, reading.layers(dirs), vendor)
        return self._registry


def of_node() -> ReadGranting:
    """Return how this node grants by its own settings; GH1530 if they are broken."""
    return ReadGranting(settings_file.of_node(), Heard())


def _no_compiler(path: str) -> None:
    raise AssertionError(f"{path}: who only looks compiles nothing")
