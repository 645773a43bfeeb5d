# SPDX-License-Identifier: Apache-2.0
"""The files that commands of the group `documents` read."""

from __future__ import annotations

import json
from typing import Any

from tests.record import images
from tests.record.groups.create_requests import FIRST, FOURTH

CONFIG = images.config(["NVIDIA_VISIBLE_DEVICES=0,3", "NVIDIA_DRIVER_CAPABILITIES=compute,video"])
_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "trainer"},
    "spec": {
        "runtimeClassName": "nvidia",
        "containers": [
            {
                "name": "main",
                "image": "cuda",
                "resources": {"limits": {"nvidia.com/gpu": 2}},
                "env": [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"}],
            },
            {"name": "side", "image": "busybox"},
        ],
    },
}
_DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "server"},
    "spec": {"template": {"spec": _POD["spec"]}},
}
_NO_GPU = {**_POD, "spec": {"containers": [{"name": "main", "image": "busybox"}]}}
_WRONG = {
    **_POD,
    "spec": {
        "containers": [
            {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "half"}}},
            {"name": "env", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]},
        ]
    },
}
_IMAGE = [{"Id": "x", "Config": {"Env": ["NVIDIA_VISIBLE_DEVICES=all", "CUDA_VERSION=12.4.1"]}}]
_SKOPEO = {"config": {"Env": ["NVIDIA_VISIBLE_DEVICES=0"]}, "os": "linux"}
WORKLOADS = {
    "pod.yaml": json.dumps(_POD),
    "deployment.yaml": json.dumps(_DEPLOYMENT),
    "no-gpu.yaml": json.dumps(_NO_GPU),
    "wrong.yaml": json.dumps(_WRONG),
    "image.json": json.dumps(_IMAGE),
    "skopeo.json": json.dumps(_SKOPEO),
    "broken.json": "{",
    "list.json": "[1]",
    "text.txt": "hello\n",
    "empty.yaml": "",
}

SPECS = {
    "net.yaml": (
        "cdiVersion: 0.6.0\nkind: example.com/net\ndevices:\n- name: eth0\n"
        "  containerEdits:\n    env: [A=1]\n    deviceNodes: [{path: /dev/null}]\n"
    ),
    "again.json": json.dumps(
        {
            "cdiVersion": "0.6.0",
            "kind": "example.com/net",
            "devices": [{"name": "eth1", "containerEdits": {"env": ["B=2"]}}],
        }
    ),
    "twice.json": json.dumps(
        {
            "cdiVersion": "0.6.0",
            "kind": "nvidia.com/gpu",
            "devices": [{"name": "0", "containerEdits": {"env": ["B=2"]}}],
        }
    ),
    "broken.yaml": "a: [\n",
    "old.yaml": "cdiVersion: 0.1.0\nkind: a.b/c\ndevices: []\n",
    "note.txt": "no spec\n",
}

PLUGIN = """\
version: v1
flags:
  migStrategy: none
sharing:
  timeSlicing:
    resources:
    - name: nvidia.com/gpu
      replicas: 4
"""
PLUGINS = {
    "time-slicing": PLUGIN,
    "renamed": PLUGIN.replace("  timeSlicing:\n", "  timeSlicing:\n    renameByDefault: true\n"),
    "mps": PLUGIN.replace("timeSlicing", "mps"),
    "mixed": "version: v1\nflags:\n  migStrategy: mixed\n  plugin:\n    passDeviceSpecs: true\n",
    "no-version": "flags: {}\n",
    "version": "version: v9\n",
    "unknown-key": "version: v1\nflags:\n  migStrategi: none\n",
    "wrong-value": "version: v1\nflags:\n  migStrategy: some\n",
    "wrong-type": "version: v1\nflags:\n  plugin:\n    passDeviceSpecs: [1]\n",
    "replicas-zero": PLUGIN.replace("4", "0"),
    "replicas-word": PLUGIN.replace("4", "four"),
    "resource-bad": PLUGIN.replace("nvidia.com/gpu", "gpu"),
    "broken": "version: [\n",
    "empty": "",
    "list": "- a\n",
    "resources": (
        "version: v1\nresources:\n  gpus:\n  - pattern: '*H100*'\n    name: nvidia.com/h100\n"
    ),
    "failing": PLUGIN + "    failRequestsGreaterThanOne: true\n",
}

SETTINGS = {
    "plain": "request:\n  acceptVolumeMounts: true\n",
    "all": (
        "cdi:\n  specDirs: [/etc/cdi]\n  defaultKind: example.com/gpu\n  onStale: refuse\n"
        "request:\n  driverCapabilities: [utility]\n  onRefusal: fail\n"
        "runtime:\n  lowLevelRuntimes: [crun]\nlimits:\n  hints: [jax]\n"
    ),
    "unknown-key": "request:\n  acceptVolumeMount: true\n",
    "unknown-section": "requests: {}\n",
    "wrong-type": "request:\n  legacyImages: maybe\n",
    "wrong-value": "cdi:\n  onStale: never\n",
    "relative": "cdi:\n  specDirs: [etc/cdi]\n",
    "key-twice": "cdi: {}\ncdi: {}\n",
    "broken": "a: [\n",
    "tab": "a:\n\tb: 1\n",
    "empty": "",
    "list": "- a\n",
    "alias": "a: &x [1]\nb: *x\n",
    "binary": "\x00\x01",
}

TOOLKIT = {
    "empty": "",
    "some": (
        'disable-require = true\nswarm-resource = "A, B"\n'
        "accept-nvidia-visible-devices-as-volume-mounts = true\n"
        'supported-driver-capabilities = "compute,utility"\n'
        '[nvidia-container-cli]\nroot = "/run/driver"\nno-cgroups = true\nuser = "root:video"\n'
        '[nvidia-container-runtime]\nruntimes = ["crun"]\nmode = "cdi"\nlog-level = "debug"\n'
        '[nvidia-container-runtime.modes.cdi]\nspec-dirs = ["/a"]\ndefault-kind = "a.b/c"\n'
        "[features]\nignore-imex-channel-requests = true\n"
    ),
    "unknown": "what = 1\n[other]\nx = 2\n",
    "wrong": "disable-require = 5\n[nvidia-container-runtime]\nruntimes = 5\n",
    "broken": "a = [\n",
}

_POLICY = {
    "apiVersion": "nvidia.com/v1",
    "kind": "ClusterPolicy",
    "spec": {
        "driver": {"enabled": False},
        "toolkit": {"enabled": True, "version": "v1.17.0"},
        "devicePlugin": {
            "enabled": True,
            "env": [{"name": "DEVICE_ID_STRATEGY", "value": "index"}],
        },
        "mig": {"strategy": "mixed"},
        "dcgmExporter": {"enabled": True},
        "unknown": {"x": 1},
    },
}
POLICIES = {
    "plain": json.dumps(_POLICY),
    "empty": "",
    "no-policy": json.dumps({"kind": "Pod"}),
    "broken": "{",
}


def entry(identity: str, **more: Any) -> dict[str, Any]:
    """Return the ledger's entry of a container."""
    return {
        "schema": "gpuhook/ledger/v1",
        "id": identity,
        "root": "/run/runc",
        "since": 1700000000.5,
        "bundle": f"/run/bundles/{identity}",
        "devices": ["nvidia.com/gpu=0"],
        "nodes": ["/dev/nvidia0", "/dev/nvidiactl"],
        "replicas": [],
        "requested": ["0"],
        "source": "NVIDIA_VISIBLE_DEVICES",
        "route": "wrapper",
        "runtime": "/usr/bin/runc",
        "pid": 0,
        "started": None,
        **more,
    }


_ALL = [f"/dev/nvidia{minor}" for minor in range(8)]
_MEMORY = {"device": FIRST, "hard": 4 << 30, "soft": 2 << 30, "asked": True, "by": "driver"}
ENTRIES = {
    "one": (
        "00000001",
        entry("one", pod="trainer-0", namespace="team-a", container="main", milliseconds=12.5),
    ),
    "two": (
        "00000002",
        entry(
            "two",
            replicas=[f"{FOURTH}::1"],
            devices=[f"nvidia.com/gpu={FOURTH}"],
            nodes=["/dev/nvidia2"],
            route="cdi",
        ),
    ),
    "limited": ("00000003", entry("limited", memory=[{**_MEMORY, "trouble": "", "cgroups": []}])),
    "warned": (
        "00000004",
        entry(
            "warned",
            route="",
            devices=[],
            nodes=[],
            warnings=[{"code": "GH1007", "message": "ignored"}],
        ),
    ),
    "f" * 64: (
        "00000005",
        entry("f" * 64, nodes=_ALL, devices=["nvidia.com/gpu=all"], requested=["all"]),
    ),
}

_TOML = 'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd]\n'
_NVIDIA = 'default_runtime_name = "nvidia"\n'
NODES: dict[str, dict[str, str]] = {
    "containerd": {"/etc/containerd/config.toml": _TOML},
    "containerd-nvidia": {
        "/etc/containerd/config.toml": _TOML
        + _NVIDIA
        + '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\n'
        + 'runtime_type = "io.containerd.runc.v2"\n'
        + '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]\n'
        + 'BinaryName = "/usr/bin/nvidia-container-runtime"\n'
    },
    "containerd-broken": {"/etc/containerd/config.toml": "version = [\n"},
    "docker": {
        "/etc/docker/daemon.json": '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}'
    },
    "docker-broken": {"/etc/docker/daemon.json": "{"},
    "settings": {"/etc/gpuhook/config.yaml": "request: 5\n"},
    "spec": {"/etc/cdi/net.yaml": SPECS["net.yaml"], "/etc/cdi/broken.yaml": "a: [\n"},
    "toolkit": {"/etc/nvidia-container-runtime/config.toml": TOOLKIT["some"]},
    "versions": {"/sys/module/nvidia/version": "590.10.01\n"},
}
