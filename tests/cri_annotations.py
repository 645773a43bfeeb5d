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
_HASH = {"io.kubernetes.container.hash": "b6f1d2c3"}  # the kubelet writes it in any case


def crio(pod: Mapping[str, str], kubelet: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return those of a container of CRI-O: the pod's first, then CRI-O's, then the kubelet's."""
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
