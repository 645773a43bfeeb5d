# SPDX-License-Identifier: Apache-2.0
"""Faults GH21xx at length: cause, cure, example."""

from __future__ import annotations

EXPLANATIONS: dict[str, tuple[str, str, str]] = {
    "GH2100": (
        (
            "gpuhook was told to install into a directory that is not there, is no directory, or "
            "has nothing of a host in it."
        ),
        "Mount the host's root into the pod, and name where it is.",
        """
$ gpuhook install --host-root /host
""",
    ),
    "GH2130": (
        (
            "`gpuhook config from-clusterpolicy` was given a file that is not there, is no YAML, "
            "or is too large. The message has the place."
        ),
        "Let kubectl write it, together with the ConfigMap that the policy names.",
        """
$ kubectl get clusterpolicies.nvidia.com,configmaps --namespace gpu-operator -o yaml > policy.yaml
$ gpuhook config from-clusterpolicy policy.yaml
""",
    ),
    "GH2131": (
        (
            "The file is YAML, and has no ClusterPolicy of the GPU operator, or several, and is no "
            "values file of the operator's chart either: those have sections such as devicePlugin."
        ),
        "Name the cluster's policy, or the values that the operator was installed with.",
        """
$ kubectl get clusterpolicies.nvidia.com -o yaml > policy.yaml
$ gpuhook config from-clusterpolicy policy.yaml
""",
    ),
}
