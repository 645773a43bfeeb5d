# SPDX-License-Identifier: Apache-2.0
"""What no file of a node tells: what NVML answers, who runs, what programs say of themselves.

Each reading has a name and is a JSON document, taken at most once, so that a node's readings can
be kept, sent to somebody, and looked at again. A node that is only a tree of files has none.
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
# {"nvidia-persistenced.service": {"load", "active", "result", "enabled"}}, as systemd words them:
# LoadState, ActiveState, Result, UnitFileState. The load of one that is not there is "not-found".
UNITS = "units"
# [{"pid", "name", "argv", "started", "exe"}] of engines and daemons (daemons.PROGRAMS), by pid;
# `started` in seconds of the epoch.
PROCESSES = "processes"
# {"looked_at": number of running containers, "trouble": [{"where", "code", "message", "hint"}],
#  "containers": those with GPUs, or that ask for some: [{"id", "engine", "runtime", "pod",
#    "namespace", "container" (null where unknown), "nodes": paths of the driver's device
#    nodes, "missing" and "findings": [{"code", "message", "hint"}],
#    "injected_by": list of "gpuhook", "nvidia-legacy", "nvidia-cdi"; [] for unknown,
#    "repairable": whether `gpuhook repair` brings back what is missing}]}
CONTAINERS = "containers"
# {"runc": {"path", "version", "trouble"}}: low-level runtimes, engines, NVIDIA's tools, as far as
# they are installed; `version` is "" where `trouble` says why it is not known.
PROGRAMS = "programs"
# {"config": the text of `containerd config dump`, "command": the command that printed it}
CONTAINERD = "containerd"
# What the API server tells, as far as it does: kubernetes_state.collect() has the shape.
API = "kubernetes"
# [{"engine", "id", "name", "why", "program", "running"}]: containers that engines keep and that
# need gpuhook; `program` is that of gpuhook's which they need, "" where no path is written.
STORED = "stored"
# {"version", "python", "executable", "package"} of the gpuhook that looks
SELF = "gpuhook"


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read: a document, or None and why there is none.

    `code` is that of the fault where one was met, "" where nothing could be asked.
    """

    document: Any = None
    trouble: str = ""
    code: str = ""
    hint: str = ""


NOT_RUNNING = Reading(trouble="only the files of this node are here: nothing of it runs")


class Readings:
    """The readings of a node, by name: each is taken when it is first asked for."""

    def __init__(self, collectors: Mapping[str, Callable[[], Any]]) -> None:
        """Take the collectors: each returns a JSON document, or raises GpuhookError, OSError."""
        self._collectors = collectors
        self.taken: dict[str, Reading] = {}

    def of(self, name: str) -> Reading:
        """Return the reading of that name; one without a document where it cannot be had."""
        if name not in self.taken:
            self.taken[name] = self._read(name)
        return self.taken[name]

    def document(self, name: str) -> Any:
        """Return the document of a reading, None where it cannot be had."""
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
