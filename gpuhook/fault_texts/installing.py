# SPDX-License-Identifier: Apache-2.0
"""The texts of faults GH21xx: installing gpuhook on a node, and taking it away.

HOT, and loaded only where something is wrong.
"""

from __future__ import annotations

from gpuhook.errors import FileError, GpuhookError, HostError, RequestError

TEXTS: dict[str, tuple[type[GpuhookError], str, str]] = {
    "GH2100": (
        HostError,
        "{root} is no root of a host: {reason}",
        "mount the host's root there, such as hostPath / at /host, and name it with --host-root",
    ),
    "GH2130": (
        FileError,
        "{path} is not read: {reason}",
        "give the YAML that kubectl get clusterpolicy -o yaml prints, or the operator's values",
    ),
    "GH2131": (
        FileError,
        "{path} has no policy of the GPU operator: {reason}",
        "give one ClusterPolicy of nvidia.com/v1, or a values file of the operator's chart",
    ),
    "GH2140": (
        RequestError,
        "the hook {hook} of a CDI spec has the argument {argument}, which is not known here",
        "write the spec with `gpuhook generate-cdi`, or with a toolkit that this gpuhook knows",
    ),
    "GH2141": (
        RequestError,
        "the CDI spec names a hook {hook} that gpuhook does not have; it is passed over",
        "write the spec with `gpuhook generate-cdi`, and run `gpuhook doctor` if something lacks",
    ),
    "GH2142": (
        RequestError,
        "`{command}` of NVIDIA's toolkit has no counterpart here: {reason}",
        "{instead}",
    ),
    "GH2143": (
        FileError,
        "the CDI spec needs gpuhook-hook {since} or newer, and this host's is {version}",
        "upgrade gpuhook on the host, or write the spec with its own `gpuhook generate-cdi`",
    ),
}
