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
    "GH2001": (
        (
            "A file of an engine, or the record that undoes it, could not be written: it is not "
            "yours, its file system is read-only or full, or it is immutable. Of several files "
            "all or none are written: what was written before has been put back."
        ),
        (
            "Run it as root; make room; `chattr -i` what somebody has made immutable. On a host "
            "that is read-only by design, the route cdi needs no configuration of the engine."
        ),
        """
$ gpuhook configure containerd
Error GH2001: /etc/containerd/config.toml cannot be written: Permission denied; everything is ...
$ sudo gpuhook configure containerd
""",
    ),
    "GH2002": (
        (
            "Something failed half way, and then what had been written could not be put back "
            "either: mostly a disk that has just become full or read-only."
        ),
        (
            "Mend the disk and run `gpuhook configure undo ENGINE`. The record of what was done "
            "is still there, and so is each file's content from before, beside it."
        ),
        """
$ ls /var/lib/gpuhook/configured/docker
$ gpuhook configure undo docker
""",
    ),
    "GH2003": (
        (
            "What the engine would read has a fault with which it does not start. As a rule the "
            "fault was there before: the engine runs with what it read when it started."
        ),
        (
            "Mend the line that is named. Nothing was written: a fault like that would be found "
            "at the next restart, and gpuhook would be blamed for it."
        ),
        """
$ gpuhook configure docker
Error GH2003: /etc/docker/daemon.json:3 is no JSON: Expecting ',' delimiter: docker does not ...
""",
    ),
    "GH2004": (
        (
            "Before anything is written, all files are read together as the engine reads them, "
            "with the new ones among them. Then the runtime was not there, or not with our "
            "program: a later file replaces it, or nothing imports ours."
        ),
        (
            "`gpuhook configure show ENGINE` names the file that has the last word. Name that "
            "one with --drop-in or --config, or take the setting out of it."
        ),
        """
$ gpuhook configure containerd --dry-run
$ gpuhook configure show containerd
""",
    ),
    "GH2005": (
        (
            "The engine's own program has read what was written and refuses it. All files have "
            "been put back as they were."
        ),
        (
            "Run the command that is named: if it refuses the old files, too, mend those. "
            "Otherwise this is a fault of gpuhook's: send the output of "
            "`gpuhook configure ENGINE --dry-run` with your report."
        ),
        """
$ dockerd --validate --config-file /etc/docker/daemon.json
unable to configure the Docker daemon with file /etc/docker/daemon.json: ...
""",
    ),
    "GH2006": (
        (
            "The engine was told to read its new configuration and does not run now. Its old "
            "files have been put back, and its unit was started with them once more."
        ),
        (
            "Look at the unit's log for the reason. An engine that does not run with the old "
            "files either has another fault, which its restart has only brought up."
        ),
        """
$ systemctl status containerd
$ journalctl -u containerd -n 50
""",
    ),
    "GH2007": (
        (
            "--restart asks for a way that this engine, as it runs here, cannot go. containerd "
            "and CRI-O read their files only when they start, and gpuhook ends no daemon by a "
            "signal: nobody may be there who starts it again."
        ),
        "Leave --restart out, and restart the engine the way in which it was started.",
        """
$ gpuhook configure containerd --restart=signal
Error GH2007: containerd cannot be restarted by signal: it does not read its configuration ...
$ gpuhook configure containerd
""",
    ),
    "GH2008": (
        (
            "Two runs of `gpuhook configure` or `gpuhook install` for one engine of one host "
            "wait for each other; this one has waited for half a minute."
        ),
        "Find the other one, which may wait for a restart of the engine, and try again after it.",
        """
$ fuser -v /var/lib/gpuhook/configured/containerd
""",
    ),
    "GH2009": (
        (
            "The record of what was done to an engine is broken, of a newer gpuhook, or lacks "
            "a backup. Without it nobody knows what was there before."
        ),
        (
            "Use the gpuhook that has written it. If there is none, take gpuhook's part out of "
            "the engine's files by hand, and remove the record's directory."
        ),
        """
$ gpuhook configure show docker
$ rm -r /var/lib/gpuhook/configured/docker
""",
    ),
    "GH2010": (
        (
            "The engine would be told to run a program that is not on its host: each container "
            "of that runtime would fail."
        ),
        (
            "Install the package gpuhook-runtime on the host, or give the path at which you "
            "have put it."
        ),
        """
$ gpuhook configure docker --runtime-path /opt/gpuhook/bin/gpuhook-runtime
""",
    ),
    "GH2011": (
        (
            "The program that was named is not on the host, is a directory, or lacks the mode of "
            "a program. With --host-root, paths are those of that host, not of the container."
        ),
        (
            "Copy the program first, with its mode (0755), then configure the engine. Without the "
            "option gpuhook's own programs are found where packages and installers put them."
        ),
        """
$ ls -l /opt/gpuhook/bin/gpuhook-runtime
$ gpuhook configure docker --runtime-path /opt/gpuhook/bin/gpuhook-runtime
""",
    ),
    "GH2012": (
        (
            "Between reading a file and writing it, somebody else has changed it: a tool that "
            "configures nodes, or a person. Their change stays, and none of ours is made."
        ),
        "Run it again. If it happens again, two tools fight for the file: stop one of them.",
        """
$ gpuhook configure docker
""",
    ),
    "GH2013": (
        (
            "The engine is configured already, and what is to be done depends on how. The record "
            "and the backups are root's, since configurations can hold passwords."
        ),
        "Run the same command as root, a dry run too.",
        """
$ sudo gpuhook configure docker --dry-run
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
    "GH2040": (
        (
            "The engine's configuration is no JSON or TOML, or has a value of another kind than "
            "the engine takes. To edit it would be to guess what was meant."
        ),
        (
            "Mend the line that is named: the engine would not start with it either. Nothing was "
            "changed, and no backup was made."
        ),
        """
$ gpuhook configure docker
Error GH2040: /etc/docker/daemon.json:4 is no JSON: Expecting property name ...
$ sudoedit +4 /etc/docker/daemon.json      # a comma too many
""",
    ),
    "GH2041": (
        (
            "The engine keeps that name for itself: Docker calls its own runtime runc, and shims "
            "of containerd io.containerd.*; or the name has letters that the engine's "
            "configuration cannot have."
        ),
        "Choose another name: letters, digits, dots, dashes and underscores.",
        """
$ gpuhook configure docker --runtime-name runc       # GH2041
$ gpuhook configure docker --runtime-name nvidia
""",
    ),
    "GH2042": (
        (
            "With the routes hook and cdi the engine's own runtime stays, and no other is "
            "registered, so that there is none that could become the default."
        ),
        "With these routes every container can ask for a GPU anyway: leave the option out.",
        """
$ gpuhook configure docker --route cdi --set-as-default     # GH2042
$ gpuhook configure docker --set-as-default
""",
    ),
    "GH2043": (
        "dockerd reads a single daemon.json, and knows no directory of drop-ins.",
        "Leave the option out, or name another main file.",
        """
$ gpuhook configure docker --drop-in /etc/docker/conf.d/gpuhook.json     # GH2043
$ gpuhook configure docker --config /etc/docker/daemon.json
""",
    ),
    "GH2044": (
        (
            "dockerd does not start when a flag and a key of daemon.json say the same thing, even "
            "about different runtimes. The unit of systemd, a drop-in of it or its environment "
            "file has such a flag, mostly of an old guide to NVIDIA's runtime."
        ),
        (
            "Write the flag's value into daemon.json and take the flag out of the file that is "
            "named, then `systemctl daemon-reload`."
        ),
        """
# /etc/systemd/system/docker.service.d/nvidia.conf
[Service]
ExecStart=
ExecStart=/usr/bin/dockerd -H fd:// --add-runtime=nvidia=/usr/bin/nvidia-container-runtime
""",
    ),
    "GH2045": (
        (
            "Devices of CDI came with Docker 25 and podman 4.1. An older engine would not know "
            "what --device nvidia.com/gpu=0 means."
        ),
        "Use the runtime, which works with every version, or a newer engine.",
        """
$ gpuhook configure docker --route cdi       # Docker 24: GH2045
$ gpuhook configure docker --route wrapper
""",
    ),
    "GH2046": (
        (
            "Docker of a snap runs in the snap's own file system, in which /usr/bin is the "
            "snap's: it can start neither our runtime nor our hook."
        ),
        (
            "Let Docker apply a CDI spec that needs no hook, or install Docker's packages from "
            "the distribution or from Docker."
        ),
        """
$ gpuhook configure docker --route cdi
$ gpuhook generate-cdi --hooks none --output /var/run/cdi/nvidia.yaml
""",
    ),
    "GH2047": (
        (
            "A key of daemon.json is there twice. Go merges objects that are there twice, others "
            "take the last one: an edit of one of them could say something else to dockerd than "
            "to whoever reads the file."
        ),
        "Make one of both by hand.",
        """
{
  "runtimes": {"a": {"path": "/usr/bin/a"}},
  "runtimes": {"b": {"path": "/usr/bin/b"}}
}
""",
    ),
    "GH2048": (
        (
            "dockerd looks for nvidia-container-runtime-hook in its PATH when a container is "
            "started with --gpus, and finds another's there, mostly NVIDIA's."
        ),
        (
            "With --take-over, a front in /usr/local/bin comes before it in dockerd's PATH, and "
            "the file of the package stays as it is."
        ),
        """
$ gpuhook configure docker --route hook --take-over
$ systemctl restart docker
$ docker run --rm --gpus all debian nvidia-smi -L
""",
    ),
    "GH2050": (
        "A hook of another tool gives containers GPUs already: with ours they have them twice.",
        "Look whose it is; move it away, or have it replaced and given back by undo.",
        """
$ gpuhook configure podman --take-over
$ gpuhook configure undo podman
""",
    ),
    "GH2051": (
        (
            "A runtime of CRI-O with the route cdi is the default runtime under another name, and "
            "has to name its program: CRI-O says none, and neither crun nor runc is where it "
            "would look."
        ),
        "Say the program in CRI-O's configuration.",
        """
# /etc/crio/crio.conf.d/10-crun.conf
[crio.runtime.runtimes.crun]
runtime_path = "/usr/libexec/crio/crun"
""",
    ),
    "GH2052": (
        (
            "Drop-ins are read by their names, and a later one replaces what an earlier one says. "
            "A file of somebody else's comes after every name that gpuhook would give its own."
        ),
        "Take the key out of that file, or give ours a name that comes after it.",
        """
$ gpuhook configure crio --take-over --drop-in /etc/crio/crio.conf.d/zzz-gpuhook.conf
""",
    ),
    "GH2053": (
        (
            "CRI-O and podman read drop-ins of one directory, and a file elsewhere would be "
            "written without effect."
        ),
        "Leave --config and --drop-in out, or name a file in that directory.",
        """
$ gpuhook configure crio --drop-in /etc/crio/gpuhook.conf                 # GH2053
$ gpuhook configure crio --drop-in /etc/crio/crio.conf.d/50-gpuhook.conf
""",
    ),
}
