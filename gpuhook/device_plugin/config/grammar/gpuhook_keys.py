# SPDX-License-Identifier: Apache-2.0
"""The keys below `gpuhook`: what NVIDIA's plugin has no key for."""

from __future__ import annotations

from gpuhook.device_plugin.config import configuration as facts
from gpuhook.device_plugin.config.grammar import edit_values, memory_values
from gpuhook.device_plugin.config.grammar.grammar import Entries, Key, Section
from gpuhook.device_plugin.config.grammar.name_values import Address, DeviceNames, Xids
from gpuhook.device_plugin.config.grammar.value_kinds import (
    PATH,
    Boolean,
    Choice,
    Duration,
    NumberKind,
    Quantity,
)

_HEALTH = Section(
    (
        Key(
            "criticalXids",
            Xids(),
            "The XIDs that make a device unhealthy, instead of gpuhook's table.",
            "critical_xids",
        ),
        Key(
            "ignoredXids",
            Xids(may_be_all=True),
            "XIDs that never make a device unhealthy, or all.",
            "ignored_xids",
        ),
        Key(
            "enabledXids",
            Xids(may_be_all=True),
            "XIDs that always make a device unhealthy, or all; wins over the other keys.",
            "enabled_xids",
        ),
        Key(
            "askDriver",
            Boolean(),
            "Ask the driver what it recommends after an XID.",
            "ask_driver",
        ),
        Key(
            "pollInterval",
            Duration(),
            "How often lost GPUs and MIG changes are looked for.",
            "poll_seconds",
        ),
    )
)

_GUARD = Section(
    (
        Key(
            "action",
            Choice(facts.GUARD_ACTIONS),
            "What is done about a container above its limit where the driver does not hold it: "
            "none, report, terminate or kill. Default: report.",
            "action",
        ),
        Key(
            "grace",
            Duration(shortest=1.0, may_be_zero=True),
            "How long a container may be above its limit before a process of it is terminated. "
            "Default: 30s.",
            "grace",
        ),
        Key(
            "killAfter",
            Duration(shortest=1.0),
            "How long a process has from SIGTERM to SIGKILL, with action kill. Default: 10s.",
            "kill_after",
        ),
        Key(
            "tolerance",
            NumberKind(1.0, 10.0),
            "How many times its limit a container has to use to count as above it. Default: 1.05.",
            "tolerance",
        ),
        Key(
            "shortestInterval",
            Duration(),
            "How often the guard looks while somebody is near a limit. Default: 1s.",
            "shortest_interval",
        ),
        Key(
            "longestInterval",
            Duration(),
            "How often the guard looks while nobody is near a limit. Default: 10s.",
            "longest_interval",
        ),
    )
)

_NO_HOOKS = "cannot be served: an answer to the kubelet carries no"
_EDITS = Section(
    (
        Key("env", edit_values.EnvironmentValue(), "Variables, each as NAME=value.", "env"),
        Key(
            "mounts",
            Entries(
                Section(
                    (
                        Key(
                            "hostPath",
                            edit_values.HostPath(),
                            "What is mounted, a path of the host.",
                            "host_path",
                            required=True,
                        ),
                        Key(
                            "containerPath",
                            edit_values.ContainerPath(),
                            "Where containers have it.",
                            "container_path",
                            required=True,
                        ),
                        Key(
                            "options",
                            edit_values.MountOptions(),
                            "ro or rw; the kubelet mounts bind and private whatever is said.",
                        ),
                    )
                ),
                "mount",
            ),
            "What containers get mounted.",
        ),
        Key(
            "deviceNodes",
            Entries(
                Section(
                    (
                        Key(
                            "path",
                            edit_values.DeviceNodeValue(),
                            "The node, by the same path on the host and in containers.",
                            "path",
                            required=True,
                        ),
                    ),
                    (
                        (
                            "hostPath",
                            "cannot be served: a device node has one path on both sides",
                            "give the path of the host as `path`",
                        ),
                    ),
                ),
                "device node",
            ),
            "Device nodes that containers get, none of NVIDIA's.",
        ),
    ),
    (
        ("hooks", f"{_NO_HOOKS} hooks", "put a CDI spec with the hooks on the node instead"),
        ("additionalGids", f"{_NO_HOOKS} groups", "set supplementalGroups in the pod"),
        ("intelRdt", f"{_NO_HOOKS} cache allocation", "leave it away"),
        ("netDevices", f"{_NO_HOOKS} network devices", "leave it away"),
    ),
)

_INTERPOSERS = Entries(
    Section(
        (
            Key("name", edit_values.NAME, "What `interposer` calls it.", "name", required=True),
            Key(
                "containerEdits",
                _EDITS,
                "What containers get, in the words of a CDI spec.",
                required=True,
            ),
        )
    ),
    "interposer",
)

OWN = Section(
    (
        Key(
            "excludeDevices",
            DeviceNames(),
            "GPUs that are not offered: by index, UUID, PCI bus id or model.",
            "exclude_devices",
        ),
        Key(
            "preStartCheck",
            Boolean(),
            "Check health and free memory of the devices before each start of a container.",
            "pre_start_check",
        ),
        Key(
            "minFreeMemory",
            Quantity(),
            "The memory that a device must have free for preStartCheck.",
            "min_free_memory",
        ),
        Key(
            "hostFilesPath",
            PATH,
            "Directory in the container of the driver's files, for strategy host-files.",
            "host_files_path",
        ),
        Key("labels", Boolean(), "Write the node's feature labels to gfd.outputFile.", "labels"),
        Key(
            "labelNode",
            Boolean(),
            "Put the feature labels on the node itself, through the API server.",
            "label_node",
        ),
        Key(
            "removeLabelsOnExit",
            Boolean(),
            "Take the labels away when the process ends.",
            "remove_labels_on_exit",
        ),
        Key(
            "acceleratorLabel",
            Boolean(),
            "Add the label accelerator=<model>.",
            "accelerator_label",
        ),
        Key(
            "memoryReserve",
            memory_values.MemoryValue(
                memory_values.MIB, "memory is counted in MiB", may_be_zero=True
            ),
            "The memory of each device that fair shares, derived replicas and units leave free. "
            "Default: 256Mi.",
            "memory_reserve",
        ),
        Key("health", _HEALTH, "What makes a device unhealthy."),
        Key("guard", _GUARD, "What is done about containers that no driver holds to their limit."),
        Key(
            "interposers",
            _INTERPOSERS,
            "What containers may get beside a shared device; off unless a resource names one.",
        ),
        Key(
            "metrics",
            Section(
                (
                    Key(
                        "address",
                        Address(),
                        "Where metrics are served for Prometheus; empty for nowhere.",
                        "address",
                    ),
                )
            ),
            "The metrics.",
        ),
    )
)
