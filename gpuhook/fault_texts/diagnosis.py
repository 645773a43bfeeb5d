# SPDX-License-Identifier: Apache-2.0
"""The texts of faults GH19xx: looking at nodes and requests."""

from __future__ import annotations

from gpuhook.errors import DriverError, FileError, GpuhookError, HostError, RefusedError

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
}
