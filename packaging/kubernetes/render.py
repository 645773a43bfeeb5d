#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Render the plain manifests from the Helm chart."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHART = HERE.parent / "helm/gpuhook"
# Lines about objects of Helm, or that change with each version.
_OF_HELM = re.compile(
    r"^(# Source: .*| +(helm\.sh/chart|app\.kubernetes\.io/(managed-by|version)): .*)\n",
    re.MULTILINE,
)
_GPUHOOK = """\
# SPDX-License-Identifier: Apache-2.0
#
# GPUs, whole or time-sliced, for the pods of a cluster:
#
#   kubectl apply -f gpuhook.yaml
#
# Nodes need the NVIDIA driver and a container engine with an `nvidia` handler (the README describes
# how to register gpuhook-runtime). The plugin runs on nodes with one of the labels below. Without a
# feature discovery, label such a node yourself:
#
#   kubectl label node NODE nvidia.com/gpu.present=true
#
# The plugin does not use the API server. api-access.yaml lists the features that need permissions,
# and grants these.
#
# Generated from the Helm chart packaging/helm/gpuhook: make manifests.
"""
_NAMESPACE = """\
apiVersion: v1
kind: Namespace
metadata:
  name: gpuhook
  labels:
    # The plugin mounts directories of the node and uses its pid namespace. A cluster whose
    # default is "baseline" or "restricted" would refuse its pods.
    pod-security.kubernetes.io/enforce: privileged
"""
_DRA = """\
# SPDX-License-Identifier: Apache-2.0
#
# GPUs for the claims of pods, by Dynamic Resource Allocation, with an enforced share of memory:
#
#   kubectl apply -f dra.yaml
#
# For Kubernetes 1.36 and newer; 1.34 and 1.35 share GPUs in another form (docs/dra.md). Nodes need
# the driver of their GPUs, and an engine that applies CDI specs: containerd 2, CRI-O, or containerd
# 1.7 with enable_cdi = true. The pods run on nodes with one of the labels below. Without a feature
# discovery, label such a node yourself:
#
#   kubectl label node NODE nvidia.com/gpu.present=true
#
# No device plugin may offer the same GPUs: remove it first.
#
# Generated from the Helm chart packaging/helm/gpuhook: make manifests.
"""
_NRI = """\
# SPDX-License-Identifier: Apache-2.0
#
# GPUs for pods without a RuntimeClass: the device plugin assigns them, and the NRI plugin adds them
# to containers:
#
#   kubectl apply -f nri.yaml
#
# Nodes need the GPU's driver, and containerd 2, containerd 1.7 with NRI enabled, or CRI-O 1.30 and
# newer (docs/nri.md). The pods run on nodes with one of the labels below. Without a feature
# discovery, label such a node yourself:
#
#   kubectl label node NODE nvidia.com/gpu.present=true
#
# Generated from the Helm chart packaging/helm/gpuhook: make manifests.
"""
_API_ACCESS = """\
# SPDX-License-Identifier: Apache-2.0
#
# Features of the device plugin that use the API server, with their permissions. Remove the rules of
# features that you do not need: the plugin logs a missing rule once, and continues without it.
#
#   permission            feature
#   nodes: get, watch     select the configuration of a node with its label
#                         nvidia.com/device-plugin.config=KEY, without a restart
#   events: create        faults of GPUs, refused configurations and reloads as events of the node
#   nodes: patch          the feature labels on the node itself, without Node Feature
#                         Discovery (GPUHOOK_LABEL_NODE=true, or gpuhook.labelNode). They remain
#                         when the plugin ends, unless GPUHOOK_REMOVE_LABELS_ON_EXIT=true.
#                         docs/how-to/kubernetes.md, "Back", has the command that removes them.
#
# After gpuhook.yaml:
#
#   kubectl apply -f api-access.yaml
#   kubectl --namespace gpuhook patch daemonset gpuhook-device-plugin --type merge --patch \\
#     '{"spec": {"template": {"spec": {"automountServiceAccountToken": true}}}}'
#
# Generated from the Helm chart packaging/helm/gpuhook: make manifests.
"""
_ACCESS = ("apiAccess.nodeConfig=true", "apiAccess.events=true", "gfd.labelNode=true")


def manifests(helm: str) -> dict[str, str]:
    """Return the text of each manifest by its path; `helm` is the program."""
    gpuhook = _GPUHOOK + _NAMESPACE + _plain(_rendered(helm, "values.yaml"))
    access = [word for one in _ACCESS for word in ("--set", one)]
    only = ["--show-only", "templates/api-access.yaml"]
    permissions = _plain(_rendered(helm, "values.yaml", *access, *only))
    dra = _plain(_rendered(helm, "values-dra.yaml", "--kube-version", "1.36.0"))
    return {
        "gpuhook.yaml": gpuhook,
        "base/gpuhook.yaml": gpuhook,
        "api-access.yaml": _API_ACCESS + permissions.lstrip("-\n"),
        "dra.yaml": _DRA + _NAMESPACE + dra,
        "nri.yaml": _NRI + _NAMESPACE + _plain(_rendered(helm, "values-nri.yaml")),
    }


def _rendered(helm: str, values: str, *options: str) -> str:
    command = [helm, "template", "gpuhook", str(CHART), "--namespace", "gpuhook"]
    done = subprocess.run(
        [*command, "--values", str(HERE / values), *options],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def _plain(text: str) -> str:
    return _OF_HELM.sub("", text)


def main() -> int:
    """Write the manifests; the only argument is the program helm."""
    for name, text in manifests(*sys.argv[1:]).items():
        (HERE / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
