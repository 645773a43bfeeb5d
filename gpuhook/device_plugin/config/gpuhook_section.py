# SPDX-License-Identifier: Apache-2.0
"""The section `gpuhook`: keys that NVIDIA's plugin does not have."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.device_plugin.config.grammar import edit_values
from gpuhook.device_plugin.config.grammar.grammar import Entries, Option, Section, key, keys_of
from gpuhook.device_plugin.config.grammar.memory_values import AMOUNT, RESERVE
from gpuhook.device_plugin.config.grammar.name_values import ALL_XIDS, Address, DeviceNames, Xids
from gpuhook.device_plugin.config.grammar.value_kinds import (
    BOOLEAN,
    PATH,
    Choice,
    Duration,
    NumberKind,
)

NO_ACTION, REPORT, TERMINATE, KILL = GUARD_ACTIONS = ("none", "report", "terminate", "kill")


def _option(name: str, *others: str) -> Option:
    """Return an option with its variable GPUHOOK_<NAME>, then `others`."""
    return Option(name, ("GPUHOOK_" + name.upper().replace("-", "_"), *others))


@dataclass(frozen=True, slots=True)
class Health:
    """`gpuhook.health`: the XIDs that make a device unhealthy, and the interval of checks.

    Enabled XIDs take precedence over ignored ones, and these over the table; see `rule`.
    """

    critical_xids: frozenset[int] | None = key(
        "criticalXids",
        Xids(),
        "The XIDs that make a device unhealthy, instead of gpuhook's table.",
        None,
        _option("health-critical-xids"),
    )
    ignored_xids: frozenset[int] | str = key(  # or ALL_XIDS
        "ignoredXids",
        Xids(may_be_all=True),
        "The XIDs that never make a device unhealthy, or all.",
        frozenset(),
        _option("health-ignored-xids", "DP_DISABLE_HEALTHCHECKS"),
    )
    enabled_xids: frozenset[int] | str = key(  # or ALL_XIDS
        "enabledXids",
        Xids(may_be_all=True),
        "The XIDs that always make a device unhealthy, or all. Takes precedence over the other "
        "keys.",
        frozenset(),
        _option("health-enabled-xids", "DP_ENABLE_HEALTHCHECKS"),
    )
    ask_driver: bool = key(
        "askDriver",
        BOOLEAN,
        "Use the recovery action that the driver recommends after an XID.",
        True,
        _option("health-ask-driver"),
    )
    poll_seconds: float = key(
        "pollInterval",
        Duration(),
        "The interval of checks for lost GPUs and MIG changes.",
        10.0,
        _option("health-poll-interval"),
    )

    @property
    def ignores_all(self) -> bool:
        """Whether all XIDs are ignored: DP_DISABLE_HEALTHCHECKS=all or xids."""
        return self.ignored_xids == ALL_XIDS

    def rule(self, xid: int) -> bool | None:
        """Return whether an XID is unhealthy by configuration, None if no key applies to it.

        Then the driver's recommendation applies, else the table of gpuhook.
        """
        if _contains(self.enabled_xids, xid):
            return True
        if _contains(self.ignored_xids, xid):
            return False
        return None if self.critical_xids is None else xid in self.critical_xids


def _contains(xids: frozenset[int] | str, xid: int) -> bool:
    return xids == ALL_XIDS if isinstance(xids, str) else xid in xids


@dataclass(frozen=True, slots=True)
class Metrics:
    """`gpuhook.metrics`: the Prometheus endpoint; an empty address disables it."""

    address: str = key(
        "address",
        Address(),
        "The address of the Prometheus endpoint; empty to disable it.",
        "127.0.0.1:9395",
        _option("metrics-address"),
    )


@dataclass(frozen=True, slots=True)
class Guard:
    """`gpuhook.guard`: the reaction to containers above a limit that the driver does not enforce.

    Times in seconds.
    """

    action: str = key(  # each action includes those before it
        "action",
        Choice(GUARD_ACTIONS),
        "The action on a container above a limit that the driver does not enforce: none, report, "
        "terminate or kill.",
        REPORT,
        _option("guard-action"),
    )
    grace: float = key(
        "grace",
        Duration(shortest=1.0, may_be_zero=True),
        "How long a container can exceed its limit before one of its processes gets SIGTERM.",
        30.0,
        _option("guard-grace"),
    )
    kill_after: float = key(
        "killAfter",
        Duration(shortest=1.0),
        "The time from SIGTERM to SIGKILL, with action kill.",
        10.0,
        _option("guard-kill-after"),
    )
    tolerance: float = key(
        "tolerance",
        NumberKind(1.0, 10.0),
        "The factor of its limit above which a container exceeds it.",
        1.05,
        _option("guard-tolerance"),
    )
    shortest_interval: float = key(
        "shortestInterval",
        Duration(),
        "The interval of measurements while a container is near its limit.",
        1.0,
        _option("guard-shortest-interval"),
    )
    longest_interval: float = key(
        "longestInterval",
        Duration(),
        "The interval of measurements while no container is near its limit.",
        10.0,
        _option("guard-longest-interval"),
    )

    @property
    def ends_processes(self) -> bool:
        """Whether it ends processes above a limit; a guard that only reports bounds nothing."""
        return self.action in (TERMINATE, KILL)


@dataclass(frozen=True, slots=True)
class InterposerMount:
    """A bind mount of an interposer."""

    host_path: str = key(
        "hostPath", edit_values.HostPath(), "The source of the mount, a path of the host."
    )
    container_path: str = key(
        "containerPath", edit_values.ContainerPath(), "The destination in the container."
    )
    read_only: bool = key(
        "options",
        edit_values.MountOptions(),
        "ro or rw. The kubelet's mounts are always bind and private. Default: ro.",
        True,
        is_always_printed=True,
    )


@dataclass(frozen=True, slots=True)
class InterposerNode:
    """A device node of an interposer."""

    path: str = key(
        "path",
        edit_values.DeviceNodeValue(),
        "The path on the host and in the container.",
    )


@dataclass(frozen=True, slots=True)
class InterposerEdits:
    """The container edits of an interposer: a part of a CDI spec's.

    In the values of `env` and in host paths, {uuid}, {index}, {limitMiB}, {limitBytes} and
    {replicas} are replaced by the values of the container's device and its share.
    """

    env: tuple[tuple[str, str], ...] = key(
        "env", edit_values.EnvironmentValue(), "Variables, each as NAME=value.", ()
    )
    mounts: tuple[InterposerMount, ...] = key(
        "mounts",
        Entries(Section(InterposerMount, keys_of(InterposerMount)), "mount"),
        "Bind mounts from the host.",
        (),
    )
    device_nodes: tuple[InterposerNode, ...] = key(
        "deviceNodes",
        Entries(
            Section(
                InterposerNode,
                keys_of(InterposerNode),
                (
                    (
                        "hostPath",
                        "is not supported: a device node has one path on both sides",
                        "write the path of the host as `path`",
                    ),
                ),
            ),
            "device node",
        ),
        "Device nodes, except those of NVIDIA's driver.",
        (),
    )


_CANNOT = "is not supported: the kubelet's API has no field for"
_EDITS = Section(
    InterposerEdits,
    keys_of(InterposerEdits),
    (
        ("hooks", f"{_CANNOT} hooks", "put a CDI spec with the hooks on the node instead"),
        ("additionalGids", f"{_CANNOT} groups", "set supplementalGroups in the pod"),
        ("intelRdt", f"{_CANNOT} cache allocation", "remove it"),
        ("netDevices", f"{_CANNOT} network devices", "remove it"),
    ),
)


@dataclass(frozen=True, slots=True)
class Interposer:
    """One entry of `gpuhook.interposers`: container edits added to a shared device."""

    name: str = key("name", edit_values.NAME, "The name for the key `interposer`.")
    edits: InterposerEdits = key(
        "containerEdits",
        _EDITS,
        "The edits of the container, as in a CDI spec.",
        InterposerEdits(),
        required=True,
    )


@dataclass(frozen=True, slots=True)
class Own:
    """`gpuhook`: the keys that NVIDIA's plugin does not have."""

    exclude_devices: tuple[str, ...] = key(
        "excludeDevices",
        DeviceNames(),
        "GPUs that are not offered: by index, UUID, PCI bus id or model.",
        (),
        _option("exclude-devices"),
    )
    pre_start_check: bool = key(
        "preStartCheck",
        BOOLEAN,
        "Check the health and the free memory of the devices before a container starts.",
        False,
        _option("pre-start-check"),
    )
    min_free_memory: int = key(
        "minFreeMemory",
        AMOUNT,
        "The free memory that preStartCheck requires of a device.",
        0,
        _option("min-free-memory"),
    )
    host_files_path: str = key(
        "hostFilesPath",
        PATH,
        "The directory in the container for the driver's files, with strategy host-files.",
        "/usr/local/nvidia",
        _option("host-files-path"),
    )
    labels: bool = key(
        "labels",
        BOOLEAN,
        "Write the node's feature labels to flags.gfd.outputFile.",
        False,
        _option("labels"),
    )
    label_node: bool = key(
        "labelNode",
        BOOLEAN,
        "Set the feature labels on the node through the API server.",
        False,
        _option("label-node"),
    )
    remove_labels_on_exit: bool = key(
        "removeLabelsOnExit",
        BOOLEAN,
        "Remove the labels when the process ends.",
        False,
        _option("remove-labels-on-exit"),
    )
    accelerator_label: bool = key(
        "acceleratorLabel",
        BOOLEAN,
        "Add the label accelerator=<model>, for example nvidia-tesla-t4.",
        False,
        _option("accelerator-label"),
    )
    memory_reserve: int = key(
        "memoryReserve",
        RESERVE,
        "The memory of each device that fair shares, replicas by size and memory units leave free.",
        256 << 20,
        _option("memory-reserve"),
    )
    health: Health = key(
        "health", Section(Health, keys_of(Health)), "What makes a device unhealthy.", Health()
    )
    metrics: Metrics = key(
        "metrics", Section(Metrics, keys_of(Metrics)), "The Prometheus endpoint.", Metrics()
    )
    guard: Guard = key(
        "guard",
        Section(Guard, keys_of(Guard)),
        "The reaction to containers above a limit that the driver does not enforce.",
        Guard(),
    )
    interposers: tuple[Interposer, ...] = key(
        "interposers",
        Entries(Section(Interposer, keys_of(Interposer)), "interposer"),
        "Libraries between a container's programs and the driver. An entry has no effect until a "
        "shared resource names it.",
        (),
    )


OWN = Section(Own, keys_of(Own))
