# SPDX-License-Identifier: Apache-2.0
"""The texts of faults GH19xx: looking at nodes and requests.

Loaded only where something is wrong.
"""

from __future__ import annotations

from gpuhook.errors import (
    DriverError,
    FileError,
    GpuhookError,
    HostError,
    RefusedError,
    RequestError,
)

TEXTS: dict[str, tuple[type[GpuhookError], str, str]] = {
    "GH1900": (
        FileError,
        "{path} is no tree of a node's files: {reason}",
        "name the directory that has the node's etc, proc and dev, such as /host in a pod",
    ),
    "GH1901": (
        DriverError,
        "NVML has not answered within {seconds} seconds when it was asked for the GPUs",
        "run nvidia-smi on the host: when that hangs too, dmesg | grep NVRM tells why",
    ),
    "GH1902": (
        HostError,
        "systemd does not run here: {path} is not there",
        "ask the service manager that runs here for the states of its services",
    ),
    "GH1903": (
        RefusedError,
        "{path} is a tree of files: --fix mends the node that it runs on, and no other",
        "run `gpuhook doctor --fix` on the node itself",
    ),
    "GH1904": (
        HostError,
        "{container} was not looked at: {count} containers before it have not answered in time",
        "see what they wait for: FUSE or NFS that is mounted in them, most often",
    ),
    "GH1905": (
        HostError,
        "the API server of the cluster cannot be asked: {reason}",
        "run it where `kubectl get nodes` works, or as root on the node",
    ),
    "GH1906": (
        FileError,
        "{path} is no support bundle: {reason}",
        "give the file that `gpuhook support-bundle` wrote, as it was written",
    ),
    "GH1907": (
        RefusedError,
        "{path} is refused as a support bundle: {reason}",
        "nothing of it was used; ask who sent it for a new one",
    ),
    "GH1910": (
        FileError,
        "{where} is nothing that can be explained: {reason}",
        (
            "name a bundle, a config.json, an image's configuration (docker image inspect, skopeo"
            " inspect --config), a manifest of Kubernetes, or a container"
        ),
    ),
    "GH1911": (
        FileError,
        "{path} is not there, and no container is called so",
        "name a file or directory that exists, or a running container as `gpuhook ps` shows it",
    ),
    "GH1912": (
        FileError,
        "container {id} has no config.json: its engine has removed the bundle",
        "explain what it was started with: --env NAME=VALUE for each of its variables",
    ),
    "GH1913": (
        DriverError,
        "the NVIDIA driver has not answered within {seconds} seconds",
        "look for processes in state D and XID errors; nvidia-smi will hang too, then reboot",
    ),
    "GH1914": (
        RequestError,
        "there is no fault {name}; the nearest codes are {nearest}",
        "copy the code from the error itself, as in `Error GH1102`; docs/errors.md lists them all",
    ),
    "GH1915": (
        FileError,
        "{path} is no bundle: it has no config.json",
        (
            "name the directory in which config.json is; what runs can be named by its id instead,"
            " as `gpuhook ps` shows it"
        ),
    ),
    "GH1930": (
        FileError,
        "{place}: this is no manifest that can be read: {reason}",
        "mend the text at that place; `kubectl apply --dry-run=client -f FILE` reads it too",
    ),
    "GH1931": (
        RequestError,
        "{path} has no pod and no workload with a pod template in it: {kinds}",
        "name a file with a Pod, Deployment or the like; a copy without its indentation has none",
    ),
    "GH1932": (
        RequestError,
        "{path} has {pods}, and no containers in it",
        "write them below spec.containers, as a list: each begins with `- name:`",
    ),
    "GH1940": (
        FileError,
        "{path} cannot be used as a record of comparisons: {reason}",
        "name a file that `gpuhook compare --record` has written, or one that is not there yet",
    ),
    "GH1941": (
        DriverError,
        "asking the driver's library for the GPUs failed: {reason}",
        "run nvidia-smi on the host: when that fails too, reinstall the driver",
    ),
    "GH1942": (
        DriverError,
        "there is no NVIDIA driver in {root}, so that nothing tells what gpuhook would give",
        (
            "run it on the node that has the GPUs; in a pod that sees the node's files in /host "
            "add --driver-root /host --host-root /host"
        ),
    ),
    "GH1950": (
        DriverError,
        "the driver has not answered within {seconds} seconds who uses the GPUs",
        (
            "run nvidia-smi on the host: when that hangs too, dmesg | grep NVRM tells why; "
            "--no-nvml does without the driver"
        ),
    ),
    "GH1951": (
        DriverError,
        "asking the driver's library who uses the GPUs failed: {reason}",
        (
            "run nvidia-smi on the host: when that fails too, reinstall the driver; "
            "--no-nvml does without the driver"
        ),
    ),
    "GH1952": (
        HostError,
        "no process can be started to ask the driver who uses the GPUs: {reason}",
        "see pids.max of the cgroup that this runs in, ulimit -u, and the memory of the host",
    ),
    "GH1953": (
        HostError,
        (
            "whose the processes on the GPUs are cannot be told: this runs in a pid namespace of "
            "its own, and the driver tells the pids of the host"
        ),
        "run it on the host, or in a container that has the host's pids (hostPID, --pid=host)",
    ),
}
