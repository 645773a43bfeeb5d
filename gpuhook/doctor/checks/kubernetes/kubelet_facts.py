# SPDX-License-Identifier: Apache-2.0
"""What the checks of Kubernetes look at together, worked out once."""

from __future__ import annotations

import os
from dataclasses import dataclass

from gpuhook.doctor.check import NOT_APPLICABLE, Finding
from gpuhook.errors import GpuhookError
from gpuhook.node import engine_handlers, kubelet_files, node_readings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.node.engine_handlers import Handlers
    from gpuhook.node.kubelet_files import PluginPod
    from gpuhook.vendors.nvidia.inventory.inventory import Node as Inventory

# k3s has its kubelet within, as has kubelite of microk8s.
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
    """A process that is a device plugin for GPUs: `whose` is NVIDIA, OURS or OTHER."""

    pid: int
    whose: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kubelet:
    """The kubelet: `directory` is "" where nothing of it is there.

    `processes` says if it was seen who runs; `unit` is the systemd unit that would start it, and
    `unit_state` what systemd says of that.
    """

    directory: str
    processes: bool
    running: str = ""  # how its process is called
    unit: str = ""
    unit_state: str = ""
    plugins: tuple[PluginFacts, ...] = ()

    @property
    def plugin_directory(self) -> str:
        """Where device plugins have their sockets."""
        return f"{self.directory}/device-plugins"

    @property
    def restart(self) -> str:
        """The command that starts it anew."""
        if self.unit.startswith("snap."):
            return "sudo snap restart microk8s"
        return f"sudo systemctl restart {(self.unit or 'kubelet.service').removesuffix('.service')}"


def kubelet(node: ExaminedNode) -> Kubelet:
    """Return what is there of a kubelet."""
    known = node.readings.document(node_readings.PROCESSES)
    listed = [one for one in known if isinstance(one, dict)] if isinstance(known, list) else []
    argvs = {id(one): _argv(one) for one in listed}
    of_it = next((one for one in listed if _called(one, argvs[id(one)]) in KUBELETS), None)
    unit, state = _unit(node)
    return Kubelet(
        directory=kubelet_files.directory(node.tree, argvs[id(of_it)] if of_it else ()),
        processes=isinstance(known, list),
        running=_called(of_it, argvs[id(of_it)]) if of_it else "",
        unit=unit,
        unit_state=state,
        plugins=tuple(
            PluginFacts(_number(one.get("pid")), whose, argvs[id(one)])
            for one in listed
            if (whose := _whose(argvs[id(one)]))
        ),
    )


def inventory(node: ExaminedNode) -> Inventory | None:
    """Return the node's GPUs, None where they cannot be told."""
    from gpuhook.vendors.nvidia.inventory import dump

    document = node.readings.document(node_readings.INVENTORY)
    try:
        return dump.from_dict(document) if isinstance(document, dict) else None
    except (GpuhookError, KeyError, TypeError, ValueError):
        return None


def handlers(node: ExaminedNode) -> Handlers:
    """Return the runtime handlers of the node's engines."""
    document = node.readings.document(node_readings.CONTAINERD)
    dumped = document.get("config") if isinstance(document, dict) else ""
    return engine_handlers.engine_handlers(node.tree, dumped if isinstance(dumped, str) else "")


def pods(node: ExaminedNode) -> tuple[PluginPod, ...]:
    """Return the pods with a device plugin."""
    place = node.once(kubelet).directory
    return kubelet_files.plugin_pods(node.tree, place) if place else ()


def api(node: ExaminedNode) -> dict[str, Any] | None:
    """Return what the API server told, None if it was not asked."""
    found = node.readings.document(node_readings.API)
    return found if isinstance(found, dict) else None


def api_node(node: ExaminedNode) -> dict[str, Any] | None:
    """Return what the API server told of this node, None if nothing."""
    found = (node.once(api) or {}).get("node")
    return found if isinstance(found, dict) else None


def untold(node: ExaminedNode) -> Finding:
    """Return that a check needs the API server, and why that was not asked."""
    trouble = node.readings.of(node_readings.API).trouble or "the API server did not tell"
    return Finding(NOT_APPLICABLE, f"only the API server knows: {trouble}")


def restart(found: Iterable[PluginPod]) -> str:
    """Return the command that starts the device plugin's pods anew."""
    for pod in found:
        if pod.daemon_set:
            return f"kubectl -n {pod.namespace} rollout restart daemonset/{pod.daemon_set}"
    return "kubectl get daemonsets -A | grep device-plugin"


def no_gpus(node: ExaminedNode) -> str:
    """Return why there is nothing that a plugin could offer, "" where there is."""
    known = node.once(inventory)
    if known is None:
        asked = node.readings.of(node_readings.INVENTORY)
        # Without a code nobody could be asked: what is looked at tells whether there are any.
        return f"the driver does not answer ({asked.code})" if asked.code else ""
    if not known.gpus or all(gpu.lost for gpu in known.gpus):
        return "the driver shows no GPU that a device plugin could offer"
    return ""


def with_kubelet(
    look: Callable[[ExaminedNode], Iterable[Finding]],
) -> Callable[[ExaminedNode], Iterable[Finding]]:
    """Return a look that says nothing where no kubelet is."""

    def looked(node: ExaminedNode) -> Iterable[Finding]:
        if not node.once(kubelet).directory:
            return [Finding(NOT_APPLICABLE, "Kubernetes does not run on this node")]
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


def _called(process: dict[str, Any], argv: tuple[str, ...]) -> str:
    first = (argv[0].split() or [""])[0] if argv else ""  # k3s writes "k3s agent" into its argv[0]
    return os.path.basename(first) or str(process.get("name") or "")


def _whose(argv: tuple[str, ...]) -> str:
    called = os.path.basename((argv[0].split() or [""])[0]) if argv else ""
    if called == "nvidia-device-plugin":
        return NVIDIA
    if called in _OTHERS:
        return OTHER
    is_ours = any("gpuhook" in one for one in argv[:6]) and "device-plugin" in argv
    return OURS if is_ours else ""


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
