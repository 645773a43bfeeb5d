# SPDX-License-Identifier: Apache-2.0
"""The grammar of the configuration file: every key, what its value may be, and what it is for.

The keys are those of version v1 of NVIDIA's device plugin, and `gpuhook` for what is ours. `field`
is the attribute that a value has in its dataclass of configuration.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.kubernetes import configuration as facts
from gpuhook.kubernetes.config_names import (
    Address,
    Channels,
    DeviceNames,
    Devices,
    ResourceName,
    Xids,
)
from gpuhook.kubernetes.config_values import (
    OPTIONAL_PATH,
    PATH,
    Boolean,
    Choice,
    Choices,
    Duration,
    Kind,
    Quantity,
    Text,
    Whole,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_ENTRIES = 256  # of a list: each is compared with each
MOST_REPLICAS = 4096  # of one device: the kubelet takes lists of 4 MiB, some 65,000 devices


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping with these keys."""

    keys: tuple[Key, ...]

    def key(self, name: str) -> Key | None:
        """Return the key of that name."""
        return next((key for key in self.keys if key.name == name), None)


@dataclass(frozen=True, slots=True)
class Entries:
    """A list of mappings; `what` names one of them, and without one the list is an error."""

    section: Section
    what: str
    may_be_empty: bool = True


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a section. `may_be_null`: a section that is null is one that is not there."""

    name: str
    kind: Kind | Section | Entries
    about: str
    field: str = ""
    required: bool = False
    may_be_null: bool = False


_PLUGIN = Section(
    (
        Key(
            "passDeviceSpecs",
            Boolean(),
            "Name the device nodes in the answer to the kubelet, too.",
            "pass_device_specs",
        ),
        Key(
            "deviceListStrategy",
            Choices(facts.LIST_STRATEGIES),
            "How a container gets its devices; several may be given.",
            "device_list_strategy",
        ),
        Key(
            "deviceIDStrategy",
            Choice(facts.ID_STRATEGIES),
            "What the runtime is told of a device: its UUID or its index.",
            "device_id_strategy",
        ),
        Key(
            "cdiAnnotationPrefix",
            Text(r"[A-Za-z0-9._/-]+", "the prefix of an annotation"),
            "Prefix of the annotation of strategy cdi-annotations.",
            "cdi_annotation_prefix",
        ),
        Key(
            "nvidiaCTKPath",
            PATH,
            "Path of gpuhook-hook on the host, for the hooks of CDI specs.",
            "cdi_hook_path",
        ),
        Key(
            "containerDriverRoot",
            PATH,
            "Where the plugin's own container has the driver root.",
            "container_driver_root",
        ),
        Key(
            "sharedDevicesAllocationPolicy",
            Choice(facts.POLICIES),
            "Spread replicas over the devices, or fill one device after the other.",
            "shared_devices_allocation_policy",
        ),
    )
)

_GFD = Section(
    (
        Key("oneshot", Boolean(), "Of `gpuhook labels`: write the labels once and end.", "oneshot"),
        Key("noTimestamp", Boolean(), "Leave the label of the time away.", "no_timestamp"),
        Key(
            "sleepInterval",
            Duration(may_be_infinite=True),
            "Of `gpuhook labels`: how often they are made anew.",
            "sleep_interval",
        ),
        Key(
            "outputFile",
            OPTIONAL_PATH,
            "The file of labels; empty for standard output.",
            "output_file",
        ),
        Key(
            "machineTypeFile",
            OPTIONAL_PATH,
            "The file with the name of the machine's model.",
            "machine_type_file",
        ),
    )
)

_FLAGS = Section(
    (
        Key(
            "migStrategy",
            Choice(facts.MIG_STRATEGIES),
            "How MIG instances are offered.",
            "mig_strategy",
        ),
        Key(
            "failOnInitError",
            Boolean(),
            "End when the driver cannot be used, instead of waiting for it.",
            "fail_on_init_error",
        ),
        Key("nvidiaDriverRoot", PATH, "The driver root on the host.", "driver_root"),
        Key(
            "nvidiaDevRoot",
            OPTIONAL_PATH,
            "Where the driver's /dev is on the host. Default: the driver root.",
            "dev_root",
        ),
        Key("gdrcopyEnabled", Boolean(), "Give containers GDRCopy.", "gdrcopy_enabled"),
        Key("gdsEnabled", Boolean(), "Give containers GPUDirect Storage.", "gds_enabled"),
        Key("mofedEnabled", Boolean(), "Give containers MOFED.", "mofed_enabled"),
        Key("mpsRoot", OPTIONAL_PATH, "The directory of MPS on the host.", "mps_root"),
        Key(
            "deviceDiscoveryStrategy",
            Choice(facts.DISCOVERIES),
            "How the devices of the node are found.",
            "device_discovery_strategy",
        ),
        Key(
            "useNodeFeatureAPI",
            Boolean(),
            "Without effect: gpuhook writes its labels to gfd.outputFile.",
        ),
        Key("plugin", _PLUGIN, "What only the device plugin has."),
        Key("gfd", _GFD, "What only the feature labels have."),
    )
)

_NAMING = Entries(
    Section(
        (
            Key(
                "pattern",
                Text(r"[^\x00-\x1f\x7f]{1,200}", "a model, * for any text"),
                "The model, or the profile of a MIG instance; * stands for any text.",
                "pattern",
                required=True,
            ),
            Key("name", ResourceName(), "The resource.", "name", required=True),
        )
    ),
    "pattern",
)

_SHARED = Entries(
    Section(
        (
            Key("name", ResourceName(), "The resource that is shared.", "name", required=True),
            Key("rename", ResourceName(), "What it is called when it is shared.", "rename"),
            Key(
                "devices",
                Devices(),
                "Which of its devices: all, the first ones by their count, or a list.",
                "devices",
            ),
            Key(
                "replicas",
                Whole(1, MOST_REPLICAS),
                "How many containers may have each device; 1 is not shared.",
                "replicas",
                required=True,
            ),
        )
    ),
    "resource",
    may_be_empty=False,
)

_STRATEGY = Section(
    (
        Key(
            "renameByDefault",
            Boolean(),
            "Call the shared resource <name>.shared.",
            "rename_by_default",
        ),
        Key(
            "failRequestsGreaterThanOne",
            Boolean(),
            "Refuse a container that asks for more than one replica.",
            "refuses_more_than_one",
        ),
        Key("resources", _SHARED, "What is shared.", "resources", required=True),
    )
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

_OWN = Section(
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
            "Check a device's health and free memory before each container starts.",
            "pre_start_check",
        ),
        Key(
            "minFreeMemory",
            Quantity(),
            "The memory that must be free on a device for preStartCheck.",
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
            "Remove the labels at the end.",
            "remove_labels_on_exit",
        ),
        Key(
            "acceleratorLabel",
            Boolean(),
            "Label the node accelerator=<model>, too.",
            "accelerator_label",
        ),
        Key("health", _HEALTH, "What makes a device unhealthy."),
        Key(
            "metrics",
            Section(
                (
                    Key(
                        "address",
                        Address(),
                        "Where Prometheus finds the metrics; empty for nowhere.",
                        "address",
                    ),
                )
            ),
            "The metrics.",
        ),
    )
)

FILE = Section(
    (
        Key("version", Choice((facts.VERSION,)), "The version of this form of file."),
        Key("flags", _FLAGS, "What the command line and the environment can set, too."),
        Key(
            "resources",
            Section(
                (
                    Key("gpus", _NAMING, "Models of GPUs, and their resources."),
                    Key("mig", _NAMING, "Profiles of MIG instances, and their resources."),
                )
            ),
            "The names of resources; the first pattern that matches counts.",
        ),
        Key(
            "sharing",
            Section(
                (
                    Key("timeSlicing", _STRATEGY, "Share devices by time slices."),
                    Key("mps", _STRATEGY, "Share devices by NVIDIA MPS.", may_be_null=True),
                )
            ),
            "How devices are handed to several containers at once.",
        ),
        Key(
            "imex",
            Section(
                (
                    Key("channelIDs", Channels(), "The IMEX channels.", "channel_ids"),
                    Key("required", Boolean(), "End when a channel is missing.", "required"),
                )
            ),
            "The IMEX channels that every container gets.",
        ),
        Key(
            "mps",
            Section((Key("root", OPTIONAL_PATH, "The same as flags.mpsRoot."),)),
            "As in the values of the GPU operator.",
        ),
        Key("gpuhook", _OWN, "What only gpuhook has."),
    )
)


def walk(section: Section = FILE, path: str = "") -> Iterator[tuple[str, Key]]:
    """Yield every key with its path, a section's before those in it; [] stands for an index."""
    for key in section.keys:
        here = f"{path}.{key.name}" if path else key.name
        yield here, key
        if isinstance(key.kind, Section):
            yield from walk(key.kind, here)
        elif isinstance(key.kind, Entries):
            yield from walk(key.kind.section, here + "[]")


def kind_of(path: str) -> Kind:
    """Return the kind of the value at a path of the file, "flags.migStrategy"."""
    kind = dict(walk())[path].kind
    assert isinstance(kind, Kind)  # noqa: S101 # a table's own path
    return kind
