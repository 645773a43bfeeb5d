# SPDX-License-Identifier: Apache-2.0
"""Pods: the requests of manifests, the objections of Kubernetes, the plugin's allocation.

read() returns the containers, of_pods() their allocation on a node by a configuration(), as_spec()
the resulting config.json, and document() all of it. The package loads YAML and the rules of the
plugin: import it late.
"""

from __future__ import annotations

from gpuhook.explain.pods.container_spec import as_spec, cdi_devices
from gpuhook.explain.pods.plugin_offer import configuration
from gpuhook.explain.pods.pod_answers import Allocated, of_pods
from gpuhook.explain.pods.pod_manifests import read
from gpuhook.explain.pods.pod_requests import PodRequest, document

__all__ = [
    "Allocated",
    "PodRequest",
    "as_spec",
    "cdi_devices",
    "configuration",
    "document",
    "of_pods",
    "read",
]
