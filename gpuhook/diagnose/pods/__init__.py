# SPDX-License-Identifier: Apache-2.0
"""Pods: what manifests ask for, what Kubernetes objects to, and what the plugin would answer.

read() gives the containers, of_pods() and allocated() what they would get on a node under a
configuration(), as_spec() the config.json that comes of both, and document() all of it for
programs. This loads YAML and the plugin's rules: import it where a manifest is at hand.
"""

from __future__ import annotations

from gpuhook.diagnose.pods.answers import Allocated, allocated, of_pods
from gpuhook.diagnose.pods.asked import Asked
from gpuhook.diagnose.pods.container_spec import as_spec, cdi_devices
from gpuhook.diagnose.pods.documents import document
from gpuhook.diagnose.pods.manifests import is_manifest, read
from gpuhook.diagnose.pods.offering import configuration

__all__ = [
    "Allocated",
    "Asked",
    "allocated",
    "as_spec",
    "cdi_devices",
    "configuration",
    "document",
    "is_manifest",
    "of_pods",
    "read",
]
