# SPDX-License-Identifier: Apache-2.0
"""The distributions of containerd: its own packages, and those of Kubernetes distributions."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.engines.read import containerd_config


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution of containerd; its configuration may be generated from `templates`."""

    name: str
    path: str
    restart: str
    configure: str
    templates: tuple[str, ...] = ()


CTK = "nvidia-ctk runtime configure --runtime="
CONTAINERD = Distribution(
    "containerd", containerd_config.PATH, "systemctl restart containerd", f"{CTK}containerd"
)
_RANCHER = "/var/lib/rancher/{0}/agent/etc/containerd/"
_TEMPLATES = ("config-v3.toml.tmpl", "config.toml.tmpl")
DISTRIBUTIONS = (
    CONTAINERD,
    *(
        Distribution(
            name,
            f"{_RANCHER.format(name)}config.toml",
            f"systemctl restart {unit} # on an agent: {name}-agent",
            "nvidia-container-runtime --version",
            tuple(f"{_RANCHER.format(name)}{template}" for template in _TEMPLATES),
        )
        for name, unit in (("k3s", "k3s"), ("rke2", "rke2-server"))
    ),
    Distribution(
        "microk8s",
        "/var/snap/microk8s/current/args/containerd.toml",
        "snap restart microk8s.daemon-containerd",
        "microk8s enable nvidia",
        ("/var/snap/microk8s/current/args/containerd-template.toml",),
    ),
    Distribution(
        "k0s",
        "/etc/k0s/containerd.toml",
        "systemctl restart k0sworker # on a controller: k0scontroller",
        f"{CTK}containerd --config=/etc/k0s/containerd.toml"
        " --drop-in-config=/etc/k0s/containerd.d/nvidia.toml",
    ),
)
