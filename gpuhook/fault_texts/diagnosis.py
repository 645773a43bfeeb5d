# SPDX-License-Identifier: Apache-2.0
"""The texts of faults GH19xx: looking at nodes and requests."""

from __future__ import annotations

from gpuhook.errors import DriverError, FileError, GpuhookError, HostError

TEXTS: dict[str, tuple[type[GpuhookError], str, str]] = {
    "GH1900": (
        FileError,
        "{path} is no tree of a node's files: {reason}",
        "name the directory that has the node's etc, proc and dev, such as /host in a pod",
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
