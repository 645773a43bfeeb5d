# SPDX-License-Identifier: Apache-2.0
"""The kubelet: that it runs, and that a device plugin can find it."""

from __future__ import annotations

from gpuhook.doctor.check import FAILED, KUBERNETES, WARNING, Check, Finding, absent, ok
from gpuhook.doctor.checks.kubernetes import kubelet_facts as facts
from gpuhook.node import kubelet_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.doctor.check import ExaminedNode

RUNNING, DIRECTORY = "kubelet.running", "kubelet.plugin-directory"


def _runs(node: ExaminedNode) -> Iterator[Finding]:
    kubelet = node.once(facts.kubelet)
    if kubelet.running:
        yield ok(f"{kubelet.running} runs", subject=kubelet.unit)
    elif not kubelet.directory and not kubelet.unit:
        yield absent("Kubernetes does not run on this node", *kubelet_files.ROOTS)
    elif not kubelet.processes:
        yield absent("whether the kubelet runs cannot be told from files alone")
    elif not kubelet.unit and not _is_node(node, kubelet.directory):
        yield absent(f"{kubelet.directory} is there, and nothing that would start a kubelet")
    else:
        state = f"{kubelet.unit} is {kubelet.unit_state}" if kubelet.unit_state else "none runs"
        yield Finding(
            FAILED,
            f"this is a node of a cluster ({kubelet.directory or kubelet.unit}), and its kubelet "
            f"does not run: {state}",
            subject=kubelet.unit,
            meaning="the node becomes NotReady, and no pod starts on it; a device plugin says "
            '"connect: no such file or directory" of kubelet.sock, or waits',
            command=f"{kubelet.restart} && journalctl -u {kubelet.unit or 'kubelet'} -n 50",
            looked_at=(kubelet.directory or kubelet.unit,),
        )


def _is_node(node: ExaminedNode, directory: str) -> bool:
    return any(
        node.tree.status(path) is not None
        for path in (f"{directory}/config.yaml", f"{directory}/device-plugins/kubelet.sock")
    )


def _directory(node: ExaminedNode) -> Iterator[Finding]:
    kubelet = node.once(facts.kubelet)
    path = f"{kubelet.plugin_directory}/kubelet.sock"
    if kubelet_files.has_socket(node.tree, path):
        yield ok(f"the kubelet takes registrations at {path}", path)
    elif not kubelet.processes:
        yield absent(f"{path} is not among the files that are here", path)
    else:
        yield Finding(
            FAILED,
            f"the kubelet runs, and {path} is not there, where device plugins register",
            subject=path,
            meaning="no device plugin can register: the node offers no nvidia.com/gpu, and pods "
            'stay Pending with "Insufficient nvidia.com/gpu"',
            command=kubelet.restart,
            looked_at=(path,),
        )


def _pod_resources(node: ExaminedNode) -> Iterator[Finding]:
    kubelet = node.once(facts.kubelet)
    path = f"{kubelet.directory}/pod-resources/kubelet.sock"
    if kubelet_files.has_socket(node.tree, path):
        yield ok(f"the kubelet tells at {path} which pod has which GPU", path)
    elif not kubelet.processes:
        yield absent(f"{path} is not among the files that are here", path)
    else:
        yield Finding(
            WARNING,
            f"{path} is not there",
            subject=path,
            meaning="metrics of GPUs (dcgm-exporter, gpuhook's) cannot say which pod has which GPU",
            command=kubelet.restart,
            looked_at=(path,),
        )


CHECKS = (
    Check(RUNNING, KUBERNETES, "The kubelet runs", _runs),
    Check(
        DIRECTORY,
        KUBERNETES,
        "Device plugins find the kubelet's socket",
        facts.with_kubelet(_directory),
        needs=(RUNNING,),
    ),
    Check(
        "kubelet.pod-resources",
        KUBERNETES,
        "The kubelet tells which pod has which device",
        facts.with_kubelet(_pod_resources),
        needs=(DIRECTORY,),
    ),
)
