# SPDX-License-Identifier: Apache-2.0
"""The device plugin in its pod: runc with the rights of the chart, a node, and a kubelet."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.charts import rendering
from tests.contract.pod_container import NODE, PodContainer
from tests.contract.runtimes import Container, lifecycle
from tests.kubelet.config_map import ConfigMap
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.pod_resources import PodResources
from tests.kubelet.process import PluginProcess, free_port
from tests.simulated.node import SimulatedNode

KUBELET = "var/lib/kubelet"
DENIED = ("Read-only", "not permitted", "Permission denied")


@dataclass(frozen=True)
class PluginPod:
    """The running plugin; `host` is the root directory of its node."""

    host: Path
    kubelet: Kubelet
    pods: PodResources
    configs: ConfigMap
    process: PluginProcess  # runc
    container: Container

    def denials(self) -> list[str]:
        """Return the lines of the log about something that is not permitted."""
        lines = (self.process.place / "log").read_text(encoding="utf-8").splitlines()
        return [line for line in lines if any(word in line for word in DENIED)]


@contextmanager
def plugin_pod(
    place: Path,
    node: SimulatedNode,
    values: Mapping[str, Any],
    *,
    configs: Mapping[str, str],
    without: Collection[str] = (),
    env: Mapping[str, str] | None = None,
    more: Sequence[Path] = (),
) -> Iterator[PluginPod]:
    """Run the pod of the chart with these values on `node`, which is at `place`/n.

    `env` are variables of the test, and `more` directories of this machine that it needs.
    """
    host = Path(node.host_root)
    for name in ("device-plugins", "pod-resources"):
        (host / KUBELET / name).mkdir(parents=True, exist_ok=True)
    made = ConfigMap(place / "configs")
    made.publish(**configs)
    objects = rendering.rendered(dict(values))
    manifest = PodContainer(
        rendering.pod(objects), host, configs=place / "configs", without=without
    )
    own = {
        **manifest.environment(),
        "GPUHOOK_HOST_ROOT": NODE,
        "GPUHOOK_METRICS_ADDRESS": f"127.0.0.1:{free_port()}",
        "GPUHOOK_HEALTH_POLL_INTERVAL": "1s",
        "PYTHONDONTWRITEBYTECODE": "1",
        **(env or {}),
    }
    words = [sys.executable, "-m", "gpuhook", "--log-format", "json", *manifest.container["args"]]
    bundle = manifest.bundle(place / "b", words, own)
    for directory in more:
        bundle.mount(directory, str(directory), "rbind", "rprivate", "rw")
    (place / "log").touch()
    with (
        Kubelet(host / KUBELET / "device-plugins") as kubelet,
        PodResources(host / KUBELET / "pod-resources/kubelet.sock") as pods,
        lifecycle(bundle, container_id=f"gpuhook-{uuid4().hex[:12]}") as container,
    ):
        run = [*container.command, "run", "--bundle", str(bundle.path), container.id]
        # What follows the prefix is in config.json, too, and the shell ignores it.
        prefix = ("sh", "-c", f"exec {' '.join(run)}", "sh")
        process = PluginProcess(place, node, kubelet, own, prefix=prefix)
        process.start()
        try:
            yield PluginPod(host, kubelet, pods, made, process, container)
        finally:
            if process.process is not None and process.process.poll() is None:
                process.stop()
