# SPDX-License-Identifier: Apache-2.0
"""Facts that several checks of Kubernetes use: kubelet, device plugins, handlers, API server."""

from __future__ import annotations

import os
from dataclasses import dataclass

from gpuhook.doctor.check import NOT_APPLICABLE, Finding, fact
from gpuhook.doctor.facts import driver_facts
from gpuhook.node import engine_handlers, kubelet_files, node_readings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from gpuhook.doctor.check import ExaminedNode, Findings
    from gpuhook.node.engine_handlers import Handlers
    from gpuhook.node.kubelet_files import PluginPod

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
    document = node.readings.document(node_readings.PROCESSES)
    listed = (
        [one for one in document if isinstance(one, dict)] if isinstance(document, list) else []
    )
    argvs = [_argv(one) for one in listed]
    names = [_process_name(one, argv) for one, argv in zip(listed, argvs, strict=True)]
    index = next((index for index, name in enumerate(names) if name in KUBELETS), None)
    unit, state = _unit(node)
    return Kubelet(
        directory=kubelet_files.directory(node.tree, () if index is None else argvs[index]),
        processes=isinstance(document, list),
        running="" if index is None else names[index],
        unit=unit,
        unit_state=state,
        plugins=tuple(
            PluginFacts(pid if isinstance(pid := one.get("pid"), int) else 0, vendor, argv)
            for one, argv in zip(listed, argvs, strict=True)
            if (vendor := _vendor(argv))
        ),
    )


@fact
def handlers(node: ExaminedNode) -> Handlers:
    """Return the runtime handlers of the node's engines."""
    document = node.readings.document(node_readings.CONTAINERD)
    config = document.get("config") if isinstance(document, dict) else ""
    return engine_handlers.engine_handlers(node.tree, config if isinstance(config, str) else "")


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


def without_api(node: ExaminedNode) -> Finding:
    """Return the finding that a check needs the API server, and why there is no answer."""
    trouble = node.readings.of(node_readings.API).trouble or "it did not answer"
    return Finding(NOT_APPLICABLE, f"this needs the API server: {trouble}")


def restart(found: Iterable[PluginPod]) -> str:
    """Return the command that restarts the pods of the device plugin."""
    for pod in found:
        if pod.daemon_set:
            return f"kubectl -n {pod.namespace} rollout restart daemonset/{pod.daemon_set}"
    return "kubectl get daemonsets -A | grep device-plugin"


def no_gpus(node: ExaminedNode) -> str:
    """Return why a device plugin has nothing to offer, "" if it has."""
    inventory = driver_facts.inventory_of(node)
    if inventory is None:
        code = node.readings.of(node_readings.INVENTORY).code
        # Without a code the driver was not called: the files show whether there are GPUs.
        return f"the driver does not answer ({code})" if code else ""
    if not inventory.gpus or all(gpu.lost for gpu in inventory.gpus):
        return "the driver has no GPU that a device plugin could offer"
    return ""


def with_kubelet(
    look: Callable[[ExaminedNode], Findings],
) -> Callable[[ExaminedNode], Findings]:
    """Return a look that does not apply to nodes without a kubelet."""

    def looked(node: ExaminedNode) -> Findings:
        if not kubelet(node).directory:
            return Finding(NOT_APPLICABLE, "Kubernetes does not run on this node")
        return look(node)

    return looked


def _unit(node: ExaminedNode) -> tuple[str, str]:
    """Return the unit that starts a kubelet here, and its state; ("", "") if none is installed."""
    units = node.readings.document(node_readings.UNITS)
    for name in UNITS if isinstance(units, dict) else ():
        found = units.get(name)
        if isinstance(found, dict) and found.get("load") == "loaded":
            return name, str(found.get("active") or "")
    return "", ""


def _argv(process: dict[str, Any]) -> tuple[str, ...]:
    found = process.get("argv")
    return tuple(str(one) for one in found) if isinstance(found, list) else ()


def _program(argv: tuple[str, ...]) -> str:
    first = argv[0].split() if argv else []  # k3s writes "k3s agent" into its argv[0]
    return os.path.basename(first[0]) if first else ""


def _process_name(process: dict[str, Any], argv: tuple[str, ...]) -> str:
    return _program(argv) or str(process.get("name") or "")


def _vendor(argv: tuple[str, ...]) -> str:
    name = _program(argv)
    if name == "nvidia-device-plugin":
        return NVIDIA
    if name in _OTHERS:
        return OTHER
    is_ours = any("gpuhook" in one for one in argv[:6]) and "device-plugin" in argv
    return OURS if is_ours else ""
