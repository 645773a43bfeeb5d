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
    "GH2140": (
        (
            "A CDI spec that NVIDIA's toolkit wrote calls nvidia-cdi-hook, which is a name of "
            "gpuhook's on this node, with an option that gpuhook does not know. To leave it out "
            "could give the container something else than the spec describes, so it does not start."
        ),
        "Write the spec with gpuhook, which needs no such hook.",
        """
$ gpuhook generate-cdi --output /etc/cdi/nvidia.yaml
""",
    ),
    "GH2141": (
        (
            "A CDI spec that NVIDIA's toolkit wrote names a hook of a toolkit that is newer than "
            "this gpuhook. NVIDIA's own nvidia-cdi-hook passes over what it does not know, and so "
            "does gpuhook's: the container starts, without what the hook would have done."
        ),
        "Upgrade gpuhook, or write the spec with it.",
        """
$ gpuhook generate-cdi --output /etc/cdi/nvidia.yaml
""",
    ),
    "GH2142": (
        (
            "A script calls nvidia-ctk, which is a name of gpuhook's on this node, with a command "
            "or an option that does something to NVIDIA's toolkit alone, or that is unknown."
        ),
        "Call gpuhook's own command, which the hint names.",
        """
$ gpuhook --help
""",
    ),
    "GH2143": (
        (
            "The spec was written by a newer gpuhook than the host's, such as that of a device "
            "plugin's image, and asks the hook for something that the host's cannot do and that a "
            "container may not go without."
        ),
        "Upgrade gpuhook on the host first, and the images on its nodes afterwards.",
        """
$ gpuhook-hook --version
""",
    ),
}
