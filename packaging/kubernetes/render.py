#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the plain manifests, gpuhook.yaml and api-access.yaml, of the Helm chart."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHART = HERE.parent / "helm/gpuhook"
# What is true of objects that Helm keeps, or changes with each version.
_OF_HELM = re.compile(
    r"^(# Source: .*| +(helm\.sh/chart|app\.kubernetes\.io/(managed-by|version)): .*)\n",
    re.MULTILINE,
)
_GPUHOOK = """\
# SPDX-License-Identifier: Apache-2.0
#
# GPUs, and time slices of them, for the pods of a cluster:
#
#   kubectl apply -f gpuhook.yaml
#
# Nodes need the NVIDIA driver and a container engine with a handler `nvidia` (the README says how
# gpuhook-runtime becomes it). The plugin runs where one of the labels below says that there is a
# GPU; without a feature discovery, label such a node yourself:
#
#   kubectl label node NODE nvidia.com/gpu.present=true
#
# The plugin asks the API server for nothing. api-access.yaml says what it could do with which
# permission, and grants them.
#
# Made of the Helm chart packaging/helm/gpuhook by `make manifests`.
apiVersion: v1
kind: Namespace
metadata:
  name: gpuhook
  labels:
    # The plugin mounts directories of the node and is in its pid namespace: a cluster whose
    # default is "baseline" or "restricted" would let no pod of it start.
    pod-security.kubernetes.io/enforce: privileged
"""
_API_ACCESS = """\
# SPDX-License-Identifier: Apache-2.0
#
# What the device plugin can do with the API server, and the permission that each thing needs. Leave
# out what you don't want: the plugin says once which rule is missing, and goes on without.
#
#   permission            what it buys
#   nodes: get, watch     another configuration for a node by its label
#                         nvidia.com/device-plugin.config=KEY, at once and without a restart
#   events: create        faults of GPUs, refused configurations and reloads as events of the node
#   nodes: patch          the feature labels on the node itself, where there is no Node Feature
#                         Discovery (GPUHOOK_LABEL_NODE=true, or gpuhook.labelNode). They remain
#                         when the plugin ends, unless GPUHOOK_REMOVE_LABELS_ON_EXIT=true.
#                         docs/kubernetes.md, "Back", has the command that removes them.
#
# After gpuhook.yaml:
#
#   kubectl apply -f api-access.yaml
#   kubectl --namespace gpuhook patch daemonset gpuhook-device-plugin --type merge --patch \\
#     '{"spec": {"template": {"spec": {"automountServiceAccountToken": true}}}}'
#
# Made of the Helm chart packaging/helm/gpuhook by `make manifests`.
"""
_ACCESS = ("apiAccess.nodeConfig=true", "apiAccess.events=true", "gfd.labelNode=true")


def manifests(helm: str) -> dict[str, str]:
    """Return the text of each manifest by its path; `helm` is the program."""
    gpuhook = _GPUHOOK + _plain(_rendered(helm))
    access = [word for one in _ACCESS for word in ("--set", one)]
    only = ["--show-only", "templates/api-access.yaml"]
    return {
        "gpuhook.yaml": gpuhook,
        "base/gpuhook.yaml": gpuhook,
        "api-access.yaml": _API_ACCESS + _plain(_rendered(helm, *access, *only)).lstrip("-\n"),
    }


def _rendered(helm: str, *options: str) -> str:
    values = str(HERE / "values.yaml")
    command = [helm, "template", "gpuhook", str(CHART), "--namespace", "gpuhook"]
    done = subprocess.run(
        [*command, "--values", values, *options], stdout=subprocess.PIPE, text=True, check=True
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
