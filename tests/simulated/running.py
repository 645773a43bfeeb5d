# SPDX-License-Identifier: Apache-2.0
"""Running containers for commands that only read: processes with mounts, and a runtime's state.

The runtime's state is made here; the processes, their mounts and start times are real. It needs
root.
"""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from gpuhook.containers.hot import ledger
from gpuhook.host.hot import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_POD = ("sandbox-name", "sandbox-namespace", "container-name")
_WAIT = "echo; exec sleep infinity"


@dataclass
class Running:
    """Containers below a directory; all of them end when the context ends."""

    place: Path
    pids: dict[str, int] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def root(self) -> Path:
        """Return the state root of their runtime."""
        return self.place / "runc"

    def __enter__(self) -> Running:  # noqa: PYI034 # Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def process(self, *mounted: str) -> int:
        """Start a process with its own /dev, on which the files `mounted` are mounted."""
        steps = ["mount -t tmpfs tmpfs /dev"]
        for path in mounted:
            steps += [f"mkdir -p $(dirname {path})", f"touch {path}", f"mount --bind {path} {path}"]
        script = " && ".join([*steps, _WAIT])
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        self._stack.callback(child.wait)
        self._stack.callback(child.kill)
        assert child.stdout is not None
        child.stdout.readline()
        child.stdout.close()
        return child.pid

    def start(
        self,
        identity: str,
        nodes: Sequence[str] = (),
        *,
        env: Sequence[str] = (),
        pod: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
        mounted: Sequence[str] = (),
    ) -> int:
        """Start a container whose config.json has these device nodes; return its first process.

        `pod` is its pod, namespace and name; `mounted` are mounts that were added since.
        """
        pid = self.process(*mounted)
        bundle = self.place / "bundles" / identity
        bundle.mkdir(parents=True)
        devices = [{"path": path, "type": "c", "major": 195, "minor": 0} for path in nodes]
        document = {
            "ociVersion": "1.0.2",
            "process": {"env": list(env)},
            "annotations": {
                f"io.kubernetes.cri.{key}": word for key, word in zip(_POD, pod, strict=False)
            },
            "linux": {"devices": devices},
            **(config or {}),
        }
        (bundle / "config.json").write_text(json.dumps(document))
        (self.root / identity).mkdir(parents=True)
        state = {
            "init_process_pid": pid,
            "init_process_start": procfs.start_time(pid),
            "config": {"rootfs": str(bundle / "rootfs"), "labels": [f"bundle={bundle}"]},
        }
        path = self.root / identity / "state.json"
        path.write_text(json.dumps(state))
        os.chmod(path, 0o600)
        self.pids[identity] = pid
        return pid

    def record(self, identity: str, **entry: Any) -> None:
        """Record a container in the ledger."""
        ledger.record(str(self.root), identity, {"pid": 0, "started": None, **entry})
