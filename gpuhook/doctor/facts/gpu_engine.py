# SPDX-License-Identifier: Apache-2.0
"""The engine of a node that has to give GPUs to containers."""

from __future__ import annotations

import re

from gpuhook.node_facts.engine_facts import installed_engines, kubelet
from gpuhook.node_facts.program_facts import processes
from gpuhook.node_facts.sources.node_tree import text
from gpuhook.vendors.nvidia.doctor.facts import driver_facts, driver_user_space, gpu_loss
from gpuhook.vendors.nvidia.driver.driver_locations import GKE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node_facts.check import ExaminedNode

_ENDPOINT = re.compile(r"(?:containerRuntimeEndpoint:|--container-runtime-endpoint[= ])\s*\"?(\S+)")


def why_no_gpus(node: ExaminedNode, engine: str) -> str:
    """Return why an engine need not give GPUs to containers, "" if it has to.

    The engine of the kubelet has to, or the only engine of a node.
    """
    space = driver_user_space.driver_user_space(node)
    is_other_kind = driver_facts.is_wsl(node) or driver_facts.is_tegra(node)
    has_gpu = driver_facts.has_gpu(node) or gpu_loss.missing_gpus(node)
    if not (has_gpu or is_other_kind or any(space.versions.values())):
        return "this machine has no NVIDIA GPU"
    if space.root == GKE:
        return "GKE's device plugin adds the device nodes and mounts"
    if kubelet(node) and engine in ("containerd", "crio"):
        endpoint = _endpoint(node)
        is_its = (
            engine in endpoint
            if endpoint
            else not {"containerd", "crio"} <= installed_engines(node)
        )
        return "" if is_its else "the kubelet uses a different engine"
    return "" if installed_engines(node) == {engine} else "another engine does"


def _endpoint(node: ExaminedNode) -> str:
    """Return the socket of the engine that the kubelet uses, "" if it is unknown."""
    sources = [" ".join(one["argv"]) for one in processes(node, "kubelet")]
    sources += [
        text(node.tree, f"{kubelet(node)}/{name}") or ""
        for name in ("kubeadm-flags.env", "config.yaml")
    ]
    for words in sources:
        found = _ENDPOINT.search(words)
        if found:
            return found.group(1).strip("\"'")
    return ""
