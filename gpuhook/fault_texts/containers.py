# SPDX-License-Identifier: Apache-2.0
"""The texts of faults GH13xx: containers and their config.json.

Loaded only where something is wrong.
"""

from __future__ import annotations

from gpuhook.errors import DriverError, FileError, GpuhookError, HostError, RefusedError

TEXTS: dict[str, tuple[type[GpuhookError], str, str]] = {
    "GH1300": (
        FileError,
        "{path}: there is no such file",
        "name the bundle that holds config.json with --bundle",
    ),
    "GH1301": (
        FileError,
        "{path} is not a usable OCI runtime spec: {reason}",
        "it was left as it is; have the engine write it anew, or make one with `runc spec`",
    ),
    "GH1302": (
        DriverError,
        "device node {node}: {reason}",
        (
            "make the node (`gpuhook system create-device-nodes --load-kernel-modules`), or run"
            " `gpuhook generate-cdi` again if the GPU is gone"
        ),
    ),
    "GH1303": (
        FileError,
        "config.json: {key} is not {kind}",
        "it was left as it is; the engine that wrote it is at fault",
    ),
    "GH1304": (
        RefusedError,
        "{path} is the host's own root file system",
        "gpuhook changes no file of the host: give the container a root file system of its own",
    ),
    "GH1305": (
        HostError,
        "the root file system {path} is mounted read-only: no runtime can mount a driver into it",
        "mount it writable (an overlay will do) and set root.readonly in config.json instead",
    ),
    "GH1306": (
        FileError,
        "bundle {bundle} has no usable root file system: {reason}",
        "config.json must say where it is in root.path",
    ),
    "GH1307": (
        FileError,
        "config.json has {what}: runtimes do not agree on which one counts",
        "correct the program that wrote it: a key occurs once, as the OCI specification spells it",
    ),
    "GH1310": (
        FileError,
        "{path} is not a regular file of at most {limit} bytes",
        "it was not read; see what is at that path",
    ),
    "GH1312": (
        HostError,
        "this node has cgroup v1, and the driver limits the memory of v2's cgroups only",
        (
            "boot with the kernel parameter systemd.unified_cgroup_hierarchy=1, or set"
            " limits.onFailure to start in /etc/gpuhook/config.yaml: then only a device plugin's"
            " guard can watch the limit"
        ),
    ),
    "GH1313": (
        HostError,
        "the container has no cgroup of its own: {reason}",
        "have its engine give it one (podman: not --cgroups=disabled): limits are a cgroup's",
    ),
    "GH1314": (
        HostError,
        "the container's cgroup {path} holds processes of others, {pids}: it would limit them too",
        "give each container a cgroup of its own, another linux.cgroupsPath",
    ),
    "GH1315": (
        HostError,
        "only the host's root can limit a container's memory of a GPU: {reason}",
        (
            "run the engine as root; for containers with a user namespace use gpuhook-runtime,"
            " whose hook runs outside of it"
        ),
    ),
    "GH1316": (
        FileError,
        "{path} is larger than {limit} MiB, the limit of a document that a command reads",
        "give a part of it: one container, one pod, one node",
    ),
}
