# SPDX-License-Identifier: Apache-2.0
"""The grammar of the configuration file: every key, what its value may be, and what it is for.

The keys are those of version v1 of NVIDIA's device plugin, and `gpuhook` for what is ours. `field`
is the attribute that a value has in its dataclass of configuration.py.
"""

from __future__ import annotations

from gpuhook.device_plugin.config import configuration as facts
from gpuhook.device_plugin.config.grammar import gpuhook_keys, sharing_keys
from gpuhook.device_plugin.config.grammar.grammar import Either, Entries, Key, Section
from gpuhook.device_plugin.config.grammar.name_values import Channels, ResourceName
from gpuhook.device_plugin.config.grammar.value_kinds import (
    OPTIONAL_PATH,
    PATH,
    Boolean,
    Choice,
    ChoiceKind,
    Duration,
    Text,
    ValueKind,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_PLUGIN = Section(
    (
        Key(
            "passDeviceSpecs",
            Boolean(),
            "Name device nodes to the kubelet, too, unless all strategies are cdi-*.",
            "pass_device_specs",
        ),
        Key(
            "deviceListStrategy",
            ChoiceKind(facts.LIST_STRATEGIES),
            "How containers are told of their devices; several may be given.",
            "device_list_strategy",
        ),
        Key(
            "deviceIDStrategy",
            Choice(facts.ID_STRATEGIES),
            "What the runtime is told of a device: its UUID or its index (cdi-*: its UUID).",
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
            "The host's gpuhook-hook, for CDI specs. Default: where packages or the installer put "
            "it, if the plugin sees that on the host; else they have no hook.",
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
        Key("oneshot", Boolean(), "`gpuhook labels`: write the labels once and end.", "oneshot"),
        Key("noTimestamp", Boolean(), "Leave out the label gfd.timestamp.", "no_timestamp"),
        Key(
            "sleepInterval",
            Duration(may_be_infinite=True),
            "How often `gpuhook labels` makes the labels anew; the plugin: when they change.",
            "sleep_interval",
        ),
        Key(
            "outputFile",
            OPTIONAL_PATH,
            "The file for the labels; empty for standard output.",
            "output_file",
        ),
        Key(
            "machineTypeFile",
            OPTIONAL_PATH,
            "The file that has the machine's product name.",
            "machine_type_file",
        ),
    )
)

_FLAGS = Section(
    (
        Key(
            "migStrategy",
            Choice(facts.MIG_STRATEGIES),
            "How MIG instances are offered: not, as nvidia.com/gpu, or by profile.",
            "mig_strategy",
        ),
        Key(
            "failOnInitError",
            Boolean(),
            "End when the driver cannot be used at the start, instead of waiting for it.",
            "fail_on_init_error",
        ),
        Key("nvidiaDriverRoot", PATH, "The driver root on the host.", "driver_root"),
        Key(
            "nvidiaDevRoot",
            OPTIONAL_PATH,
            "Where the driver's /dev is on the host. Default: the driver root.",
            "dev_root",
        ),
        Key(
            "gdrcopyEnabled",
            Boolean(),
            "Give containers GDRCopy where the node has it.",
            "gdrcopy_enabled",
        ),
        Key(
            "gdsEnabled",
            Boolean(),
            "Give containers GPUDirect Storage where the node has it.",
            "gds_enabled",
        ),
        Key(
            "mofedEnabled",
            Boolean(),
            "Give containers InfiniBand devices (MOFED) where the node has them.",
            "mofed_enabled",
        ),
        Key(
            "mpsRoot",
            OPTIONAL_PATH,
            "The directory of the MPS daemons, the same path on the host and here.",
            "mps_root",
        ),
        Key(
            "deviceDiscoveryStrategy",
            Choice(facts.DISCOVERIES, facts.UNSERVED_DISCOVERIES),
            "How the devices of the node are found: by NVML, with either word.",
            "device_discovery_strategy",
        ),
        Key(
            "useNodeFeatureAPI",
            Boolean(),
            "Without effect: see gpuhook.labels and gpuhook.labelNode.",
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
            sharing_keys.SHARING,
            "How devices are handed to several containers at once.",
        ),
        Key(
            "imex",
            Section(
                (
                    Key("channelIDs", Channels(), "The IMEX channels.", "channel_ids"),
                    Key(
                        "required",
                        Boolean(),
                        "Fail where a channel is missing, instead of doing without it.",
                        "required",
                    ),
                )
            ),
            "The IMEX channels that every container gets.",
        ),
        Key(
            "mps",
            Section((Key("root", OPTIONAL_PATH, "The same as flags.mpsRoot."),)),
            "As in the values of the GPU operator.",
        ),
        Key("gpuhook", gpuhook_keys.OWN, "What only gpuhook has."),
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
        elif isinstance(key.kind, Either):
            yield from walk(key.kind.section, here)


def kind_of(path: str) -> ValueKind:
    """Return the kind of the value at a path of the file, "flags.migStrategy"."""
    kind = dict(walk())[path].kind
    assert isinstance(kind, ValueKind)  # noqa: S101 # a table's own path
    return kind
