# SPDX-License-Identifier: Apache-2.0
"""How this node grants, for who only looks: its specs are read, and no compiled form is kept."""

from __future__ import annotations

import os

from gpuhook.cdi import cache, spec
from gpuhook.cdi.registry import Registry
from gpuhook.diagnose import settings_file
from gpuhook.diagnose.node.described import Heard
from gpuhook.errors import GpuhookError
from gpuhook.programs.granting import Granting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.cache import Compiled


class LookingGranting(Granting):
    """Granting by this node's settings and specs, which leaves the node as it is."""

    def __init__(self) -> None:
        """Read the settings; GH1530 if they are broken."""
        super().__init__(settings_file.of_node(), Heard(), _no_compiler)
        self._registry: Registry | None = None

    def registry(self) -> Registry:
        """Return the registry of this node's specs, read once."""
        if self._registry is None:
            dirs = self.settings.spec_dirs
            layers = [_layer(directory) for directory in dirs]
            self._registry = Registry(dirs, layers, self.default_kind().partition("/")[0])
        return self._registry


def _layer(directory: str) -> list[Compiled]:
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return []
    paths = [os.path.join(directory, name) for name in names if name.endswith((".json", ".yaml"))]
    return [_read(path) for path in paths if os.path.exists(path)]


def _read(path: str) -> Compiled:
    try:
        return cache.of_spec(path, spec.read(path))
    except GpuhookError as error:
        return cache.Compiled.of_fault(path, error)


def _no_compiler(path: str) -> None:
    raise AssertionError(f"{path}: what is only looked at is not compiled")
