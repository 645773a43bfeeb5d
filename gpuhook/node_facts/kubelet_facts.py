# SPDX-License-Identifier: Apache-2.0
"""Facts that several checks of Kubernetes use: kubelet, device plugins, handlers, API server."""

from __future__ import annotations

import os
from dataclasses import dataclass

from gpuhook.node_facts import program_facts
from gpuhook.node_facts.check import absent, fact
from gpuhook.node_facts.sources import engine_handlers, kubelet_files, node_readings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from gpuhook.node_facts.check import ExaminedNode, Finding
    from gpuhook.node_facts.sources.engine_handlers import Handlers
    from gpuhook.node_facts.sources.kubelet_files import PluginPod

# The kubelet is a part of k3s, and of kubelite in microk8s.
KUBELETS = frozenset({"kubelet", "kubelite", "hyperkube", "k3s", "k3s-agent", "k3s-server"})
UNITS = (
    "kubelet.service",
    "k3s.service",
    "k3s-agent.service",
    "rke2-server.service",
    "rke2-agent.service",
    "snap.microk8s.daemon-kubelite.service",
    "k0scontroller.service",
    "k0sworker.service",
)
NVIDIA, OURS, OTHER = "NVIDIA's", "gpuhook's", "another"
_OTHERS = ("vgpu-device-plugin", "gpushare-device-plugin", "gpushare-device-plugin-v2")


@dataclass(frozen=True, slots=True)
class PluginFacts:
    """A process that is a device plugin for GPUs: `vendor` is NVIDIA, OURS or OTHER."""

    pid: int
    vendor: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kubelet:
    """The kubelet: `directory` is "" if the node has none.

    `processes`: whether the processes of the node are known. `running` is the name of the kubelet's
    process, `unit` the systemd unit that starts it; "" if there is none.
    """

    directory: str
    processes: bool
    running: str = ""
    unit: str = ""
    unit_state: str = ""
    plugins: tuple[PluginFacts, ...] = ()

    @property
    def plugin_directory(self) -> str:
        """The directory of the device plugins' sockets."""
        return f"{self.directory}/device-plugins"

    @property
    def restart(self) -> str:
        """The command that restarts it."""
        if self.unit.startswith("snap."):
            return "sudo snap restart microk8s"
        return f"sudo systemctl restart {(self.unit or 'kubelet.service').removesuffix('.service')}"


@fact
def kubelet(node: ExaminedNode) -> Kubelet:
    """Return the kubelet of the node."""
    processes = node.readings.document(node_readings.PROCESSES)
    running = next((one for one in processes or () if _name(one) in KUBELETS), None)
    unit, state = _unit(node)
    return Kubelet(
        directory=kubelet_files.directory(node.tree, running["argv"] if running else ()),
        processes=processes is not None,
        running=_name(running) if running else "",
        unit=unit,
        unit_state=state,
        plugins=tuple(
            PluginFacts(one["pid"], vendor, tuple(one["argv"]))
            for one in processes or ()
            if (vendor := _vendor(one["argv"]))
        ),
    )


@fact
def handlers(node: ExaminedNode) -> Handlers:
    """Return the runtime handlers of the node's engines."""
    dump = node.readings.document(node_readings.CONTAINERD)
    return engine_handlers.engine_handlers(node.tree, dump["config"] if dump else "")


@fact
def pods(node: ExaminedNode) -> tuple[PluginPod, ...]:
    """Return the pods of device plugins."""
    directory = kubelet(node).directory
    return kubelet_files.plugin_pods(node.tree, directory) if directory else ()


@fact
def api(node: ExaminedNode) -> dict[str, Any] | None:
    """Return the answers of the API server, None without an answer."""
    found = node.readings.document(node_readings.API)
    return found if isinstance(found, dict) else None


@fact
def api_node(node: ExaminedNode) -> dict[str, Any] | None:
    """Return the node as the API server has it, None without an answer."""
    found = (api(node) or {}).get("node")
    return found if isinstance(found, dict) else None


def no_api(node: ExaminedNode) -> Finding | None:
    """Return why the API server's object of the node is unknown, None if it is known."""
    return None if api_node(node) is not None else without_api(node)


def without_api(node: ExaminedNode) -> Finding:
    """Return the finding that a check needs the API server, and why there is no answer."""
    trouble = node.readings.of(node_readings.API).trouble or "it did not answer"
    return absent(f"this needs the API server: {trouble}")


def restart(found: Iterable[PluginPod]) -> str:
    """Return the command that restarts the pods of the device plugin."""
    for pod in found:
        if pod.daemon_set:
            return f"kubectl -n {pod.namespace} rollout restart daemonset/{pod.daemon_set}"
    return "kubectl get daemonsets -A | grep device-plugin"


def no_kubelet(node: ExaminedNode) -> Finding | None:
    """Return that the node is not in a cluster, None if it is or if that is unknown."""
    found = kubelet(node)
    if not found.directory:
        return absent("this node does not run Kubernetes")
    is_known = found.processes and not found.running and not found.unit
    if is_known and not _is_node(node, found.directory):
        return absent(f"{found.directory} exists, but no unit starts a kubelet")
    return None


def _is_node(node: ExaminedNode, directory: str) -> bool:
    return any(
        node.tree.status(path) is not None
        for path in (f"{directory}/config.yaml", f"{directory}/device-plugins/kubelet.sock")
    )


def _unit(node: ExaminedNode) -> tuple[str, str]:
    """Return the unit that starts a kubelet here, and its state; ("", "") if none is installed."""
    for name in UNITS:
        found = program_facts.unit(node, name)
        if found.get("load") == "loaded":
            return name, found.get("active", "")
    return "", ""


def _program(argv: Sequence[str]) -> str:
    first = argv[0].split() if argv else []  # k3s writes "k3s agent" into its argv[0]
    return os.path.basename(first[0]) if first else ""


def _name(process: dict[str, Any]) -> str:
    return _program(process["argv"]) or str(process["name"])


def _vendor(argv: Sequence[str]) -> str:
    name = _program(argv)
    if name == "nvidia-device-plugin":
        return NVIDIA
    if name in _OTHERS:
        return OTHER
    is_ours = any("gpuhook" in one for one in argv[:6]) and "device-plugin" in argv
    return OURS if is_ours else ""
