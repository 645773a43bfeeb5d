# SPDX-License-Identifier: Apache-2.0
"""Runs `gpuhook dra run` as a process, on a simulated node, with a kubelet and an API server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from tests.cluster_api.cluster_server import Cluster
from tests.kubelet.dra_kubelet import DraKubelet
from tests.kubelet.process import PluginProcess, free_port
from tests.simulated.node import SimulatedNode

NODE = "node1"
_ENDS_WITHIN = 20


class DraProcess(PluginProcess):
    """A running driver. `kill_at` is the number of its file operation that kills it, from 0."""

    kill_at: int | None = None

    @property
    def cdi(self) -> Path:
        """Return the CDI directory."""
        return self.place / "cdi"

    @property
    def armed(self) -> Path:
        """Return the path of the file that makes operations count for `kill_at`."""
        return self.place / "armed"

    def start(self) -> None:
        self.prefix = ()
        self.env.pop("KILL_AT", None)
        if self.kill_at is not None:
            self.env |= {"KILL_AT": str(self.kill_at), "KILL_ARMED": str(self.armed)}
        command = [sys.executable, "-m", "tests.kubelet.killed_driver"]
        words = ["--log-format", "json", "dra", "run", *self.options]
        with (self.place / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *words], env=self.env, stdout=log, stderr=log
            )

    def kill(self) -> None:
        """End the process at once."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def specs(self) -> list[str]:
        """Return the names of the files in the CDI directory, without the specs of the node."""
        found = sorted(os.listdir(self.cdi)) if self.cdi.exists() else []
        return [name for name in found if not name.startswith("k8s.device-plugin.")]


def node_variables(node: SimulatedNode) -> dict[str, str]:
    """Return the variables that make the driver see a simulated node."""
    return {
        "GPUHOOK_HOST_ROOT": node.host_root,
        "GPUHOOK_DRIVER_ROOT": node.driver_root,
        "GPUHOOK_DEV_ROOT": node.dev_root,
    }


@contextmanager
def dra_process(
    place: Path,
    node: SimulatedNode | None,
    kubelet: DraKubelet,
    cluster: Cluster,
    text: str = "version: v1\n",
    env: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> Iterator[DraProcess]:
    """Start a driver with this configuration on `node`, and stop it at the end."""
    place.mkdir(parents=True, exist_ok=True)
    own = {
        **os.environ,
        "CONFIG_FILE": str(place / "config.yaml"),
        "NODE_NAME": NODE,
        "GPUHOOK_KUBELET_ROOT": str(kubelet.root),
        "GPUHOOK_CDI_DIRECTORY": str(place / "cdi"),
        "GPUHOOK_SERVICE_ACCOUNT": str(Path(cluster.access.token_path).parent),
        "KUBERNETES_SERVICE_HOST": cluster.access.host,
        "KUBERNETES_SERVICE_PORT": str(cluster.access.port),
        "GPUHOOK_STATE_DIR": str(place / "state"),
        **({} if node is None else node_variables(node)),
        "GPUHOOK_METRICS_ADDRESS": f"127.0.0.1:{free_port()}",
        "GPUHOOK_HEALTH_POLL_INTERVAL": "1s",
        "GPUHOOK_POD_RESOURCES_SOCKET": str(place / "pod-resources.sock"),
        **(env or {}),
    }
    made = DraProcess(place, cast("SimulatedNode", node), kubelet, own, tuple(options))
    made.config.write_text(text, encoding="utf-8")
    made.start()
    try:
        yield made
    finally:
        if made.process is not None and made.process.poll() is None:
            made.process.terminate()
            try:
                made.process.wait(_ENDS_WITHIN)
            except subprocess.TimeoutExpired:
                made.kill()
