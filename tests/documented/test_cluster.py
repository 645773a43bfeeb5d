# SPDX-License-Identifier: Apache-2.0
"""The lines of kubectl and helm, by the real programs, in the order of their page.

The API server keeps what they send. Its node has one T4, the plugin's pods, and a Deployment's pod.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.runtimes import run_command
from tests.documented.api_server import ApiServer, serving
from tests.documented.claims import lines_of_scenario
from tests.documented.command_lines import ROOT
from tests.documented.page_files import page_files, plugin_config
from tests.documented.running import Expected, run_lines
from tests.unit.cluster.test_kubectl_plugin import facts

PAGES = lines_of_scenario("cluster")
HELM = "helm install gpuhook packaging/helm/gpuhook --namespace gpuhook --create-namespace"
HELM += " --set image.repository=x --set image.tag=y"
REPLACES = {r"\b(NODE|NAME|kind-worker|minikube)\b": "gpu-1", "REGISTRY": "registry.example.com",
            r"\bTAG\b": "0.1.0", r"\bIMAGE(-OF-GPUHOOK)?\b": "registry.example.com/gpuhook:0.1.0",
            r"\bPOD\b": "gpuhook-gpu-1"}  # fmt: skip
# page -> part of a line -> what is done before it.
BEFORE = {
    "docs/dra.md": {"create namespace": "kubectl delete -f packaging/kubernetes/dra.yaml"},
    "docs/nri.md": {"create namespace": "kubectl delete -f packaging/kubernetes/nri.yaml"},
    "docs/how-to/alerts.md": {"prometheusRule": HELM},
    "docs/how-to/kind.md": {"label node minikube": "helm uninstall gpuhook --namespace gpuhook"},
    "docs/reference/plugin.md": {"rollout status": HELM},
}
UNITS = {"cpu": "4", "memory": "16Gi", "pods": "110", "nvidia.com/gpu": "4", "amd.com/gpu": "32"}
PLUGIN = {"app.kubernetes.io/name": "gpuhook-device-plugin"}
DRIVER = {"app.kubernetes.io/name": "gpuhook-dra"}
LABELS = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": "1", "example.com/x": "y"}


@pytest.fixture(scope="module")
def kubectl() -> None:
    """Skip the tests without a kubectl that has `debug --profile` and WebSockets."""
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed")
    version = json.loads(run_command(["kubectl", "version", "--client", "-o", "json"]).stdout)
    minor = int(version["clientVersion"]["minor"].rstrip("+"))
    if minor < 31:
        pytest.skip(f"kubectl 1.{minor} is older than 1.31")


@pytest.fixture
def cluster(kubectl: None) -> Iterator[ApiServer]:
    with serving() as server:
        for one in objects():
            server.add(one)
        server.metrics = {
            "gpuhook-gpu-1": facts("GPU-a", "train-0", "eval-1"),
            "gpuhook-gpu-2": facts("GPU-b"),
        }
        yield server


def objects() -> Iterator[dict[str, Any]]:
    """Yield two nodes with the plugin, another pod, and a configuration of the GPU operator."""
    for name in ("gpu-1", "gpu-2"):
        head = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": LABELS}}
        yield {**head, "status": {"capacity": UNITS, "allocatable": UNITS}}
        yield pod(f"gpuhook-{name}", "gpuhook", "DaemonSet", node=name)
    yield pod("gpuhook-dra", "gpuhook", "DaemonSet", labels=DRIVER)
    yield pod("web-0", "ml", "ReplicaSet")
    metadata = {"name": "old", "namespace": "gpuhook"}
    yield {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": {}}
    metadata = {"name": "device-plugin-config", "namespace": "gpu-operator"}
    data = {"default": plugin_config()}
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def pod(
    name: str,
    namespace: str,
    owner: str,
    node: str = "gpu-1",
    labels: dict[str, str] = PLUGIN,
) -> dict[str, Any]:
    """Return a running pod of a controller."""
    reference = {"kind": owner, "name": "old", "controller": True, "apiVersion": "apps/v1"}
    metadata = {"name": name, "namespace": namespace, "ownerReferences": [reference]}
    state = {"name": "main", "state": {"running": {}}, "ready": True, "image": "x"}
    ports = [{"name": "metrics", "containerPort": 9395}]
    container = {"name": "main", "image": "x", "ports": ports}
    labels = labels if namespace == "gpuhook" else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "labels": labels},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": "Running", "containerStatuses": [{**state, "restartCount": 0}]},
    }


@pytest.mark.parametrize("page", PAGES)
def test_page(page: str, cluster: ApiServer, tmp_path: Path) -> None:
    page_files(page, tmp_path)
    (tmp_path / "kubeconfig").write_text(json.dumps(cluster.kubeconfig()), encoding="utf-8")
    (tmp_path / "packaging").symlink_to(ROOT / "packaging")
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    env = {"PATH": path, "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "kubeconfig")}

    def run(script: str) -> Any:
        return run_command(["bash", "-o", "pipefail", "-c", f"cd {tmp_path}\n{script}"], env)

    run_lines(PAGES[page], run, Expected(REPLACES, before=BEFORE.get(page, {})))
