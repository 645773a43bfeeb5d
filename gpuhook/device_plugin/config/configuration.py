# SPDX-License-Identifier: Apache-2.0
"""The configuration of the device plugin, checked and complete: what runs is one Configuration.

The keys and their meaning are those of the version v1 file of NVIDIA's device plugin; `own` holds
what only gpuhook has, under the top-level key `gpuhook`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

VERSION = "v1"
MIG_STRATEGIES = ("none", "single", "mixed")
LIST_STRATEGIES = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri", "host-files")
ID_STRATEGIES = ("uuid", "index")
POLICIES = ("distributed", "packed")
DISCOVERIES = ("auto", "nvml")  # both ask NVML: no other kind of node is served
UNSERVED_DISCOVERIES = ("tegra", "vfio")
SHARED = ".shared"  # behind the name of a resource that renameByDefault renames
TIME_SLICING, MPS, NOT_SHARED = "time-slicing", "mps", "none"
MEMORY_UNITS = "memory-units"
FAIR, UNLIMITED = "fair", "none"  # of SharedResource.memory
TIME_SLICES = ("default", "short", "medium", "long")
COMPUTE_MODES = ("default", "exclusive-process")
HINTS = ("tensorflow", "pytorch", "jax", "cupy", "paddle")
PACKED, SPREAD = "packed", "spread"
CONTEXT_MEMORY = 256 << 20  # bytes: less holds no CUDA context with its libraries
MOST_MEMORY = 1 << 40  # bytes: no device has as much
DEFAULT_UNIT = 1 << 30  # bytes, of memory units
UNITS = {"GiB": 1 << 30, "MiB": 1 << 20}
PLACEHOLDERS = ("uuid", "index", "limitMiB", "limitBytes", "replicas")  # of an Interposer
NO_ACTION, REPORT, TERMINATE, KILL = GUARD_ACTIONS = ("none", "report", "terminate", "kill")
MOST_CLIENTS = 48  # of MPS, on any device that there is


@dataclass(frozen=True, slots=True)
class PluginFlags:
    """`flags.plugin`: how an allocation is handed to the container's runtime."""

    pass_device_specs: bool = False
    device_list_strategy: tuple[str, ...] = ("envvar",)  # of LIST_STRATEGIES
    device_id_strategy: str = "uuid"
    cdi_annotation_prefix: str = "cdi.k8s.io/"
    cdi_hook_path: str | None = None  # nvidiaCTKPath: of the host, in CDI specs; None: spec_upkeep
    container_driver_root: str = "/driver-root"  # where the plugin's container has the driver root
    shared_devices_allocation_policy: str = "distributed"


@dataclass(frozen=True, slots=True)
class LabelFlags:
    """`flags.gfd`: how the node's feature labels are written. Times in seconds, None: never."""

    oneshot: bool = False
    no_timestamp: bool = False
    sleep_interval: float | None = 60.0
    output_file: str = "/etc/kubernetes/node-feature-discovery/features.d/gfd"
    machine_type_file: str = "/sys/class/dmi/id/product_name"


@dataclass(frozen=True, slots=True)
class Flags:
    """`flags`: what the command line and the environment can set, too."""

    mig_strategy: str = "none"
    fail_on_init_error: bool = True
    driver_root: str = "/"  # nvidiaDriverRoot, a path of the host
    dev_root: str | None = None  # nvidiaDevRoot; None: the driver root
    gdrcopy_enabled: bool = False
    gds_enabled: bool = False
    mofed_enabled: bool = False
    mps_root: str = ""
    device_discovery_strategy: str = "auto"
    plugin: PluginFlags = PluginFlags()
    gfd: LabelFlags = LabelFlags()


@dataclass(frozen=True, slots=True)
class Naming:
    """One entry of `resources.gpus` or `resources.mig`: models or profiles to a resource name."""

    pattern: str  # "*" stands for any text, all else for itself
    name: str  # "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class SharedResource:
    """One entry of `sharing.*.resources`.

    `devices` is "all", a number of devices (the first ones), or names: an index "0", a MIG index
    "0:1", a UUID, a model ("Tesla T4"). `memory` is what one replica may have of a device's memory:
    FAIR, UNLIMITED or bytes; None stands for the strategy's own, limit(). In memory units, `unit`
    is the size of one, and there are as many as fit.
    """

    name: str  # "nvidia.com/gpu", the resource before sharing
    replicas: int = 0  # 1 and more; 0: as many as replica_memory or unit fit into a device
    rename: str | None = None
    devices: str | int | tuple[str, ...] = "all"
    replica_memory: int | None = None  # bytes: `replicas: {memory: 4Gi}`
    memory: str | int | None = None
    oversubscribe: bool = False  # limits may add up to more than the device has
    unit: int | None = None  # bytes, of memoryUnits
    active_thread_percentage: int | None = None  # of an MPS client, 1 to 100; None: 100 / replicas
    time_slice: str | None = None  # of TIME_SLICES; None: left as it is
    compute_mode: str | None = None  # of COMPUTE_MODES; None: left as it is
    hints: tuple[str, ...] = ()  # of HINTS
    interposer: str | None = None  # the name of one of Own.interposers

    @property
    def limit(self) -> str | int | None:
        """What one replica may have: FAIR, bytes, UNLIMITED; None: what the strategy does.

        MPS divides the device without a reserve, as the reference does; time slices limit nothing.
        """
        return self.replica_memory if self.memory is None else self.memory

    def offered_name(self, *, by_default: bool) -> str:
        """Return under what name the devices are offered; `by_default` is renameByDefault.

        One replica is not shared, so that has nothing to say of it; a name that somebody wrote down
        is theirs.
        """
        is_shared = self.replicas != 1
        return self.rename or self.name + (SHARED if by_default and is_shared else "")


@dataclass(frozen=True, slots=True)
class Sharing:
    """`sharing`: how devices are handed to several containers at once."""

    strategy: str = NOT_SHARED  # NOT_SHARED, TIME_SLICING, MPS or MEMORY_UNITS
    rename_by_default: bool = False
    refuses_more_than_one: bool = False  # failRequestsGreaterThanOne
    resources: tuple[SharedResource, ...] = ()
    policy: str = PACKED  # of memory units: PACKED or SPREAD, over the devices of a resource


@dataclass(frozen=True, slots=True)
class Imex:
    """`imex`: the IMEX channels that every container gets."""

    channel_ids: tuple[int, ...] = ()
    required: bool = False


@dataclass(frozen=True, slots=True)
class Health:
    """`gpuhook.health`: which XIDs make a device unhealthy, and how often things are looked at.

    What is enabled wins over what is ignored, and that over the table; `rule` is the order.
    """

    critical_xids: frozenset[int] | None = None  # None: the table of gpuhook
    ignored_xids: frozenset[int] = frozenset()
    ask_driver: bool = True  # for the recovery action, where the driver has the field
    poll_seconds: float = 10.0  # lost and re-appeared GPUs, MIG changes
    enabled_xids: frozenset[int] = frozenset()  # DP_ENABLE_HEALTHCHECKS
    enables_all: bool = False
    ignores_all: bool = False  # DP_DISABLE_HEALTHCHECKS=all or xids

    def rule(self, xid: int) -> bool | None:
        """Return whether an XID is unhealthy by configuration, None if the configuration is silent.

        None means: what the driver recommends, where it is asked, else the table of gpuhook.
        """
        if self.enables_all or xid in self.enabled_xids:
            return True
        if self.ignores_all or xid in self.ignored_xids:
            return False
        return None if self.critical_xids is None else xid in self.critical_xids


@dataclass(frozen=True, slots=True)
class Metrics:
    """`gpuhook.metrics`: the Prometheus endpoint; an empty address turns it off."""

    address: str = "127.0.0.1:9395"


@dataclass(frozen=True, slots=True)
class Guard:
    """`gpuhook.guard`: what is done about containers above a limit that no driver enforces.

    Times in seconds. Above its limit is above `tolerance` times the limit.
    """

    action: str = REPORT  # of GUARD_ACTIONS: each does what those before it do
    grace: float = 30.0  # above its limit, before TERMINATE sends SIGTERM
    kill_after: float = 10.0  # from SIGTERM to SIGKILL, of KILL
    tolerance: float = 1.05
    shortest_interval: float = 1.0  # between two looks, while somebody is near a limit
    longest_interval: float = 10.0

    @property
    def ends_processes(self) -> bool:
        """Whether it ends what is above a limit: only then it bounds anything."""
        return self.action in (TERMINATE, KILL)


@dataclass(frozen=True, slots=True)
class InterposerMount:
    """A bind mount of an interposer."""

    host_path: str
    container_path: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class Interposer:
    """One entry of `gpuhook.interposers`: what containers get beside a shared device.

    In the values of `env` and in host paths, {uuid}, {index}, {limitMiB}, {limitBytes} and
    {replicas} stand for the container's device and its share.
    """

    name: str
    env: tuple[tuple[str, str], ...] = ()
    mounts: tuple[InterposerMount, ...] = ()
    device_nodes: tuple[str, ...] = ()  # paths, the same on the host and in the container


@dataclass(frozen=True, slots=True)
class Own:
    """`gpuhook`: what the reference has no key for."""

    exclude_devices: tuple[str, ...] = ()  # index, UUID, PCI bus id or model
    pre_start_check: bool = False
    min_free_memory: int = 0  # bytes that a device must have free before a container starts
    host_files_path: str = "/usr/local/nvidia"  # container directory of strategy host-files
    labels: bool = False  # the plugin writes the node's feature labels to flags.gfd.output_file
    label_node: bool = False  # and on the node itself, through the API server
    remove_labels_on_exit: bool = False
    accelerator_label: bool = False  # accelerator=nvidia-tesla-t4 among the labels
    memory_reserve: int = 256 << 20  # bytes of each device that no fair share and no unit counts
    health: Health = Health()
    metrics: Metrics = Metrics()
    guard: Guard = Guard()
    interposers: tuple[Interposer, ...] = ()


@dataclass(frozen=True, slots=True)
class Configuration:
    """All of it. `gpus` and `mig` are the `resources` patterns, first match wins."""

    flags: Flags = Flags()
    gpus: tuple[Naming, ...] = (Naming("*", "nvidia.com/gpu"),)
    mig: tuple[Naming, ...] = ()  # () means: named as the MIG strategy says
    sharing: Sharing = Sharing()
    imex: Imex = Imex()
    own: Own = field(default_factory=Own)
