# SPDX-License-Identifier: Apache-2.0
"""The texts of faults GH19xx: looking at nodes and requests.

HOT, and loaded only where something is wrong.
"""

from __future__ import annotations

from gpuhook.errors import DriverError, FileError, GpuhookError, RequestError

TEXTS: dict[str, tuple[type[GpuhookError], str, str]] = {
    "GH1900": (
        FileError,
        "{path} is no tree of a node's files: {reason}",
        "name the directory that has the node's etc, proc and dev, such as /host in a pod",
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
        "there is no fault {name}",
        "codes of faults are GH and four digits, as in `Error GH1102`",
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
}
