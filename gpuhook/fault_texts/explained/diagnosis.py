# SPDX-License-Identifier: Apache-2.0
"""Faults GH19xx at length: cause, cure, example."""

from __future__ import annotations

EXPLANATIONS: dict[str, tuple[str, str, str]] = {
    "GH1900": (
        "--root names something that is no directory, or one that may not be entered.",
        "Name the directory with the node's etc, proc and dev.",
        """
$ gpuhook doctor --root /host
""",
    ),
    "GH1901": (
        (
            "NVML hangs, as it does after some XID errors, while a GPU is reset, or where many GPUs"
            " wake up without persistence mode."
        ),
        (
            "See whether nvidia-smi hangs as well. If it does, dmesg names the GPU: drain the node,"
            " then reset or reboot. Else enable persistence mode, and run doctor again."
        ),
        """
$ systemctl enable --now nvidia-persistenced
$ gpuhook doctor --checks driver,gpus
""",
    ),
    "GH1902": (
        (
            "The states of services were asked of a node that systemd does not run, such as a"
            " container or a machine with OpenRC."
        ),
        (
            "Nothing is wrong: the checks that need the states do not apply. In a pod, --root names"
            " the directory that has the node's files."
        ),
        """
$ gpuhook doctor --root /host
""",
    ),
    "GH1903": (
        "--fix was given with --root or --from, which name files of a node.",
        "Log in to the node and mend it there; --dry-run says first what would be done.",
        """
$ gpuhook doctor --fix --dry-run
$ gpuhook doctor --fix
""",
    ),
    "GH1904": (
        (
            "Several containers did not answer before it: most often they hang on a file system"
            " (FUSE, NFS) whose server is gone. doctor then ends, so that it ends at all."
        ),
        "Find what the first ones wait for, or look at this one by itself.",
        """
$ gpuhook inspect 3f1c
""",
    ),
    "GH1905": (
        (
            "In a pod the service account may not read nodes; elsewhere there is no kubectl, it has"
            " no credentials, or the API server does not answer in time."
        ),
        (
            "Run it where `kubectl get nodes` works, or as root on the node, where the kubelet's"
            " own credentials are taken. What the kubelet keeps in files is looked at without."
        ),
        """
$ KUBECONFIG=~/.kube/config gpuhook doctor --checks kubernetes
""",
    ),
    "GH1906": (
        "The file is no gzipped tar, was cut on its way, or was packed anew by another program.",
        "Have it sent again as it was written; `tar -tzf FILE` lists gpuhook-bundle/manifest.json.",
        """
$ gpuhook support-bundle --file node7.tar.gz
$ gpuhook doctor --from node7.tar.gz
""",
    ),
    "GH1907": (
        (
            "It has what gpuhook never writes: a link, a device, a name twice or one that leads out"
            " of it, or more than anybody should unpack. Somebody may have made it to do harm."
        ),
        "Do not unpack it by hand either. Ask who sent it how it was made.",
        """
$ gpuhook support-bundle --file node7.tar.gz
""",
    ),
}
