# SPDX-License-Identifier: Apache-2.0
"""The cluster's data on DRA, from an API server and through kubectl; sockets of drivers."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuhook.device_plugin.api_server.client import ApiServer, Purpose
from gpuhook.errors import GpuhookError
from gpuhook.node import dra_state, kubernetes_state, socket_state
from gpuhook.node_facts.sources.node_tree import DirectoryTree
from tests.unit import api_stand_in
from tests.unit.api_stand_in import Asked

UID = "0c0ffee0-2222-4222-8333-444455556666"
SLICE = {
    "spec": {
        "driver": "gpu.nvidia.com",
        "pool": {"name": "n1", "generation": 2, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "attributes": {"uuid": {"string": "GPU-1"}}}],
    }
}
OLD_SLICE = {
    "spec": {
        "driver": "gpu.amd.com",
        "pool": {"name": "n1"},
        "devices": [{"name": "gpu-0-s0", "basic": {"attributes": {"replica": {"int": 0}}}}],
    }
}
DAEMON_SETS = {
    "items": [
        {
            "metadata": {"name": name, "namespace": "gpu"},
            "spec": {"template": {"spec": {"serviceAccountName": f"{name}-account"}}},
        }
        for name in ("gpuhook-dra", "nvidia-dra-driver-gpu-kubelet-plugin", "dra-driver-cpu", "x")
    ]
}
PODS = {
    "items": [
        {
            "metadata": {"namespace": "a", "name": "ends", "deletionTimestamp": "now"},
            "spec": {"resourceClaims": [{"name": "g"}]},
        },
        {"metadata": {"namespace": "a", "name": "runs"}, "spec": {"resourceClaims": [{}]}},
        {"metadata": {"namespace": "a", "name": "other", "deletionTimestamp": "now"}, "spec": {}},
        {
            "metadata": {"namespace": "a", "name": "extended", "deletionTimestamp": "now"},
            "spec": {},
            "status": {"extendedResourceClaimStatus": {"resourceClaimName": "c"}},
        },
    ]
}
ANSWERS: dict[str, Any] = {
    "/version": {"minor": "36+"},
    "/apis/resource.k8s.io": {"versions": [{"version": "v1beta1"}, {"version": "v1"}]},
    "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%3Dn1": {
        "items": [SLICE, OLD_SLICE]
    },
    "/apis/resource.k8s.io/v1/deviceclasses": {
        "items": [{"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "x.y/gpu"}}]
    },
    "/apis/apps/v1/daemonsets": DAEMON_SETS,
    "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1": PODS,
}


@contextmanager
def server(tmp_path: Path, answers: dict[str, Any]) -> Iterator[Any]:
    """Serve these answers, and refuse permissions of gpuhook's account, and other paths."""

    def answer(asked: Asked) -> None:
        if asked.command == "POST":
            spec = asked.body["spec"]
            wanted = spec["resourceAttributes"]
            denied = [("create", "resourceslices")]
            if wanted.get("name") != "gpu.amd.com" or "gpuhook" in spec["user"]:
                denied.append(("associated-node:update", "resourceclaims"))
            is_denied = (wanted["verb"], wanted["resource"]) in denied
            if wanted.get("subresource") != "driver":
                is_denied &= "gpuhook" in spec["user"]
            asked.reply({"status": {"allowed": not is_denied}})
        elif asked.path in answers:
            asked.reply(answers[asked.path])
        else:
            api_stand_in.status(404, f"no {asked.path}")(asked)

    with api_stand_in.serving(tmp_path) as stand_in:
        stand_in.otherwise = answer
        client = ApiServer(stand_in.access)

        def get(path: str, resource: str, name: str) -> dict[str, Any]:
            return client.get(path, Purpose("get" if name else "list", resource, "a test"))

        def create(path: str, body: dict[str, Any], resource: str) -> dict[str, Any]:
            return client.create(path, body, Purpose("create", resource, "a test"))

        yield lambda: dra_state.dra_state(get, create, "n1")


EXPECTED = {
    "minor": 36,
    "versions": ["v1", "v1beta1"],
    "slices": [
        {"driver": "gpu.nvidia.com", "pool": "n1", "generation": 2, "count": 1,
         "devices": ["gpu-0"], "replicas": False},
        {"driver": "gpu.amd.com", "pool": "n1", "generation": None, "count": None,
         "devices": ["gpu-0-s0"], "replicas": True},
    ],
    "classes": [{"name": "gpu", "extendedResourceName": "x.y/gpu"}],
    "drivers": [
        {"namespace": "gpu", "name": "gpuhook-dra", "serviceAccount": "gpuhook-dra-account",
         "missing": ["create resourceslices", "associated-node:update resourceclaims/driver"]},
        {"namespace": "gpu", "name": "nvidia-dra-driver-gpu-kubelet-plugin",
         "serviceAccount": "nvidia-dra-driver-gpu-kubelet-plugin-account", "missing": []},
    ],
    "terminating": ["a/ends", "a/extended"],
    "refused": {},
}  # fmt: skip


def test_data_of_a_cluster_with_dra(tmp_path: Path) -> None:
    with server(tmp_path, ANSWERS) as state:
        assert state() == EXPECTED


def test_cluster_without_the_api(tmp_path: Path) -> None:
    with server(tmp_path, {"/version": {"minor": "x"}}) as state:
        assert state() == {"minor": None, "versions": []}
    with server(tmp_path, {"/version": {}, "/apis/resource.k8s.io": {"versions": "odd"}}) as state:
        assert state() == {"minor": None, "versions": []}


def test_a_part_that_is_refused_is_left_out(tmp_path: Path) -> None:
    answers = {path: found for path, found in ANSWERS.items() if "pods" not in path}
    with server(tmp_path, answers) as state:
        found = state()
    assert "terminating" not in found
    assert list(found["refused"]) == ["terminating"]
    assert found["slices"] == EXPECTED["slices"]


def test_server_that_does_not_answer_is_a_fault(tmp_path: Path) -> None:
    with server(tmp_path, {}) as state, pytest.raises(GpuhookError):
        state()


def test_odd_objects_are_empty(tmp_path: Path) -> None:
    odd = {
        path: {"items": [None, {"spec": [], "metadata": 5}]} if "/v1" in path else found
        for path, found in ANSWERS.items()
    }
    with server(tmp_path, odd) as state:
        found = state()
    assert found["slices"][0]["devices"] == []
    assert (found["drivers"], found["terminating"]) == ([], [])


def test_kubectl_reads_and_creates_reviews(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    answers = tmp_path / "answers.json"
    answers.write_text(json.dumps({"/api/v1/nodes/n1": {}, **ANSWERS}))
    program = tmp_path / "kubectl"
    program.write_text(
        "#!/usr/bin/env python3\nimport json, sys\n"
        f"answers = json.load(open({str(answers)!r}))\n"
        "if 'create' in sys.argv:\n"
        "    wanted = json.load(sys.stdin)['spec']\n"
        "    verb = wanted['resourceAttributes']['verb']\n"
        "    is_denied = verb in ('create', 'associated-node:update')\n"
        "    allowed = not is_denied or 'gpuhook' not in wanted['user']\n"
        "    print(json.dumps({'status': {'allowed': allowed}}))\n"
        "elif sys.argv[-1] in answers:\n    print(json.dumps(answers[sys.argv[-1]]))\n"
        "else:\n    sys.exit('Error from server (NotFound): none')\n"
    )
    program.chmod(0o755)
    found = kubernetes_state.collect({"KUBECONFIG": str(tmp_path / "config")}, "n1")
    assert found["dra"] == EXPECTED
    answers.write_text(json.dumps({"/api/v1/nodes/n1": {}, "/version": {"minor": "30"}}))
    found = kubernetes_state.collect({"KUBECONFIG": str(tmp_path / "config")}, "n1")
    assert found["dra"] == {"minor": 30, "versions": []}


def test_sockets_of_drivers_are_tried(tmp_path: Path) -> None:
    """A live socket, a dead one, a socket that is full, and paths that are too long."""
    root = tmp_path / ("deep" * 30)
    registry, plugins = (
        root / f"var/lib/kubelet/{name}" for name in ("plugins_registry", "plugins")
    )
    for place in (registry, plugins / "gpu.nvidia.com", root / "var/lib/kubelet/pods"):
        place.mkdir(parents=True)
    live, dead = registry / "gpu.nvidia.com-reg.sock", registry / f"gpu.nvidia.com-{UID}-reg.sock"
    full, odd = plugins / "gpu.nvidia.com/dra.sock", registry / "other-reg.sock"
    lines = []
    before = os.getcwd()
    for path, is_live in ((live, True), (dead, False), (full, True)):
        line = socket.socket(socket.AF_UNIX)
        os.chdir(path.parent)
        line.bind(path.name)
        os.chdir(before)
        if is_live:
            line.listen(0)
            lines.append(line)
        else:
            line.close()
    waiting = []
    for _ in range(2):
        one = socket.socket(socket.AF_UNIX)
        one.setblocking(False)
        waiting.append(one)
        os.chdir(full.parent)
        try:
            one.connect(full.name)
        except BlockingIOError:
            pass
        finally:
            os.chdir(before)
    odd.write_text("not a socket")
    try:
        found = socket_state.socket_states(DirectoryTree(str(root)))
    finally:
        for line in (*lines, *waiting):
            line.close()
    base = "/var/lib/kubelet"
    assert found == {
        f"{base}/plugins_registry/{live.name}": "",
        f"{base}/plugins_registry/{dead.name}": "Connection refused",
        f"{base}/plugins/gpu.nvidia.com/dra.sock": "",
    }


def test_machine_without_a_kubelet_has_no_sockets(tmp_path: Path) -> None:
    assert socket_state.socket_states(DirectoryTree(str(tmp_path))) == {}
