# SPDX-License-Identifier: Apache-2.0
"""The kubelet: it runs, and it has the sockets that device plugins and metrics use."""

from __future__ import annotations

from gpuhook.node_facts import kubelet_facts as facts
from gpuhook.node_facts.check import FAILED, WARNING, Finding, absent, check, ok, unless
from gpuhook.node_facts.sources import kubelet_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.node_facts.check import ExaminedNode

RUNNING, DIRECTORY = "kubelet.running", "kubelet.plugin-directory"


@check(RUNNING, "The kubelet runs")
def _running(node: ExaminedNode) -> Iterator[Finding]:
    kubelet = facts.kubelet(node)
    if kubelet.running:
        yield ok(f"{kubelet.running} runs", subject=kubelet.unit)
    elif not kubelet.directory and not kubelet.unit:
        yield absent("this node does not run Kubernetes", *kubelet_files.ROOTS)
    elif not kubelet.processes:
        yield absent("the files of a node do not show whether the kubelet is running")
    elif not kubelet.unit and (reason := facts.no_kubelet(node)):
        yield reason
    else:
        state = f"{kubelet.unit} is {kubelet.unit_state}" if kubelet.unit_state else "no process"
        yield Finding(
            FAILED,
            f"this is a node of a cluster ({kubelet.directory or kubelet.unit}), but its "
            f"kubelet is not running: {state}",
            subject=kubelet.unit,
            meaning="the node becomes NotReady, and no pod starts on it; a device plugin prints "
            '"connect: no such file or directory" for kubelet.sock, or waits',
            command=f"{kubelet.restart} && journalctl -u {kubelet.unit or 'kubelet'} -n 50",
            looked_at=(kubelet.directory or kubelet.unit,),
        )


@check(DIRECTORY, "Device plugins find the kubelet's socket", needs=(RUNNING,))
@unless(facts.no_kubelet)
def _plugin_directory(node: ExaminedNode) -> Iterator[Finding]:
    yield _socket(
        node,
        "device-plugins",
        FAILED,
        "device plugins register at",
        "no device plugin can register: the node offers no nvidia.com/gpu, and pods stay Pending "
        'with "Insufficient nvidia.com/gpu"',
    )


@check("kubelet.pod-resources", "The kubelet lists which pod has which device", needs=(DIRECTORY,))
@unless(facts.no_kubelet)
def _pod_resources(node: ExaminedNode) -> Iterator[Finding]:
    yield _socket(
        node,
        "pod-resources",
        WARNING,
        "the kubelet lists the devices of each pod at",
        "GPU metrics (of dcgm-exporter or gpuhook) do not show which pods use the GPUs",
    )


def _socket(node: ExaminedNode, directory: str, status: str, purpose: str, meaning: str) -> Finding:
    """Return whether the kubelet has its socket in a directory; `status` if it lacks it."""
    kubelet = facts.kubelet(node)
    path = f"{kubelet.directory}/{directory}/kubelet.sock"
    if kubelet_files.has_socket(node.tree, path):
        return ok(f"{purpose} {path}", path)
    if not kubelet.processes:
        return absent(f"{path} is not among the files of this node", path)
    message = f"the kubelet is running, but {path} does not exist"
    return Finding(status, message, path, meaning, kubelet.restart, (path,))


CHECKS = (_running, _plugin_directory, _pod_resources)
