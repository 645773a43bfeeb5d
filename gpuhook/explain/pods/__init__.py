# SPDX-License-Identifier: Apache-2.0
"""Pods: what manifests ask for, what Kubernetes objects to, and what the plugin would answer.

read() gives the containers, of_pods() and allocated() what they would get on a node under a
configuration(), as_spec() the config.json that comes of both, and document() all of it for
programs. This loads YAML and the plugin's rules: import it where a manifest is at hand.
"""

from __future__ import annotations

from gpuhook.explain.pods.container_spec import as_spec, cdi_devices
from gpuhook.explain.pods.plugin_offer import configuration
from gpuhook.explain.pods.pod_answers import Allocated, allocated, of_pods
from gpuhook.explain.pods.pod_documents import document
from gpuhook.explain.pods.pod_manifests import is_manifest, read
from gpuhook.explain.pods.pod_requests import PodRequest

__all__ = [
    "Allocated",
    "PodRequest",
    "allocated",
    "as_spec",
    "cdi_devices",
    "configuration",
    "document",
    "is_manifest",
    "of_pods",
    "read",
]
