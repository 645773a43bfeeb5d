# SPDX-License-Identifier: Apache-2.0
"""Manifests as texts: put together and read."""

from __future__ import annotations

import textwrap

from gpuhook.explain.pods import pod_manifests
from gpuhook.explain.pods.pod_requests import PodRequest

HERE = "pod.yaml"
GPU = "nvidia.com/gpu"
# A pod with one container, at line 6; the test adds fields.
POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: p}}
spec:
  containers:
  - {{name: c, {}}}
"""


def read(text: str) -> tuple[PodRequest, ...]:
    return pod_manifests.read(textwrap.dedent(text), HERE)


def container(text: str) -> PodRequest:
    """Return the only container of a pod, written as `text` in YAML's flow style."""
    (found,) = read(POD.format(text))
    return found


def ids(asked: PodRequest) -> list[str]:
    return [objection.id for objection in asked.objections]
