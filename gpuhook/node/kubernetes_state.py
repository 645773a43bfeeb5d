# SPDX-License-Identifier: Apache-2.0
"""The cluster's data about this node, from its API server: nothing is stored there.

A pod uses its service account; other processes use kubectl, with the user's credentials or, for
root on a node, the kubelet's. Parts without permission are skipped and reported.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time

from gpuhook.device_plugin.api_server import service_account
from gpuhook.errors import GpuhookError, fault
from gpuhook.host import documents
from gpuhook.host.hot import fastjson
from gpuhook.node import dra_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from gpuhook.node.dra_state import Create, Get

TIMEOUT = 8  # seconds, for each request
_MAX_ANSWER = 32 << 20
# Credentials of nodes: kubeadm's and the clouds' kubelet, k3s, rke2, microk8s, k0s.
KUBECONFIGS = (
    "/etc/kubernetes/kubelet.conf",
    "/var/lib/kubelet/kubeconfig",
    "/etc/rancher/k3s/k3s.yaml",
    "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
    "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
    "/var/snap/microk8s/current/credentials/client.config",
    "/var/lib/k0s/kubelet.conf",
)
_PROGRAMS = (
    ("kubectl",),
    ("k3s", "kubectl"),
    ("/var/lib/rancher/rke2/bin/kubectl",),
    ("/snap/bin/microk8s", "kubectl"),
    ("k0s", "kubectl"),
)
_FEATURE = "doctor's check of the cluster"
_NODES = "/api/v1/nodes"
_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
_DAEMON_SETS = "/apis/apps/v1/daemonsets"


def collect(environ: Mapping[str, str] | None = None, node: str = "") -> dict[str, Any]:
    """Return the answers of the API server: the reading `kubernetes`.

    {"source": the credentials, "node": {"name", "labels", "capacity", "allocatable", "conditions":
    [{"type", "status", "reason", "message"}], "unschedulable", "kubelet", "engine"},
    "runtimeClasses": [{"name", "handler"}], "daemonSets": [{"namespace", "name", "wanted", "ready",
    "images", "runtimeClass"}] those of device plugins, "dra": see dra_state, "refused": {part:
    reason}}. A refused key is skipped. Raises GH1905 without any answer.
    """
    environ = os.environ if environ is None else environ
    name = node or environ.get("NODE_NAME", "") or os.uname().nodename.lower()
    get, create, source = _client(environ)
    found: dict[str, Any] = {"source": source}
    refused: dict[str, str] = {}
    parts: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("node", lambda: _node(get(f"{_NODES}/{name}", "nodes", name))),
        ("runtimeClasses", lambda: _classes(get(_CLASSES, "runtimeclasses", ""))),
        ("daemonSets", lambda: _daemon_sets(get(_DAEMON_SETS, "daemonsets", ""))),
        ("dra", lambda: dra_state.dra_state(get, create, name)),
    )
    end = time.monotonic() + TIMEOUT
    for part, ask in parts:
        if time.monotonic() > end:
            refused[part] = "the API server took too long"
            continue
        try:
            found[part] = ask()
        except GpuhookError as error:
            refused[part] = error.message
    if len(refused) == len(parts):
        raise fault("GH1905", reason=next(iter(refused.values())))
    return {**found, "refused": refused}


def _client(environ: Mapping[str, str]) -> tuple[Get, Create, str]:
    access = service_account.in_cluster(environ)
    if access is not None:
        from gpuhook.device_plugin.api_server.client import ApiServer, Purpose

        server = ApiServer(access, timeout=TIMEOUT)

        def get(path: str, resource: str, name: str) -> dict[str, Any]:
            return server.get(path, Purpose("get" if name else "list", resource, _FEATURE))

        def create(path: str, body: dict[str, Any], resource: str) -> dict[str, Any]:
            return server.create(path, body, Purpose("create", resource, _FEATURE))

        return get, create, "the service account of this pod"
    command = _kubectl(environ)
    return (
        lambda path, _resource, _name: _by_kubectl(command, path),
        lambda path, body, _resource: _by_kubectl(command, path, body),
        " ".join(command),
    )


def _kubectl(environ: Mapping[str, str]) -> list[str]:
    """Return the kubectl of this node with its credentials; GH1905 without one."""
    program = next((one for one in _PROGRAMS if shutil.which(one[0])), None)
    if program is None:
        raise fault("GH1905", reason="there is no kubectl here, and no service account")
    own = environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")
    if environ.get("KUBECONFIG") or os.access(own, os.R_OK) or len(program) > 1:
        return [*program]
    found = next((path for path in KUBECONFIGS if os.access(path, os.R_OK)), None)
    if found is None:
        raise fault("GH1905", reason="kubectl has no credentials that this user can read")
    return [*program, f"--kubeconfig={found}"]


def _by_kubectl(
    command: list[str], path: str, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the answer for a path: of a GET, or of a POST with `body`."""
    call = ["get", "--raw", path] if body is None else ["create", "-f", "-", "--raw", path]
    try:
        done = subprocess.run(
            [*command, f"--request-timeout={TIMEOUT}s", *call],
            input=b"" if body is None else json.dumps(body).encode(),
            capture_output=True,
            timeout=TIMEOUT + 2,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        reason = f"{command[0]} did not answer within {TIMEOUT + 2} s"
        raise fault("GH1905", reason=reason) from error
    except OSError as error:
        raise fault("GH1905", reason=f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise fault("GH1905", reason=lines[-1] if lines else f"{command[0]}: {done.returncode}")
    try:
        found = documents.parse_json(done.stdout[:_MAX_ANSWER])
    except ValueError as error:
        raise fault("GH1905", reason=f"{command[0]} did not answer in JSON") from error
    return found if isinstance(found, dict) else {}


def _node(found: dict[str, Any]) -> dict[str, Any]:
    metadata, status = fastjson.fields(found, "metadata"), fastjson.fields(found, "status")
    info = fastjson.fields(status, "nodeInfo")
    return {
        "name": metadata.get("name"),
        "labels": fastjson.fields(metadata, "labels"),
        "capacity": fastjson.fields(status, "capacity"),
        "allocatable": fastjson.fields(status, "allocatable"),
        "conditions": [
            {key: one.get(key) for key in ("type", "status", "reason", "message")}
            for one in fastjson.objects(status, "conditions")
        ],
        "unschedulable": bool(fastjson.fields(found, "spec").get("unschedulable")),
        "kubelet": info.get("kubeletVersion"),
        "engine": info.get("containerRuntimeVersion"),
    }


def _classes(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"name": fastjson.fields(one, "metadata").get("name"), "handler": one.get("handler")}
        for one in fastjson.objects(found, "items")
    ]


def _daemon_sets(found: dict[str, Any]) -> list[dict[str, Any]]:
    listed = []
    for one in fastjson.objects(found, "items"):
        metadata, status = fastjson.fields(one, "metadata"), fastjson.fields(one, "status")
        if "device-plugin" not in str(metadata.get("name")):
            continue
        pod = fastjson.fields(one, "spec", "template", "spec")
        listed.append(
            {
                "namespace": metadata.get("namespace"),
                "name": metadata.get("name"),
                "wanted": status.get("desiredNumberScheduled"),
                "ready": status.get("numberReady"),
                "images": [
                    container.get("image") for container in fastjson.objects(pod, "containers")
                ],
                "runtimeClass": pod.get("runtimeClassName"),
            }
        )
    return listed
