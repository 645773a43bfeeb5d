# SPDX-License-Identifier: Apache-2.0
"""Which engine of a host is meant where nobody names one: the kubelet's, else one that runs."""

from __future__ import annotations

import os

from gpuhook.engines.configuring.table import ENGINES
from gpuhook.errors import fault
from gpuhook.installing.host import inside

CHOICES = ("auto", *ENGINES, "none")
# In this order: the kubelet's own first. Docker's containerd has a socket as well.
_SOCKETS = (
    ("crio", "/run/crio/crio.sock"),
    ("docker", "/run/cri-dockerd.sock"),
    ("containerd", "/run/k3s/containerd/containerd.sock"),
    ("containerd", "/run/k0s/containerd.sock"),
    ("containerd", "/var/snap/microk8s/common/run/containerd.sock"),
)
_ALONE = (
    ("docker", "/run/docker.sock"),
    ("containerd", "/run/containerd/containerd.sock"),
    ("podman", "/run/podman/podman.sock"),
)
_KUBELET = "/var/lib/kubelet"


def engines(root: str, chosen: str) -> tuple[str, ...]:
    """Return the engine to configure, none for "none". Raises GH2106 where "auto" finds none."""
    if chosen == "none":
        return ()
    if chosen != "auto":
        return (chosen,)
    alone: tuple[tuple[str, str], ...] = _ALONE
    if os.path.isdir(inside(root, _KUBELET)):
        alone = tuple(sorted(_ALONE, key=lambda one: one[0] != "containerd"))
    for engine, socket in (*_SOCKETS, *alone):
        if os.path.exists(inside(root, socket)):
            return (engine,)
    raise fault("GH2106", root=root)
