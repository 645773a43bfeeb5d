# SPDX-License-Identifier: Apache-2.0
"""Runs `gpuhook device-plugin` as a process, on a simulated node, with a kubelet."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kubelet.kubelet import Kubelet
from tests.simulated.node import SimulatedNode
from tests.waiting import eventually

GPU = "nvidia.com/gpu"
# The entry of a ConfigMap of the GPU Operator.
TIME_SLICING = """\
version: v1
flags:
  migStrategy: none
sharing:
  timeSlicing:
    resources:
    - name: "nvidia.com/gpu"
      replicas: 4
"""
# The environment of the device plugin in the values.yaml of the GPU Operator.
OPERATOR = {
    "PASS_DEVICE_SPECS": "true",
    "FAIL_ON_INIT_ERROR": "true",
    "DEVICE_LIST_STRATEGY": "envvar",
    "DEVICE_ID_STRATEGY": "uuid",
    "NVIDIA_VISIBLE_DEVICES": "all",
    "NVIDIA_DRIVER_CAPABILITIES": "all",
}
_ENDS_WITHIN = 20


@dataclass
class PluginProcess:
    """A running plugin. `place` has its configuration, its state and its log."""

    place: Path
    node: SimulatedNode
    kubelet: Any
    env: dict[str, str]
    options: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()  # begins the command line, and executes the plugin
    words: tuple[str, ...] = ("device-plugin",)
    module: str = "gpuhook"  # its program, run by `python -m`
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def config(self) -> Path:
        """Return the path of the configuration file."""
        return self.place / "config.yaml"

    @property
    def state(self) -> Path:
        """Return the state directory, /run/gpuhook on a node."""
        return self.place / "state"

    @property
    def metrics_address(self) -> str:
        """Return host:port of the metrics."""
        return self.env["GPUHOOK_METRICS_ADDRESS"]

    @property
    def pid(self) -> int:
        """Return the pid of the running plugin."""
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        command = [sys.executable, "-m", self.module, "--log-format", "json", *self.words]
        with (self.place / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, *command, *self.options], env=self.env, stdout=log, stderr=log
            )

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and return the exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(_ENDS_WITHIN)

    def ended(self) -> int:
        """Wait for the end of the plugin, and return its exit status."""
        assert self.process is not None
        return self.process.wait(_ENDS_WITHIN)

    def configure(self, text: str) -> None:
        """Replace the configuration file, as an editor or a ConfigMap does."""
        new = self.config.with_suffix(".new")
        new.write_text(text, encoding="utf-8")
        new.rename(self.config)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def log(self) -> list[dict[str, Any]]:
        """Return the log lines; a line that is not JSON has the key `text` only."""
        lines = (self.place / "log").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) if line.startswith("{") else {"text": line} for line in lines]

    def wait_for_log(self, **wanted: object) -> dict[str, Any]:
        """Wait for a line with these values, and return it."""

        def found() -> list[dict[str, Any]]:
            return [line for line in self.log() if wanted.items() <= line.items()]

        eventually(found, f"a log line with {wanted}")
        return found()[0]

    def metrics(self) -> str:
        """Return the metrics, as Prometheus scrapes them."""
        with urllib.request.urlopen(f"http://{self.metrics_address}/metrics") as answer:
            return str(answer.read().decode())


@contextmanager
def plugin(
    place: Path,
    node: SimulatedNode,
    kubelet: Kubelet,
    text: str = TIME_SLICING,
    env: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    prefix: Sequence[str] = (),
    module: str = "gpuhook",
) -> Iterator[PluginProcess]:
    """Start a plugin with this configuration on `node`, wait for its registration, and stop it."""
    place.mkdir(parents=True, exist_ok=True)
    own = {
        **os.environ,
        "CONFIG_FILE": str(place / "config.yaml"),
        "KUBELET_SOCKET": str(kubelet.socket),
        "GPUHOOK_STATE_DIR": str(place / "state"),
        "GPUHOOK_HOST_ROOT": node.host_root,
        "GPUHOOK_DRIVER_ROOT": node.driver_root,
        "GPUHOOK_DEV_ROOT": node.dev_root,
        "GPUHOOK_METRICS_ADDRESS": f"127.0.0.1:{free_port()}",
        "GPUHOOK_HEALTH_POLL_INTERVAL": "1s",
        **(env or {}),
    }
    made = PluginProcess(place, node, kubelet, own, tuple(options), tuple(prefix), module=module)
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
                made.process.kill()
                made.process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
