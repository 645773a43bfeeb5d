# SPDX-License-Identifier: Apache-2.0
"""The texts of faults GH21xx: installing gpuhook on a node, and taking it away.

Loaded only where something is wrong.
"""

from __future__ import annotations

from gpuhook.errors import FileError, GpuhookError, HostError, RequestError

TEXTS: dict[str, tuple[type[GpuhookError], str, str]] = {
    "GH2100": (
        HostError,
        "{root} is no root of a host: {reason}",
        "mount the host's root there, such as hostPath / at /host, and name it with --host-root",
    ),
    "GH2101": (
        FileError,
        "{path} is no runtime tree: {reason}",
        "run `gpuhook install` in gpuhook's image, or name a tree with --tree",
    ),
    "GH2102": (
        HostError,
        "gpuhook cannot be installed in {path}: {reason}",
        "choose another directory with --install-dir, or use --route cdi (docs/image.md)",
    ),
    "GH2103": (
        RequestError,
        "gpuhook cannot be installed in {path}: {reason}",
        "choose another directory with --install-dir, such as /opt/gpuhook",
    ),
    "GH2104": (
        FileError,
        "{path} is there and is not gpuhook's",
        "choose another directory with --install-dir, or move it away",
    ),
    "GH2105": (
        HostError,
        "the host cannot run {program}: {reason}",
        "look at the host's security policy and mount options, and choose another --install-dir",
    ),
    "GH2106": (
        HostError,
        "no engine was found below {root}",
        "start the engine, or name it with --engine; `--engine none` configures nothing",
    ),
    "GH2107": (
        RequestError,
        "{where} names configuration {name} for node {node}; {directory} has {known}",
        "add the configuration to the ConfigMap, or change the label of the node",
    ),
    "GH2108": (
        RequestError,
        "config-manager: {variable} is {value!r}: {reason}",
        "docs/image.md lists the variables of config-manager",
    ),
    "GH2109": (
        RequestError,
        "no label {label} on {node}, no DEFAULT_CONFIG, no strategy that fits: {strategies}",
        "label the node, or set DEFAULT_CONFIG, or FALLBACK_STRATEGIES to named,single,empty",
    ),
    "GH2110": (
        HostError,
        "config-manager is in no pod, or in one without a service account's token",
        "run it in a pod of a service account that may get and watch nodes",
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
