# SPDX-License-Identifier: Apache-2.0
"""`kubectl gpuhook ps` by the real kubectl, from a server with the metrics of real exporters."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

import gpuhook
from gpuhook.cli.kubectl_plugin import main
from gpuhook.cluster import plugin_metrics
from gpuhook.device_plugin.metrics import exposition
from gpuhook.device_plugin.metrics.container_memory import ContainerMemory, DeviceUse
from gpuhook.device_plugin.metrics.counters import Counters
from gpuhook.device_plugin.metrics.exposition import ScrapedFacts
from gpuhook.device_plugin.metrics.unit_holders import Holder, Holdings
from gpuhook.device_plugin.offer.offered_devices import Device, Resource, Unit

pytestmark = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
GIB = 1 << 30
SCHEMA = json.loads((Path(gpuhook.__file__).parent / "schemas/cluster-ps.json").read_text("utf-8"))


def facts(gpu: str, *pods: str, used: int = GIB) -> bytes:
    """Return the metrics of a plugin whose T4 is four replicas, the first ones held by `pods`."""
    device = Device(gpu, "0", gpu, 0, (), (), "Tesla T4", 16 * GIB)
    units = tuple(Unit(f"{gpu}::{n}", device, n) for n in range(4))
    held = {f"{gpu}::{n}": Holder("ml", pod, "main") for n, pod in enumerate(pods)}
    memory = tuple(
        ContainerMemory(
            gpu, "ml", pod, "main", used, 4 * GIB, limit_bytes=4 * GIB, limited_by="driver"
        )
        for pod in pods
    )
    found = ScrapedFacts(
        (Resource("nvidia.com/gpu", units, "time-slicing"),),
        holdings=Holdings(held),
        uses=(DeviceUse(gpu, 16 * GIB, used * len(pods), None),),
        containers=memory,
    )
    return exposition.text(found, Counters().snapshot())[0]


class Cluster(ThreadingHTTPServer):
    """What kubectl asks an API server for: pods, and a pod's proxy."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, tuple[int, bytes] | None] = {}
        self.pods: list[dict[str, Any]] = []
        self.refusal: str | None = None

    def add(self, node: str, answer: tuple[int, bytes] | None, port: bool = True) -> None:
        """Add a node with a plugin; it answers its metrics so, None: never."""
        ports = [{"name": "metrics", "containerPort": 9395}] if port else []
        name = f"gpuhook-{node}"
        labels = {"app.kubernetes.io/name": "gpuhook-device-plugin"}
        metadata = {"name": name, "namespace": "gpuhook", "labels": labels}
        self.pods.append(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": metadata,
                "spec": {"nodeName": node, "containers": [{"name": "plugin", "ports": ports}]},
            }
        )
        self.answers[f"/api/v1/namespaces/gpuhook/pods/{name}:9395/proxy/metrics"] = answer


class _Handler(BaseHTTPRequestHandler):
    server: Cluster  # type: ignore[mutable-override]  # of this server only

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # its word
        """Log nothing."""

    def do_GET(self) -> None:  # the word of http.server
        """Answer a request."""
        path = self.path.partition("?")[0]
        if path == "/api/v1/pods":
            if self.server.refusal:
                return self._send(403, _status(403, self.server.refusal))
            found = self.server.pods if "gpuhook-device-plugin" in self.path else []
            head = {"apiVersion": "v1", "kind": "PodList"}
            listed: dict[str, Any] = {**head, "metadata": {}, "items": found}
            return self._send(200, json.dumps(listed).encode())
        if path in self.server.answers:
            answer = self.server.answers[path]
            if answer is None:
                time.sleep(5)
                return None
            return self._send(*answer)
        if path == "/api":
            return self._send(200, b'{"kind":"APIVersions","versions":["v1"]}')
        if path == "/apis":
            return self._send(200, b'{"kind":"APIGroupList","apiVersion":"v1","groups":[]}')
        if path == "/api/v1":
            resource = {"name": "pods", "namespaced": True, "kind": "Pod", "verbs": ["list"]}
            resources = {"kind": "APIResourceList", "groupVersion": "v1", "resources": [resource]}
            return self._send(200, json.dumps(resources).encode())
        return self._send(404, _status(404, "not found"))

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        is_json = body.startswith(b"{")
        self.send_header("Content-Type", "application/json" if is_json else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _status(code: int, message: str) -> bytes:
    reason = {403: "Forbidden", 404: "NotFound"}[code]
    words = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message}
    return json.dumps({**words, "reason": reason, "code": code}).encode()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    server = Cluster()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def config(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    address = f"http://127.0.0.1:{cluster.server_address[1]}"
    path = tmp_path / "config"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": address}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    monkeypatch.setenv("HOME", str(tmp_path))  # kubectl's cache
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return path


def ps(config: Path, *words: str) -> Result:
    command = ["ps", "--kubeconfig", str(config), "--timeout", "3", *words]
    return CliRunner().invoke(main, command, prog_name="kubectl-gpuhook")


def test_one_table_of_all_nodes(cluster: Cluster, config: Path) -> None:
    cluster.add("gpu-2", (200, facts("GPU-b")))
    cluster.add("gpu-1", (200, facts("GPU-a", "train-0", "eval-1")))
    shown = ps(config)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.splitlines() == [
        "NODE   GPU           POD              UNITS  MEMORY    LIMIT",
        "gpu-1  0 (Tesla T4)  ml/eval-1/main   1      1Gi/16Gi  4Gi",
        "gpu-1  0 (Tesla T4)  ml/train-0/main  1      1Gi/16Gi  4Gi",
        "gpu-2  0 (Tesla T4)  -                -      -         -",
    ]
    wide = ps(config, "-o", "wide", "--context", "x").stdout.splitlines()
    assert wide[1].split()[-3:] == ["GPU-a", "4Gi", "driver"]
    only = ps(config, "--node", "gpu-2", "--no-headers").stdout
    assert only.split() == ["gpu-2", "0", "(Tesla", "T4)", "-", "-", "-", "-"]
    assert "train-0" not in ps(config, "--namespace", "other").stdout


def test_documents(cluster: Cluster, config: Path) -> None:
    cluster.add("gpu-1", (200, facts("GPU-a", 'b"\\\n\x1b[2J')))
    found = json.loads(ps(config, "-o", "json").stdout)
    jsonschema.validate(found, SCHEMA)
    (use,) = found["nodes"][0]["containers"]
    assert (use["pod"], use["used"], use["units"]) == ('b"\\\n\x1b[2J', GIB, 1)
    assert "\x1b" not in ps(config).stdout


def test_node_without_an_answer(cluster: Cluster, config: Path) -> None:
    """It is reported, and the others are listed; without any answer the status is 1."""
    cluster.add("dead", None)
    cluster.add("old", (404, _status(404, "no endpoint")))
    cluster.add("silent", (200, b""), port=False)
    alone = ps(config)
    assert alone.exit_code == 1
    assert "dead: kubectl: it did not answer within 3 s" in alone.stderr
    assert "silent: gpuhook/gpuhook-silent serves no metrics" in alone.stderr
    assert "old: kubectl: Error from server (NotFound)" in alone.stderr
    cluster.add("well", (200, facts("GPU-a", "train-0")))
    shown = ps(config)
    assert shown.exit_code == 0
    assert "ml/train-0/main" in shown.stdout


def test_many_nodes_and_pods(cluster: Cluster, config: Path) -> None:
    for number in range(40):
        pods = [f"pod-{number}-{n}" for n in range(4)]
        cluster.add(f"node-{number:02}", (200, facts(f"GPU-{number}", *pods)))
    shown = ps(config, "--timeout", "60", "--no-headers")
    assert len(shown.stdout.splitlines()) == 160


def test_faults(cluster: Cluster, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none = ps(config)
    assert (none.exit_code, none.stderr.partition(":")[0]) == (1, "Error GH1961")
    cluster.refusal = 'pods is forbidden: User "x" cannot list resource "pods"'
    refused = ps(config)
    assert (
        "Error GH1960: kubectl: Error from server (Forbidden): pods is forbidden" in refused.stderr
    )
    assert "pods/proxy" in refused.stderr
    monkeypatch.setenv("PATH", "/nowhere")
    assert "kubectl is not installed" in ps(config).stderr
    for words in (["--timeout", "0"], ["--selector", ""], ["-o", "x"], ["--kubeconfig", "/none"]):
        assert CliRunner().invoke(main, ["ps", *words]).exit_code == 2


@pytest.mark.parametrize(
    "text",
    [
        "gpuhook_x", "gpuhook_x 1 2", "gpuhook_x{ 1", "gpuhook_x{a=b} nope", "other 1",
        "# gpuhook_x 1", "gpuhook_x{a=\"b\"", "\x00", "gpuhook_x{a=\"b} 1",
    ],
)  # fmt: skip
def test_broken_lines_are_left_out(text: str) -> None:
    found = list(plugin_metrics.samples(f'{text}\ngpuhook_y{{a="1"}} 2\n'))
    assert found[-1] == plugin_metrics.Sample("gpuhook_y", {"a": "1"}, 2.0)
    assert all(one.name.startswith("gpuhook_") for one in found)


def test_kubectl_finds_the_plugin(cluster: Cluster, config: Path, tmp_path: Path) -> None:
    """`kubectl gpuhook` runs a program with that name in the PATH."""
    cluster.add("gpu-1", (200, facts("GPU-a", "train-0")))
    program = tmp_path / "bin/kubectl-gpuhook"
    program.parent.mkdir()
    code = "import sys; from gpuhook.cli.kubectl_plugin import main; main(prog_name='x')"
    root = Path(gpuhook.__file__).parents[1]
    program.write_text(f'#!/bin/sh\nPYTHONPATH={root} exec {sys.executable} -c "{code}" "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    env = {"PATH": f"{program.parent}:/usr/bin:/bin:{Path(shutil.which('kubectl') or '').parent}"}
    env |= {"HOME": str(tmp_path), "KUBECONFIG": str(config)}
    command = ["kubectl", "gpuhook", "ps", "--no-headers"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.stdout.split()[:2] == ["gpu-1", "0"], done.stderr
