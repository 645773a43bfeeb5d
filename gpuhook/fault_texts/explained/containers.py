# SPDX-License-Identifier: Apache-2.0
"""Faults GH13xx at length: cause, cure, example."""

from __future__ import annotations

EXPLANATIONS: dict[str, tuple[str, str, str]] = {
    "GH1300": (
        (
            "The runtime was called for a bundle without a config.json. Called by hand, it "
            "looks in the working directory unless --bundle names another."
        ),
        "Name the bundle; an engine that calls so has lost it between making and starting it.",
        """
$ gpuhook-runtime create --bundle /run/containerd/io.containerd.runtime.v2.task/k8s.io/ID ID
""",
    ),
    "GH1301": (
        "config.json is no OCI runtime spec: not JSON, larger than 64 MiB, or not an object.",
        (
            "Have the engine make the container again. `runc spec` writes one that works, to "
            "compare."
        ),
        """
$ runc spec --bundle /tmp/compare && diff /tmp/compare/config.json config.json
""",
    ),
    "GH1302": (
        (
            "The CDI spec gives the container a device node, and the host has none at that "
            "path, or something that is no device. /dev/nvidia-uvm is the usual one: nothing "
            "makes it at boot until the first CUDA program runs."
        ),
        ("Load the module and make the node; where the GPU itself is gone, see `gpuhook doctor`."),
        """
$ gpuhook system create-device-nodes --load-kernel-modules
$ ls -l /dev/nvidia-uvm
crw-rw-rw- 1 root root 511, 0 /dev/nvidia-uvm
""",
    ),
    "GH1303": (
        (
            "A part of config.json is of another type than the OCI runtime spec says: an object "
            "instead of an array, or a string instead of an object. The runtime itself refuses "
            "items of another type in arrays, such as a number in the environment."
        ),
        (
            "Whoever writes config.json (an engine, an NRI plugin, a wrapper before this one) "
            "is at fault; the message has the key."
        ),
        """
"mounts": {}       # GH1303: mounts is not an array
"mounts": []
""",
    ),
    "GH1304": (
        (
            "The container's root file system is the host's own: root.path is `/`, or a bind of "
            "it. Links and a loader cache would be written into the host."
        ),
        "Give the container a root of its own; who needs the host's files mounts them.",
        """
"root": {"path": "/"}          # GH1304
"root": {"path": "rootfs"}
""",
    ),
    "GH1305": (
        (
            "The file system that holds the container's root is mounted read-only, so that not "
            "even mount points for the driver's files can be made. That is another thing than "
            "root.readonly (docker run --read-only), with which all is well."
        ),
        "Mount it writable, or put an overlay over it.",
        """
$ mount -t overlay overlay -o lowerdir=/image,upperdir=/up,workdir=/work /bundle/rootfs
""",
    ),
    "GH1306": (
        "config.json does not say where the root file system is, or there is no directory.",
        "Set root.path, relative to the bundle or absolute.",
        """
"root": {"path": "rootfs"}
""",
    ),
    "GH1307": (
        (
            "An object of config.json has a key twice, or a key that differs from one of the OCI "
            "runtime spec in case alone. runc merges such values, crun reads one of them: the "
            "container that was judged would not be the container that starts. A container that "
            "requests no GPU is started all the same."
        ),
        "Correct the engine, plugin or wrapper that writes config.json.",
        """
{"process": {...}, "Process": {...}}     # GH1307
{"process": {...}, "process": {...}}     # GH1307
""",
    ),
    "GH1310": (
        (
            "A file that was to be read is a directory, a device or a FIFO, or larger than any "
            "such file is. Files of containers are read with bounds: an image may have put "
            "anything there."
        ),
        "See what is at the path, and who put it there.",
        """
$ stat /run/gpuhook/node.json
""",
    ),
    "GH1312": (
        (
            "A container is to have a limit of GPU memory, and this node runs cgroup v1: the "
            "driver limits cgroups of v2 alone."
        ),
        (
            "Boot with cgroup v2, or let such containers start without (limits.onFailure: "
            "start): the device plugin's guard can then watch the limit, which is no isolation."
        ),
        """
$ stat -fc %T /sys/fs/cgroup
tmpfs                # v1; cgroup2fs is v2
""",
    ),
    "GH1313": (
        (
            "The driver limits a cgroup, and this container has none of its own: it was started "
            "in somebody else's, or in none."
        ),
        "Let its engine make one.",
        """
$ podman run --cgroups=disabled ...      # GH1313
$ podman run ...
""",
    ),
    "GH1314": (
        (
            "Other processes are in the container's cgroup, or below it: a limit would be "
            "theirs too. Two containers that were given the same linux.cgroupsPath are the "
            "usual cause."
        ),
        "Give each container a cgroupsPath of its own.",
        """
$ cat /sys/fs/cgroup/PATH/cgroup.procs
$ ps -o pid,cgroup,args -p PID
""",
    ),
    "GH1315": (
        (
            "Only the host's root may set a limit of GPU memory, and who tried is not: a "
            "rootless engine, or a hook that runs inside a user namespace."
        ),
        (
            "Use gpuhook-runtime as the container's runtime: its hook runs outside of the "
            "container's user namespace. Rootless engines cannot have such limits."
        ),
        """
$ sudo podman run --runtime /usr/bin/gpuhook-runtime -e NVIDIA_GPU_MEMORY_LIMIT=4096 ...
""",
    ),
    "GH1316": (
        (
            "A command was given a document of more than 8 MiB: an inventory, a CDI spec, a "
            "config.json, a manifest. A document of 8 MiB takes up to 450 MiB of memory."
        ),
        "Give the command only the part that the question is about.",
        """
$ kubectl get pods -A -o yaml | gpuhook explain -          # GH1316 on a large cluster
$ kubectl get pod NAME -o yaml | gpuhook explain -
""",
    ),
}
