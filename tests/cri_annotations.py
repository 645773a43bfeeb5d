# SPDX-License-Identifier: Apache-2.0
"""The annotations of a config.json as CRI-O and containerd write them.

Sources: CRI-O, internal/factory/container/container.go (SpecAddAnnotations) for containers and
server/sandbox_run_linux.go for sandboxes; containerd, internal/cri/server/container_create.go and
internal/cri/annotations. A later key replaces an earlier one, as it does there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

NAME = "cdi.k8s.io/nvidia-device-plugin_5c9a1f7e"  # the key of a device plugin
POD, NAMESPACE, CONTAINER = "trainer", "training", "main"
_LABELS = {"io.kubernetes.pod.name": POD, "io.kubernetes.pod.namespace": NAMESPACE}
_UID = "0c7e2f1a-5b1d-4f0e-9a55-6d2c8b3e4f10"
_HASH = {"io.kubernetes.container.hash": "b6f1d2c3"}  # the kubelet writes it in any case


def crio(pod: Mapping[str, str], kubelet: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return those of a CRI-O container: the pod's first, then CRI-O's, then the kubelet's."""
    said = {**_HASH, **(kubelet or {})}
    return {
        **pod,
        "io.container.manager": "cri-o",
        "io.kubernetes.cri-o.ContainerType": "container",
        "io.kubernetes.cri-o.Annotations": json.dumps(said),
        **said,
        **_LABELS,
        "io.kubernetes.container.name": CONTAINER,
    }


def crio_container(
    id_: str, mount_point: str, pod: Mapping[str, str], kubelet: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return all those of a CRI-O container 1.3x with its root file system at `mount_point`."""
    own = {
        "Image": "registry.example/trainer:1",
        "ImageName": "registry.example/trainer:1",
        "ImageRef": "5" * 64,
        "Name": f"k8s_{CONTAINER}_{POD}_{NAMESPACE}_{_UID}_0",
        "ContainerID": id_,
        "SandboxID": "b" * 64,
        "SandboxName": f"k8s_{POD}_{NAMESPACE}_{_UID}_0",
        "LogPath": f"/var/log/pods/{NAMESPACE}_{POD}_{_UID}/{CONTAINER}/0.log",
        "TTY": "false",
        "Stdin": "false",
        "StdinOnce": "false",
        "ResolvPath": "/run/containers/storage/overlay-containers/b/userdata/resolv.conf",
        "MountPoint": mount_point,
        "SeccompProfilePath": "RuntimeDefault",
        "Created": "2026-01-02T03:04:05.678901234Z",
        "PlatformRuntimePath": "",
        "Metadata": json.dumps({"name": CONTAINER}),
        "Labels": json.dumps({**_LABELS, "io.kubernetes.container.name": CONTAINER}),
        "Volumes": "[]",
        "IP.0": "10.85.0.2",
    }
    keys = {f"io.kubernetes.cri-o.{key}": value for key, value in own.items()}
    return {**crio(pod, kubelet), **keys, "io.kubernetes.pod.uid": _UID}


def crio_sandbox(pod: Mapping[str, str]) -> dict[str, str]:
    """Return those of a pod's sandbox of CRI-O: there the pod's replace CRI-O's."""
    return {
        "io.container.manager": "cri-o",
        "io.kubernetes.cri-o.ContainerType": "sandbox",
        "io.kubernetes.cri-o.Annotations": json.dumps(dict(pod)),
        **pod,
        **_LABELS,
        "io.kubernetes.container.name": "POD",
    }


def containerd(passed: Mapping[str, str], kind: str = "container") -> dict[str, str]:
    """Return those of a container of containerd: what its configuration passes, then its own."""
    name = {"io.kubernetes.cri.container-name": CONTAINER} if kind == "container" else {}
    return {
        **passed,
        "io.kubernetes.cri.sandbox-name": POD,
        "io.kubernetes.cri.sandbox-namespace": NAMESPACE,
        **name,
        "io.kubernetes.cri.container-type": kind,
    }
