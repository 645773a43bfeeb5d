# SPDX-License-Identifier: Apache-2.0
"""The cluster's data about a node, read through a simulated kubectl."""

from __future__ import annotations

import json

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.node import kubernetes_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

NODE = {
    "metadata": {"name": "n1", "labels": {"a": "b"}, "managedFields": [{"manager": "kubelet"}]},
    "spec": {"unschedulable": True},
    "status": {
        "capacity": {"nvidia.com/gpu": "4"},
        "allocatable": {"nvidia.com/gpu": "3"},
        "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "now"}],
        "nodeInfo": {"kubeletVersion": "v1.32.1", "containerRuntimeVersion": "containerd://2.0.2"},
    },
}
CLASSES = {"items": [{"metadata": {"name": "nvidia"}, "handler": "nvidia"}]}
DAEMON_SETS = {
    "items": [
        {"metadata": {"name": "kube-proxy", "namespace": "kube-system"}},
        {
            "metadata": {"name": "nvidia-device-plugin", "namespace": "gpu"},
            "spec": {"template": {"spec": {"runtimeClassName": "nvidia"}}},
            "status": {"desiredNumberScheduled": 2, "numberReady": 1},
        },
    ]
}


def _kubectl(directory: Path, answers: dict[str, object]) -> dict[str, str]:
    """Make a kubectl that answers for these paths of the API, and refuses all others."""
    lines = "".join(
        f"  */{end}) cat <<'END'\n{json.dumps(answer)}\nEND\n  ;;\n"
        for end, answer in answers.items()
    )
    script = f'#!/bin/sh\nfor path; do :; done\ncase "$path" in\n{lines}'
    script += '  *) echo "Error from server (Forbidden): $path is forbidden" >&2; exit 1;;\nesac\n'
    program = directory / "kubectl"
    program.write_text(script, encoding="utf-8")
    program.chmod(0o755)
    return {"KUBECONFIG": str(directory / "config")}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_only_needed_data_is_kept(here: Path) -> None:
    answers = {"nodes/n1": NODE, "runtimeclasses": CLASSES, "daemonsets": DAEMON_SETS}
    without_dra = {"version": {"minor": "31+"}, "resource.k8s.io": {}}
    found = kubernetes_state.collect(_kubectl(here, {**answers, **without_dra}), "n1")
    assert found == {
        "source": "kubectl",
        "node": {
            "name": "n1",
            "labels": {"a": "b"},
            "capacity": {"nvidia.com/gpu": "4"},
            "allocatable": {"nvidia.com/gpu": "3"},
            "conditions": [{"type": "Ready", "status": "True", "reason": None, "message": None}],
            "unschedulable": True,
            "kubelet": "v1.32.1",
            "engine": "containerd://2.0.2",
        },
        "runtimeClasses": [{"name": "nvidia", "handler": "nvidia"}],
        "daemonSets": [
            {
                "namespace": "gpu",
                "name": "nvidia-device-plugin",
                "wanted": 2,
                "ready": 1,
                "images": [],
                "runtimeClass": "nvidia",
            }
        ],
        "dra": {"minor": 31, "versions": []},
        "refused": {},
    }


def test_forbidden_data_is_left_out_and_reported(here: Path) -> None:
    found = kubernetes_state.collect(_kubectl(here, {"nodes/n1": NODE}), "n1")
    assert "runtimeClasses" not in found
    assert "is forbidden" in found["refused"]["runtimeClasses"]


def test_cluster_that_refuses_all_requests_is_a_fault(here: Path) -> None:
    environ = _kubectl(here, {})
    with pytest.raises(GpuhookError, match="forbidden") as told:
        kubernetes_state.collect(environ, "n1")
    assert told.value.code == "GH1905"


def test_without_kubectl_and_service_account_nothing_is_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GpuhookError, match="no kubectl") as told:
        kubernetes_state.collect({}, "n1")
    assert told.value.code == "GH1905"


def test_response_of_another_form_is_empty(here: Path) -> None:
    odd = {"metadata": [], "status": {"conditions": {"a": 1}, "capacity": "many"}}
    answers = {"nodes/n1": odd, "runtimeclasses": {"items": "none"}, "daemonsets": []}
    found = kubernetes_state.collect(_kubectl(here, answers), "n1")
    assert found["node"]["capacity"] == {}
    assert found["node"]["conditions"] == []
    assert found["runtimeClasses"] == []
    assert found["daemonSets"] == []
