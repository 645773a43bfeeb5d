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
    "GH2101": (
        (
            "What is copied to a host is a runtime tree: gpuhook with a Python, libraries and a "
            "shell of its own. gpuhook's image has one. This gpuhook was installed in another "
            "way, from a package or with pip, or the directory after --tree has none."
        ),
        (
            "Run the command in gpuhook's image. On a host that has gpuhook already, `gpuhook "
            "configure` is all that is needed."
        ),
        """
$ docker run --rm --privileged --pid host -v /:/host gpuhook install --host-root /host
""",
    ),
    "GH2102": (
        (
            "The directory is on a file system that is read-only, or mounted noexec, as some "
            "operating systems made for containers have it."
        ),
        (
            "Name a directory from which the host runs programs: docs/image.md has one for each "
            "operating system. Where there is none, the route cdi needs no program on the host."
        ),
        """
$ gpuhook install --host-root /host --install-dir /home/kubernetes/bin/gpuhook
""",
    ),
    "GH2103": (
        (
            "The first line of each launcher has the path of its interpreter, and the kernel takes "
            "neither spaces nor long paths there."
        ),
        "Choose a short path from the root on, of letters, digits and plain signs.",
        """
$ gpuhook install --host-root /host --install-dir /opt/gpuhook
""",
    ),
    "GH2104": (
        (
            "`current` and `bin` in the directory are links that gpuhook replaces at each upgrade. "
            "Something else has one of the names, and gpuhook does not remove what it did not make."
        ),
        "Look at what it is. Move it away, or install into another directory.",
        """
$ ls -l /opt/gpuhook
$ gpuhook install --host-root /host --install-dir /opt/gpuhook-runtime
""",
    ),
    "GH2105": (
        (
            "The programs were copied, and one of them was tried in the host's root directory. It "
            "did not start: SELinux or another policy, a file system without programs, or an "
            "image that was built for another kind of processor. The version before stays in use."
        ),
        "The reason is the host's own. Its log of refusals names the rule.",
        """
$ chroot /host /opt/gpuhook/bin/gpuhook-hook --version
$ uname -m
""",
    ),
    "GH2106": (
        (
            "Without --engine, the engine is the one whose configuration file --config names, the "
            "one that the kubelet calls, or one that has a socket: CRI-O, containerd (that of k3s, "
            "k0s and microk8s too), Docker or Podman. Neither the content nor the name of the file "
            "names one engine, and there is no socket below the host's root."
        ),
        "Name the engine, or copy the programs alone.",
        """
$ gpuhook install --host-root /host --engine containerd
$ gpuhook install --host-root /host --engine none
""",
    ),
    "GH2107": (
        (
            "The label of the node, or DEFAULT_CONFIG, names a key that the ConfigMap has not. "
            "A node without its configuration would offer no GPU, so that the name is not guessed "
            "at. What was chosen before stays."
        ),
        "Add the key to the ConfigMap, or correct the label.",
        """
$ kubectl label node NODE nvidia.com/device-plugin.config=default --overwrite
""",
    ),
    "GH2108": (
        "A variable of config-manager is missing, or its value is none that it can have.",
        (
            "The GPU Operator sets all of them. Where you write the DaemonSet yourself, "
            "docs/image.md has the list."
        ),
        """
env:
- name: CONFIG_FILE_SRCDIR
  value: /available-configs
- name: CONFIG_FILE_DST
  value: /config/config.yaml
""",
    ),
    "GH2109": (
        (
            "The node has no label that names a configuration, there is no default, and none of "
            "the strategies for that case fits: `named` takes the key `default`, `single` the only "
            "key there is, `empty` takes none and offers whole GPUs."
        ),
        "Name a default, or allow `empty`.",
        """
env:
- name: FALLBACK_STRATEGIES
  value: named,single,empty
""",
    ),
    "GH2110": (
        (
            "config-manager reads its node's label from the API server, with the token of its "
            "pod's service account. There is none: it runs outside a pod, or the pod says "
            "automountServiceAccountToken: false."
        ),
        "Give the pod a service account that may get and watch nodes, and let it have the token.",
        """
spec:
  serviceAccountName: gpuhook-device-plugin
  automountServiceAccountToken: true
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
