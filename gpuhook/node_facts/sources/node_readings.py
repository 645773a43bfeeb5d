# SPDX-License-Identifier: Apache-2.0
"""Readings of a running node that no file has: NVML, processes, outputs of programs.

Each reading has a name and is a JSON document, taken at most once, so that a node's readings can be
kept, sent, and examined later. A node that is only a tree of files has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# The dump of `gpuhook inventory -o json`.
INVENTORY = "inventory"
# {"amd": the inventory by the kernel's files}, of the vendors without a driver that is asked
VENDORS = "vendors"
# {"nvidia-persistenced.service": {"load", "active", "result", "enabled"}}, values of systemd's
# LoadState, ActiveState, Result, UnitFileState. The load of a missing unit is "not-found".
UNITS = "units"
# [{"pid", "name", "argv", "started", "exe"}] of engines and daemons (daemons.PROGRAMS), by pid;
# `started` in seconds of the epoch.
PROCESSES = "processes"
# {"looked_at": number of running containers, "trouble": [{"where", "code", "message", "hint"}],
#  "containers": those with GPUs, or that request some: [{"id", "engine", "runtime", "pod",
#    "namespace", "container" (null where unknown), "nodes": paths of the driver's device
#    nodes, "missing" and "findings": [{"code", "message", "hint"}],
#    "injected_by": list of "gpuhook", "nvidia-legacy", "nvidia-cdi"; [] for unknown,
#    "repairable": whether `gpuhook repair` restores what is missing}]}
CONTAINERS = "containers"
# {"runc": {"path", "version", "trouble"}}: installed low-level runtimes, engines, NVIDIA's tools;
# `version` is "" if `trouble` is the reason why it is unknown.
PROGRAMS = "programs"
# {"config": the text of `containerd config dump`, "command": the command that printed it}
CONTAINERD = "containerd"
# Answers of the API server: kubernetes_state.collect() has the shape.
API = "kubernetes"
# {path of a DRA driver's socket: "" if a process listens there, else why none answers}
DRA_SOCKETS = "draSockets"
# [{"engine", "id", "name", "why", "program", "running"}]: containers that engines keep and that
# need gpuhook; `program` is the one of gpuhook that they need, "" without a path.
STORED = "stored"
# {"version", "python", "executable", "package"} of this gpuhook
SELF = "gpuhook"


@dataclass(frozen=True, slots=True)
class Reading:
    """A document, or None and the reason why there is none.

    `code` is that of the fault, "" if nothing could be asked.
    """

    document: Any = None
    trouble: str = ""
    code: str = ""
    hint: str = ""


NOT_RUNNING = Reading(trouble="only the files of this node are available: it is not running")


class Readings:
    """The readings of a node, by name: each is taken on first use."""

    def __init__(self, collectors: Mapping[str, Callable[[], Any]]) -> None:
        """Take the collectors: each returns a JSON document, or raises GpuhookError, OSError."""
        self._collectors = collectors
        self.taken: dict[str, Reading] = {}

    def of(self, name: str) -> Reading:
        """Return the reading of that name; one without a document if it fails."""
        if name not in self.taken:
            self.taken[name] = self._read(name)
        return self.taken[name]

    def document(self, name: str) -> Any:
        """Return the document of a reading, None if it fails."""
        return self.of(name).document

    def _read(self, name: str) -> Reading:
        collector = self._collectors.get(name)
        if collector is None:
            return NOT_RUNNING
        try:
            return Reading(document=collector())
        except GpuhookError as error:
            return Reading(trouble=error.message, code=error.code, hint=error.hint)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            return Reading(trouble=f"{where}{error.strerror or error}")
