# SPDX-License-Identifier: Apache-2.0
"""Faults GH20xx at length: cause, cure, example."""

from __future__ import annotations

EXPLANATIONS: dict[str, tuple[str, str, str]] = {
    "GH2000": (
        (
            "The engine has a runtime of that name already, and its program is another's, mostly "
            "NVIDIA's. It is not replaced unasked: containers that use it would change hands."
        ),
        (
            "Register gpuhook beside it under another name, try that, and take the name over "
            "when you are content. `gpuhook configure undo` brings the old one back, byte for byte."
        ),
        """
$ gpuhook configure docker --runtime-name gpuhook
$ docker run --rm --runtime gpuhook -e NVIDIA_VISIBLE_DEVICES=all debian nvidia-smi -L
$ gpuhook configure docker --take-over
""",
    ),
    "GH2020": (
        (
            'The packages of Docker bring a config.toml with disabled_plugins = ["cri"]. A '
            "handler in it would serve nobody: Docker has runtimes of its own, and a kubelet "
            "cannot talk to this containerd."
        ),
        (
            "Configure Docker, if it is Docker that starts the containers. If this node is to run "
            "a kubelet on this containerd, say --enable-cri; undo disables it again."
        ),
        """
$ grep disabled_plugins /etc/containerd/config.toml
disabled_plugins = ["cri"]
$ gpuhook configure docker
$ gpuhook configure containerd --enable-cri   # for a kubelet
""",
    ),
    "GH2021": (
        (
            "The file is no TOML, has a version that this containerd does not know, or imports a "
            "file that is not there. A running containerd does not notice before its next start."
        ),
        "Correct the line that is named, and let containerd read it before it is restarted.",
        """
$ containerd --config /etc/containerd/config.toml config dump >/dev/null
containerd: failed to load TOML: /etc/containerd/config.toml: (7, 1): ...
""",
    ),
    "GH2022": (
        (
            "More than one of /etc/containerd, k3s, rke2, k0s and microk8s is on this node, and "
            "it is not for gpuhook to guess which of them starts the pods."
        ),
        "Name the configuration of the one that the kubelet uses.",
        """
$ gpuhook configure containerd --config /var/lib/rancher/k3s/agent/etc/containerd/config.toml
""",
    ),
    "GH2023": (
        (
            "k3s and rke2 register a runtime by themselves when they find NVIDIA's program, and "
            "their template may have one that somebody wrote. A table of that name for the second "
            "time makes containerd's configuration unreadable, and no pod starts any more."
        ),
        "Register gpuhook under another name, or remove the program or the table that is there.",
        """
$ gpuhook configure containerd --runtime-name gpuhook
$ kubectl create -f - <<EOF
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: gpuhook}
handler: gpuhook
EOF
""",
    ),
    "GH2024": (
        (
            "Bottlerocket and Talos have a root file system that is read only, and make the "
            "configuration of containerd from their own settings at each boot."
        ),
        (
            "Use no runtime there: a hookless CDI spec in /var/run/cdi and the device plugin give "
            "containers their GPUs. On Talos a handler can be had by a patch of the machine "
            "configuration, if its program is in a system extension."
        ),
        """
$ gpuhook generate-cdi --hooks none --output /var/run/cdi/gpuhook.yaml
$ gpuhook device-plugin --device-list-strategy cdi-cri
""",
    ),
    "GH2025": (
        (
            "What is planned was read as containerd will read it, and something is not as it has "
            "to be: a later file replaces what is said, or a runtime of others would be lost. "
            "Nothing was written."
        ),
        "Remove the file that is in the way, or choose the file that is written.",
        """
$ gpuhook configure containerd --drop-in /etc/containerd/conf.d/zzz-gpuhook.toml --dry-run
""",
    ),
    "GH2026": (
        (
            "default_runtime_name would not count: the old table default_runtime counts more, or "
            "k3s or rke2 say it by an option of their own."
        ),
        "Do what the hint says, and configure without --set-as-default.",
        """
$ echo 'default-runtime: nvidia' >>/etc/rancher/k3s/config.yaml
$ gpuhook configure containerd && systemctl restart k3s
""",
    ),
    "GH2027": (
        (
            "The file says what has to change in a way that gpuhook cannot edit and be sure that "
            "all the rest stays: a key where a table has to be, or a document of another kind."
        ),
        "Write that part in plain tables, or make the change by hand.",
        """
$ grep -n '^plugins' /etc/containerd/config.toml
3:plugins = 1
""",
    ),
    "GH2028": (
        (
            "With the route hook, the handler's base_runtime_spec carries gpuhook's hook. It takes "
            "the place of containerd's default spec, which differs between versions, so it is made "
            "of what the containerd of this node prints."
        ),
        "Make it once, and again when containerd was upgraded.",
        """
$ ctr oci spec | /usr/share/gpuhook/containerd/base-spec \\
    --output /etc/containerd/gpuhook-base.json
$ gpuhook configure containerd --route hook
""",
    ),
    "GH2029": (
        "containerd gives containers CDI devices since 1.7, and up to 1.7 only with enable_cdi.",
        "Take the route wrapper, which needs nothing of containerd, or upgrade containerd.",
        """
$ containerd --version
containerd containerd.io 1.6.33 ...
$ gpuhook configure containerd --route wrapper
""",
    ),
}
