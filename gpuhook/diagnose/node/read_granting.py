# SPDX-License-Identifier: Apache-2.0
"""How gpuhook grants by this node's CDI specs, for who only looks: nothing is kept or compiled."""

from __future__ import annotations

import os

from gpuhook.cdi import cache, spec
from gpuhook.cdi import compile as compiler
from gpuhook.cdi.registry import Registry, files
from gpuhook.errors import GpuhookError, fault
from gpuhook.programs.granting import Granting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.cache import Compiled
    from gpuhook.engine_log import EngineLog
    from gpuhook.settings import Settings


class ReadGranting(Granting):
    """Granting by the specs as they are now, read once."""

    def __init__(self, settings: Settings, log: EngineLog) -> None:
        super().__init__(settings, log, _no_compiler)
        self._registry: Registry | None = None

    def registry(self) -> Registry:
        """Return the registry of this node's CDI specs."""
        if self._registry is None:
            dirs = self.settings.spec_dirs
            vendor = self.default_kind().partition("/")[0]
            self._registry = Registry(dirs, [_layer(directory) for directory in dirs], vendor)
        return self._registry


def _layer(directory: str) -> list[Compiled]:
    found = (_compiled(path) for path in files(directory))
    return [compiled for compiled in found if compiled is not None]


def _compiled(path: str) -> Compiled | None:
    """Return a spec, or what is wrong with it; None for a dangling link or a file that is gone."""
    try:
        os.stat(path)
        return cache.of_spec(path, compiler.checked(spec.parser(path), path))
    except FileNotFoundError:
        return None
    except OSError as error:
        unreadable = fault("GH1110", path=path, reason=error.strerror or error)
        return cache.Compiled.of_fault(path, unreadable)
    except GpuhookError as error:
        return cache.Compiled.of_fault(path, error)


def _no_compiler(path: str) -> None:
    raise AssertionError(f"{path}: who only looks compiles nothing")
