# SPDX-License-Identifier: Apache-2.0
"""The metrics of the device plugins of a cluster, read by kubectl through the API server.

kubectl has the kubeconfig, the authentication and the proxy of its user. The caller needs the
verbs list of pods, and get of pods/proxy in the namespace of the plugin.
"""

from __future__ import annotations

import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from gpuhook.errors import GpuhookError, fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

SELECTOR = "app.kubernetes.io/name=gpuhook-device-plugin"
_PORT = "metrics"  # the name of the container's port
_AT_ONCE = 16
_LARGEST = 16 << 20  # bytes of an answer
_LAST_LINE = 400
_SAMPLE = re.compile(r"(?P<name>[a-z_]+)(?:\{(?P<labels>.*)\})? (?P<value>[^ ]+)")
_LABEL = re.compile(r'(?P<key>[a-z_]+)="(?P<value>(?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of the exposition format: a metric with its labels and value."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class NodeMetrics:
    """The samples of the plugin on a node; `trouble` is why there are none, else ""."""

    node: str
    samples: tuple[Sample, ...] = ()
    trouble: str = ""


def read(
    kubectl: Sequence[str], selector: str, node: str | None, seconds: float
) -> list[NodeMetrics]:
    """Return the metrics of each node with a plugin, by the names of the nodes.

    `kubectl` is the command with its options. A node that does not answer has a trouble. Raises
    GH1960 if kubectl fails, and GH1961 if no plugin runs.
    """
    pods = _pods(kubectl, selector, seconds)
    found = [one for one in pods if node is None or one[0] == node]
    if not found:
        raise fault("GH1961", selector=selector, where=f"node {node}" if node else "this cluster")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda one: _node(kubectl, one, seconds), sorted(found)))


def _pods(kubectl: Sequence[str], selector: str, seconds: float) -> list[tuple[str, str, str, int]]:
    """Return (node, namespace, pod, port) of the plugins; port 0 without metrics."""
    words = ["get", "pods", "--all-namespaces", "--selector", selector, "--output", "json"]
    try:
        items = json.loads(_output(kubectl, words, seconds))["items"]
        return [_place(one) for one in items if one["spec"].get("nodeName")]
    except (ValueError, KeyError, TypeError) as error:
        raise fault("GH1960", reason=f"it did not print a list of pods: {error}") from error


def _place(pod: dict[str, Any]) -> tuple[str, str, str, int]:
    ports = [port for one in pod["spec"]["containers"] for port in one.get("ports") or ()]
    number = next((port["containerPort"] for port in ports if port.get("name") == _PORT), 0)
    metadata = pod["metadata"]
    return pod["spec"]["nodeName"], metadata["namespace"], metadata["name"], int(number)


def _node(kubectl: Sequence[str], place: tuple[str, str, str, int], seconds: float) -> NodeMetrics:
    node, namespace, pod, port = place
    if not port:
        why = f"{namespace}/{pod} serves no metrics: set metrics.enabled in the chart"
        return NodeMetrics(node, trouble=why)
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy/metrics"
    try:
        return NodeMetrics(node, tuple(samples(_output(kubectl, ["get", "--raw", path], seconds))))
    except GpuhookError as error:
        return NodeMetrics(node, trouble=error.message)


def _output(kubectl: Sequence[str], words: Sequence[str], seconds: float) -> str:
    """Return what kubectl prints; GH1960 if it fails or takes too long."""
    try:
        done = subprocess.run([*kubectl, *words], capture_output=True, timeout=seconds, check=False)
    except FileNotFoundError:
        raise fault("GH1960", reason=f"{kubectl[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise fault("GH1960", reason=f"it did not answer within {seconds:g} s") from None
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise fault("GH1960", reason=lines[-1][:_LAST_LINE] if lines else f"{done.returncode}")
    return done.stdout[:_LARGEST].decode("utf-8", "replace")


def samples(text: str) -> Iterator[Sample]:
    """Yield the samples of gpuhook in the exposition format; others are skipped.

    Source: the text format of Prometheus, version 0.0.4.
    """
    for line in text.splitlines():
        found = _SAMPLE.fullmatch(line) if line.startswith("gpuhook_") else None
        if found is None:
            continue
        try:
            value = float(found["value"])
        except ValueError:
            continue
        labels = {
            one["key"]: _plain(one["value"]) for one in _LABEL.finditer(found["labels"] or "")
        }
        yield Sample(found["name"], labels, value)


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text)
