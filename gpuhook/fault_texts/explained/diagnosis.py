# SPDX-License-Identifier: Apache-2.0
"""Faults GH19xx at length: cause, cure, example."""

from __future__ import annotations

EXPLANATIONS: dict[str, tuple[str, str, str]] = {
    "GH1900": (
        (
            "--root names something that is no directory, one that may not be entered, or one "
            "that has nothing of a node in it."
        ),
        "Name the directory with the node's etc, proc and dev.",
        """
$ gpuhook doctor --root /host
""",
    ),
    "GH1901": (
        (
            "NVML hangs, as it does after some XID errors, while a GPU is reset, or where many "
            "GPUs wake up without persistence mode."
        ),
        (
            "See whether nvidia-smi hangs as well. If it does, dmesg names the GPU: drain the "
            "node, then reset or reboot. Else enable persistence mode, and run doctor again."
        ),
        """
$ systemctl enable --now nvidia-persistenced
$ gpuhook doctor --checks driver,gpus
""",
    ),
    "GH1902": (
        (
            "The states of services were asked of a node that systemd does not run, such as a "
            "container or a machine with OpenRC."
        ),
        (
            "Nothing is wrong: the checks that need the states do not apply. In a pod, --root "
            "names the directory that has the node's files."
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
            "Several containers did not answer before it: most often they hang on a file system "
            "(FUSE, NFS) whose server is gone. doctor then ends, so that it ends at all."
        ),
        "Find what the first ones wait for, or look at this one by itself.",
        """
$ gpuhook inspect 3f1c
""",
    ),
    "GH1905": (
        (
            "In a pod the service account may not read nodes; elsewhere there is no kubectl, it "
            "has no credentials, or the API server does not answer in time."
        ),
        (
            "Run it where `kubectl get nodes` works, or as root on the node, where the "
            "kubelet's own credentials are taken. What the kubelet keeps in files is looked at "
            "without."
        ),
        """
$ KUBECONFIG=~/.kube/config gpuhook doctor --checks kubernetes
""",
    ),
    "GH1906": (
        "The file is no gzipped tar, was cut on its way, or was packed anew by another program.",
        (
            "Have it sent again as it was written; `tar -tzf FILE` lists "
            "gpuhook-bundle/manifest.json."
        ),
        """
$ gpuhook support-bundle --file node7.tar.gz
$ gpuhook doctor --from node7.tar.gz
""",
    ),
    "GH1907": (
        (
            "It has what gpuhook never writes: a link, a device, a name twice or one that leads "
            "out of it, or more than anybody should unpack. Somebody may have made it to do "
            "harm."
        ),
        "Do not unpack it by hand either. Ask who sent it how it was made.",
        """
$ gpuhook support-bundle --file node7.tar.gz
""",
    ),
    "GH1910": (
        (
            "What was named is readable and is nothing that asks for GPUs: no bundle, no "
            "config.json, no image's configuration, no manifest of Kubernetes; or it is broken "
            "JSON."
        ),
        "Name one of these. A variable or two can be explained without any file, by --env.",
        """
$ docker image inspect nvidia/cuda:12.4.1-base-ubuntu22.04 > image.json
$ gpuhook explain image.json
$ gpuhook explain --env NVIDIA_VISIBLE_DEVICES=all
""",
    ),
    "GH1911": (
        "There is no file or directory of that name, and no running container is called so.",
        "See what runs with `gpuhook ps`, or give the path of a file.",
        """
$ gpuhook explain ./pod.yaml
$ gpuhook explain ml/train-0/main
""",
    ),
    "GH1912": (
        (
            "The container runs, and the engine has removed the bundle that it was made of, so "
            "that nobody knows its config.json."
        ),
        "Explain what it was started with.",
        """
$ tr '\\0' '\\n' < /proc/PID/environ | grep NVIDIA
$ gpuhook explain --env NVIDIA_VISIBLE_DEVICES=0
""",
    ),
    "GH1913": (
        (
            "There is no description of the node's GPUs, so the driver was asked, in a process "
            "of its own, and has not answered."
        ),
        (
            "See whether nvidia-smi hangs too. A dump of the node, or a profile, explains "
            "without the driver."
        ),
        """
$ timeout 20 nvidia-smi
$ gpuhook explain pod.yaml --inventory t4
""",
    ),
    "GH1914": (
        "`gpuhook explain` was given something that looks like a code and is none.",
        "Copy the code from the error; docs/errors.md lists all of them.",
        """
$ gpuhook explain GH1102
""",
    ),
    "GH1915": (
        (
            "A directory was named, which is taken for a bundle of OCI's: a directory with a "
            "config.json in it. This one has none; perhaps it is the root file system of the "
            "container, which is beside config.json."
        ),
        (
            "Name the directory above it, or config.json itself. containerd keeps bundles below "
            "/run/containerd/io.containerd.runtime.v2.task."
        ),
        """
$ gpuhook explain /run/containerd/io.containerd.runtime.v2.task/k8s.io/3f2a9c
$ gpuhook explain 3f2a9c
""",
    ),
    "GH1930": (
        (
            "The manifest is no YAML or JSON at that place, or it is larger or more deeply "
            "nested than a manifest can be."
        ),
        "Mend the text at that place.",
        """
$ kubectl apply --dry-run=client -f pod.yaml
""",
    ),
    "GH1931": (
        (
            "The file is readable and has nothing in it that makes pods: a Service, a "
            "ConfigMap, a text that is no manifest at all, or an object whose `kind` is missing "
            "because lines were copied without their beginning."
        ),
        "Name the file with the Pod, the Deployment or the like.",
        """
$ kubectl get deployment trainer -o yaml | gpuhook explain -
""",
    ),
    "GH1932": (
        (
            "The manifest has a pod or a workload with a pod template, and its spec has no list "
            "of containers: they were left out, or stand one level too far left or right."
        ),
        "Put the containers below the spec of the pod. kubectl says so of the same file.",
        """
spec:
  containers:
  - name: train
    image: nvidia/cuda:12.4.1-base-ubuntu22.04
""",
    ),
    "GH1940": (
        (
            "The file that is to collect comparisons has other lines than `gpuhook compare "
            "--record` writes, or cannot be written."
        ),
        "Name another file; one that is not there yet is made.",
        """
$ gpuhook compare --all --watch --record /var/log/gpuhook-compare.jsonl
""",
    ),
    "GH1941": (
        (
            "The driver's library was asked for the GPUs in a process of its own, which has ended "
            "without an answer, or could not be started."
        ),
        (
            "Where nvidia-smi fails as well, library and kernel module do not belong together, or "
            "the installation is broken: install the driver again. Else look at the limits of "
            "processes and memory."
        ),
        """
$ nvidia-smi
$ gpuhook doctor --checks driver
""",
    ),
    "GH1942": (
        (
            "`gpuhook compare` asks the driver what gpuhook would give, where generate-cdi has "
            "written no spec. No libnvidia-ml.so.1 was found."
        ),
        (
            "Run it on a node with a driver. In a pod of `kubectl debug node/...` the node's files "
            "are in /host: say so. GKE and driver containers have a driver root of their own."
        ),
        """
$ gpuhook compare --all --driver-root /host --host-root /host
$ gpuhook compare --all --driver-root /run/nvidia/driver
""",
    ),
    "GH1950": (
        (
            "The driver was asked, in a process of its own, who uses the GPUs, and has not "
            "answered. A driver in trouble hangs in the kernel."
        ),
        "See whether nvidia-smi hangs too; what needs no driver is shown with --no-nvml.",
        """
$ gpuhook ps --no-nvml
""",
    ),
    "GH1951": (
        (
            "The process that asked the driver who uses the GPUs failed or crashed in the "
            "driver's library."
        ),
        "Run nvidia-smi; where it fails too, reinstall the driver.",
        """
$ nvidia-smi; gpuhook ps --no-nvml
""",
    ),
    "GH1952": (
        (
            "The driver is asked in a process of its own, and none could be started: a limit of "
            "processes, or no memory."
        ),
        "Raise the limit that is met.",
        """
$ cat /sys/fs/cgroup/user.slice/pids.max; ulimit -u
""",
    ),
    "GH1953": (
        (
            "The driver tells processes by the host's pids, and where gpuhook runs the pids are "
            "others: a container without the host's."
        ),
        "Run it on the host, or in a container with the host's pids.",
        """
$ kubectl debug node/gpu-1 -it --image=IMAGE --profile=sysadmin -- gpuhook ps
$ podman run --pid=host ...
""",
    ),
}
