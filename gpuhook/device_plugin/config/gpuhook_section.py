# SPDX-License-Identifier: Apache-2.0
"""The section `gpuhook`: keys that NVIDIA's plugin does not have."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.device_plugin.config.grammar import edit_values
from gpuhook.device_plugin.config.grammar.grammar import (
    Entries,
    Option,
    flag,
    key,
    section_of,
)
from gpuhook.device_plugin.config.grammar.memory_values import AMOUNT, RESERVE
from gpuhook.device_plugin.config.grammar.name_values import ALL_XIDS, Address, DeviceNames, Xids
from gpuhook.device_plugin.config.grammar.value_kinds import (
    BOOLEAN,
    PATH,
    Choice,
    ChoiceList,
    Duration,
    Number,
)
from gpuhook.vendors.catalogue import vendors

NO_ACTION, REPORT, TERMINATE, KILL = GUARD_ACTIONS = ("none", "report", "terminate", "kill")
TAINT_EFFECTS = ("NoSchedule", "NoExecute", "None")
_VARIABLES = "GPUHOOK_"  # with which the names of the variables begin
_LABEL_KINDS = tuple(kind for vendor in vendors() for kind in vendor.label_kinds)


@dataclass(frozen=True, slots=True)
class Health:
    """`gpuhook.health`: the XIDs that make a device unhealthy, and the interval of checks.

    Enabled XIDs take precedence over ignored ones, and these over the table; see `rule`.
    """

    critical_xids: frozenset[int] | None = flag(
        Xids(), "The XIDs that make a device unhealthy, instead of gpuhook's table.", None
    )
    ignored_xids: frozenset[int] | str = flag(  # or ALL_XIDS
        Xids(may_be_all=True),
        "The XIDs that never make a device unhealthy, or all.",
        frozenset(),
        option=Option(variables=("GPUHOOK_HEALTH_IGNORED_XIDS", "DP_DISABLE_HEALTHCHECKS")),
    )
    enabled_xids: frozenset[int] | str = flag(  # or ALL_XIDS
        Xids(may_be_all=True),
        "The XIDs that always make a device unhealthy, or all. Takes precedence over the other "
        "keys.",
        frozenset(),
        option=Option(variables=("GPUHOOK_HEALTH_ENABLED_XIDS", "DP_ENABLE_HEALTHCHECKS")),
    )
    ask_driver: bool = flag(
        BOOLEAN, "After an XID, use the recovery action that the driver recommends.", True
    )
    poll_interval: float = flag(
        Duration(),
        "The interval between checks for lost GPUs and MIG changes.",
        10.0,
    )
    taint_effect: str = flag(
        Choice(TAINT_EFFECTS),
        "The effect of the DRA driver's taints of unhealthy devices. NoExecute evicts their pods; "
        "None only informs. The device plugin has no taints.",
        TAINT_EFFECTS[0],
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

    address: str = flag(
        Address(), "The address of the Prometheus endpoint; empty to disable it.", "127.0.0.1:9395"
    )


@dataclass(frozen=True, slots=True)
class Guard:
    """`gpuhook.guard`: the reaction to containers above a limit that the driver does not enforce.

    Times in seconds.
    """

    action: str = flag(  # each action includes those before it
        Choice(GUARD_ACTIONS),
        "What to do with a container that exceeds a limit the driver does not enforce: none, "
        "report, terminate or kill.",
        REPORT,
    )
    grace: float = flag(
        Duration(shortest=1.0, may_be_zero=True),
        "How long a container may exceed its limit before one of its processes gets SIGTERM.",
        30.0,
    )
    kill_after: float = flag(
        Duration(shortest=1.0), "The time between SIGTERM and SIGKILL, with action kill.", 10.0
    )
    tolerance: float = flag(
        Number(1.0, 10.0),
        "A container exceeds its limit if its memory is above the limit times this factor.",
        1.05,
    )
    shortest_interval: float = flag(
        Duration(), "The measurement interval while a container is near its limit.", 1.0
    )
    longest_interval: float = flag(
        Duration(), "The measurement interval while no container is near its limit.", 10.0
    )

    @property
    def ends_processes(self) -> bool:
        """Whether it terminates processes above a limit, instead of only reporting them."""
        return self.action in (TERMINATE, KILL)


@dataclass(frozen=True, slots=True)
class InterposerMount:
    """A bind mount of an interposer."""

    host_path: str = key(edit_values.HOST_PATH, "The source of the mount, a path on the host.")
    container_path: str = key(edit_values.CONTAINER_PATH, "The destination in the container.")
    read_only: bool = key(
        edit_values.MountOptions(),
        "ro or rw. The kubelet's mounts are always bind and private. Default: ro.",
        True,
        name="options",
        is_always_printed=True,
    )


@dataclass(frozen=True, slots=True)
class InterposerNode:
    """A device node of an interposer."""

    path: str = key(edit_values.DEVICE_NODE, "The path on the host and in the container.")


_NO_HOST_PATH = (
    (
        "hostPath",
        "is not supported: a device node has one path on both sides",
        "write the path on the host as `path`",
    ),
)


@dataclass(frozen=True, slots=True)
class InterposerEdits:
    """The container edits of an interposer: a part of a CDI spec's.

    In the values of `env` and in host paths, {uuid}, {index}, {limitMiB}, {limitBytes} and
    {replicas} are replaced by the values of the container's device and its share.
    """

    env: tuple[tuple[str, str], ...] = key(
        edit_values.EnvironmentValue(), "Variables, each as NAME=value.", ()
    )
    mounts: tuple[InterposerMount, ...] = key(
        Entries(section_of(InterposerMount), "mount"),
        "Bind mounts from the host.",
        (),
    )
    device_nodes: tuple[InterposerNode, ...] = key(
        Entries(
            section_of(InterposerNode, unserved=_NO_HOST_PATH),
            "device node",
        ),
        "Device nodes, except those of the drivers of GPUs.",
        (),
    )


_CANNOT = "is not supported: the kubelet's API has no field for"
_UNSERVED_EDITS = (
    ("hooks", f"{_CANNOT} hooks", "put a CDI spec with the hooks on the node instead"),
    ("additionalGids", f"{_CANNOT} groups", "set supplementalGroups in the pod"),
    ("intelRdt", f"{_CANNOT} cache allocation", "remove it"),
    ("netDevices", f"{_CANNOT} network devices", "remove it"),
)


@dataclass(frozen=True, slots=True)
class Interposer:
    """One entry of `gpuhook.interposers`: container edits added to a shared device."""

    name: str = key(edit_values.NAME, "The name for the key `interposer`.")
    edits: InterposerEdits = key(
        section_of(InterposerEdits, unserved=_UNSERVED_EDITS),
        "The edits of the container, as in a CDI spec.",
        InterposerEdits(),
        name="containerEdits",
        required=True,
    )


@dataclass(frozen=True, slots=True)
class Own:
    """`gpuhook`: the keys that NVIDIA's plugin does not have."""

    exclude_devices: tuple[str, ...] = flag(
        DeviceNames(),
        "GPUs that the plugin does not offer: by index, UUID, PCI bus id or model.",
        (),
    )
    pre_start_check: bool = flag(
        BOOLEAN,
        "Check the health and the free memory of the devices before a container starts.",
        False,
    )
    min_free_memory: int = flag(
        AMOUNT, "The free memory that preStartCheck requires on each device.", 0
    )
    host_files_path: str = flag(
        PATH,
        "The container directory for the driver's files, with the host-files strategy.",
        "/usr/local/nvidia",
    )
    labels: bool = flag(BOOLEAN, "Write the node's feature labels to flags.gfd.outputFile.", False)
    label_node: bool = flag(
        BOOLEAN, "Set the feature labels on the node through the API server.", False
    )
    remove_labels_on_exit: bool = flag(BOOLEAN, "Remove the labels when the process exits.", False)
    accelerator_label: bool = flag(
        BOOLEAN, "Add the label accelerator=<model>, for example nvidia-tesla-t4.", False
    )
    device_labels: tuple[str, ...] = flag(
        ChoiceList(_LABEL_KINDS, may_be_empty=True, title="KIND"),
        "The kinds of labels of AMD's node labeller that a node with AMD GPUs has. Known: "
        f"{', '.join(_LABEL_KINDS)}.",
        tuple(kind for vendor in vendors() for kind in vendor.default_label_kinds),
    )
    memory_reserve: int = flag(
        RESERVE,
        (
            "The memory of each device that is not given to fair shares, replicas by size or "
            "memory units."
        ),
        256 << 20,
    )
    health: Health = key(
        section_of(Health, "health-", _VARIABLES),
        "What makes a device unhealthy.",
        Health(),
    )
    metrics: Metrics = key(
        section_of(Metrics, "metrics-", _VARIABLES),
        "The Prometheus endpoint.",
        Metrics(),
    )
    guard: Guard = key(
        section_of(Guard, "guard-", _VARIABLES),
        "The reaction to containers above a limit that the driver does not enforce.",
        Guard(),
    )
    interposers: tuple[Interposer, ...] = key(
        Entries(section_of(Interposer), "interposer"),
        "Libraries between a container's programs and the driver. An entry has no effect until a "
        "shared resource names it.",
        (),
    )


OWN = section_of(Own, variables=_VARIABLES)
