# SPDX-License-Identifier: Apache-2.0
"""How gpuhook grants by this node's CDI specs, for who only looks: nothing is kept or compiled.

What gpuhook-runtime does about a stale spec is told here, and not done.
"""

from __future__ import annotations

from gpuhook.cdi import spec_reader
from gpuhook.cdi.hot.registry import Registry
from gpuhook.entry import granting
from gpuhook.entry.granting import Granting
from gpuhook.host.hot import settings, state
from gpuhook.node import settings_file
from gpuhook.node.described_node import Heard
from gpuhook.vendors.nvidia.hot import host_fingerprint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.host.hot.engine_log import EngineLog
    from gpuhook.host.hot.settings import Settings
    from gpuhook.vendors.nvidia.hot.rootfs.hook_args import Jobs


class ReadGranting(Granting):
    """Granting by the specs as they are now, read once."""

    def __init__(self, chosen: Settings, log: EngineLog) -> None:
        super().__init__(chosen, log, _no_compiler)
        self._registry: Registry | None = None
        self._awaited: set[str] = set()

    def registry(self) -> Registry:
        """Return the registry of this node's CDI specs."""
        if self._registry is None:
            dirs = self.settings.spec_dirs
            vendor = self.default_kind().partition("/")[0]
            self._registry = Registry(dirs, spec_reader.layers(dirs), vendor)
        return self._registry

    def await_refresh(self) -> dict[str, str]:
        """Take stale specs that a create has written anew first for as good as fresh ones.

        Returns path -> what has changed on this host since. There is none where such containers
        are refused: by cdi.onStale, for a user who may not write specs, and without a GPU.
        """
        if self.settings.on_stale != settings.REFRESH or state.is_rootless():
            return {}
        found: dict[str, str] = {}
        for spec in self.registry().all():
            for job in granting.own_jobs(spec):
                changed = granting.changes(job)
                if changed and not host_fingerprint.absence(job.host_root):
                    self._awaited.add(job.fingerprint)
                    found[spec.path] = "; ".join(changed)
        return found

    def require_fresh(self, job: Jobs) -> None:
        """Raise GH1120 if the job's spec is stale, and nobody writes it anew before a start."""
        if job.fingerprint not in self._awaited:
            super().require_fresh(job)


def of_node() -> ReadGranting:
    """Return how this node grants by its own settings; GH1530 if they are broken."""
    return ReadGranting(settings_file.of_node(), Heard())


def _no_compiler(path: str) -> None:
    raise AssertionError(f"{path}: who only looks compiles nothing")
