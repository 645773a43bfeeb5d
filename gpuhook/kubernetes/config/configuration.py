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
MOST_CLIENTS = 48  # of MPS, on any device that there is


@dataclass(frozen=True, slots=True)
class PluginFlags:
    """`flags.plugin`: how an allocation is handed to the container's runtime."""

    pass_device_specs: bool = False
    device_list_strategy: tuple[str, ...] = ("envvar",)  # of LIST_STRATEGIES
    device_id_strategy: str = "uuid"
    cdi_annotation_prefix: str = "cdi.k8s.io/"
    cdi_hook_path: str = "/usr/bin/gpuhook-hook"  # nvidiaCTKPath: of the host, in CDI specs
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
    "0:1", a UUID, a model ("Tesla T4").
    """

    name: str  # "nvidia.com/gpu", the resource before sharing
    replicas: int  # 1 and more
    rename: str | None = None
    devices: str | int | tuple[str, ...] = "all"

    def offered_name(self, *, by_default: bool) -> str:
        """Return under what name the devices are offered; `by_default` is renameByDefault.

        One replica is not shared, so that has nothing to say of it; a name that somebody wrote down
        is theirs.
        """
        return self.rename or self.name + (SHARED if by_default and self.replicas > 1 else "")


@dataclass(frozen=True, slots=True)
class Sharing:
    """`sharing`: how devices are handed to several containers at once."""

    strategy: str = NOT_SHARED  # NOT_SHARED, TIME_SLICING or MPS
    rename_by_default: bool = False
    refuses_more_than_one: bool = False  # failRequestsGreaterThanOne
    resources: tuple[SharedResource, ...] = ()


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
    health: Health = Health()
    metrics: Metrics = Metrics()


@dataclass(frozen=True, slots=True)
class Configuration:
    """All of it. `gpus` and `mig` are the `resources` patterns, first match wins."""

    flags: Flags = Flags()
    gpus: tuple[Naming, ...] = (Naming("*", "nvidia.com/gpu"),)
    mig: tuple[Naming, ...] = ()  # () means: named as the MIG strategy says
    sharing: Sharing = Sharing()
    imex: Imex = Imex()
    own: Own = field(default_factory=Own)
