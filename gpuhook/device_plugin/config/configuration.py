# SPDX-License-Identifier: Apache-2.0
"""The configuration of the device plugin: its keys, and the object that they make.

The keys are those of version v1 of NVIDIA's device plugin, and `gpuhook` for the others. Each key
is declared at its field; see grammar.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from gpuhook.device_plugin.config import sharing_section
from gpuhook.device_plugin.config.gpuhook_section import OWN, Own
from gpuhook.device_plugin.config.grammar.grammar import (
    Entries,
    Key,
    Option,
    Section,
    Values,
    flag,
    key,
    keys_of,
    section_of,
)
from gpuhook.device_plugin.config.grammar.name_values import Channels, ResourceName
from gpuhook.device_plugin.config.grammar.value_kinds import (
    BOOLEAN,
    OPTIONAL_PATH,
    PATH,
    Choice,
    ChoiceList,
    Duration,
    Text,
    Whole,
)
from gpuhook.device_plugin.config.sharing_section import SHARING, Sharing

VERSION = "v1"
MIG_STRATEGIES = ("none", "single", "mixed")
LIST_STRATEGIES = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri", "host-files")
ID_STRATEGIES = ("uuid", "index")
POLICIES = ("distributed", "packed")
NAMING_STRATEGIES = ("none", "single", "mixed")
AMD_LIST_STRATEGIES = ("device-specs", "envvar", "volume-mounts", "cdi-annotations", "cdi-cri")
DISCOVERIES = ("auto", "nvml")  # both use NVML: gpuhook serves no other kind of node


@dataclass(frozen=True, slots=True)
class PluginFlags:
    """`flags.plugin`: how an allocation reaches the container runtime."""

    pass_device_specs: bool = flag(
        BOOLEAN, "Also pass device nodes to the kubelet, unless all strategies are cdi-*.", False
    )
    device_list_strategy: tuple[str, ...] = flag(
        ChoiceList(LIST_STRATEGIES),
        "How the plugin passes devices to the container runtime; one or more strategies.",
        ("envvar",),
    )
    device_id_strategy: str = flag(
        Choice(ID_STRATEGIES),
        "The name of a device for the runtime: its UUID or its index (cdi-*: always its UUID).",
        "uuid",
        name="deviceIDStrategy",
    )
    cdi_annotation_prefix: str = flag(
        Text(r"[A-Za-z0-9._/-]+", "the prefix of an annotation"),
        "The annotation prefix for the cdi-annotations strategy.",
        "cdi.k8s.io/",
    )
    cdi_hook_path: str | None = flag(
        PATH,
        "The path of gpuhook-hook on the host, used in CDI specs. Default: the path that the "
        "package or the installer uses, if it exists on the host; otherwise no hook.",
        None,
        name="nvidiaCTKPath",
        option=Option(
            "nvidia-cdi-hook-path",
            ("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"),
            aliases=("nvidia-ctk-path",),
        ),
    )
    container_driver_root: str = flag(
        PATH,
        "The path of the driver root in the plugin's container.",
        "/driver-root",
        option=Option(
            variables=("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"),
            aliases=("driver-root-ctr-path",),
        ),
    )
    shared_devices_allocation_policy: str = flag(
        Choice(POLICIES),
        "The placement of replicas: distributed spreads containers across devices, packed "
        "fills one device after another.",
        "distributed",
    )


@dataclass(frozen=True, slots=True)
class LabelFlags:
    """`flags.gfd`: how the node's feature labels are written. Times in seconds, None: never."""

    oneshot: bool = flag(
        BOOLEAN,
        "`gpuhook labels`: write the labels once and exit.",
        False,
        option=Option(is_of_labels=True),
    )
    no_timestamp: bool = flag(BOOLEAN, "Omit the label gfd.timestamp.", False)
    sleep_interval: float | None = flag(
        Duration(may_be_infinite=True),
        "The interval at which `gpuhook labels` updates the labels. The plugin updates them when "
        "they change.",
        60.0,
        option=Option(
            "interval",
            ("GFD_SLEEP_INTERVAL",),
            aliases=("sleep-interval",),
            is_of_labels=True,
        ),
    )
    output_file: str = flag(
        OPTIONAL_PATH,
        "The file to write the labels to; empty for standard output.",
        "/etc/kubernetes/node-feature-discovery/features.d/gfd",
    )
    machine_type_file: str = flag(
        OPTIONAL_PATH,
        "The file that contains the product name of the machine.",
        "/sys/class/dmi/id/product_name",
    )


@dataclass(frozen=True, slots=True)
class AmdFlags:
    """`flags.amd`: the flags of AMD's device plugin, and how an allocation reaches the runtime."""

    resource_naming_strategy: str = flag(
        Choice(NAMING_STRATEGIES),
        "The resources of AMD GPUs: single (amd.com/gpu), mixed (by partition modes, such as "
        "amd.com/cpx_nps4) or none (not offered).",
        "single",
        option=Option(aliases=("resource_naming_strategy",), has_one_dash=True),
    )
    pulse: int = flag(
        Whole(0, 86400),
        "The seconds between two health checks of AMD GPUs; 0: gpuhook.health.pollInterval.",
        0,
        option=Option(has_one_dash=True),
    )
    device_list_strategy: tuple[str, ...] = flag(
        ChoiceList(AMD_LIST_STRATEGIES),
        "How the plugin passes AMD devices to the container runtime; one or more strategies. "
        "device-specs works with any runtime.",
        ("device-specs",),
        option=Option("amd-device-list-strategy", ("GPUHOOK_AMD_DEVICE_LIST_STRATEGY",)),
    )


PLUGIN = section_of(PluginFlags)
AMD = section_of(AmdFlags, variables="GPUHOOK_AMD_")
GFD = section_of(LabelFlags, variables="GFD_")


@dataclass(frozen=True, slots=True)
class Flags:
    """`flags`: NVIDIA's keys that have options and variables."""

    mig_strategy: str = flag(
        Choice(MIG_STRATEGIES),
        "How MIG instances are offered: none (not at all), single (as nvidia.com/gpu) or mixed (by "
        "profile).",
        "none",
    )
    fail_on_init_error: bool = flag(
        BOOLEAN, "Exit if the driver is not usable at startup, instead of waiting for it.", True
    )
    driver_root: str = flag(
        PATH,
        "The root directory of the driver on the host.",
        "/",
        name="nvidiaDriverRoot",
        option=Option("nvidia-driver-root", aliases=("driver-root",)),
    )
    dev_root: str | None = flag(
        OPTIONAL_PATH,
        "The host directory whose /dev contains the driver's device nodes. Default: the driver "
        "root.",
        None,
        name="nvidiaDevRoot",
        option=Option("nvidia-dev-root", aliases=("dev-root",)),
    )
    gdrcopy_enabled: bool = flag(BOOLEAN, "Add GDRCopy to containers if the node has it.", False)
    gds_enabled: bool = flag(
        BOOLEAN, "Add GPUDirect Storage to containers if the node has it.", False
    )
    mofed_enabled: bool = flag(
        BOOLEAN, "Add InfiniBand devices (MOFED) to containers if the node has them.", False
    )
    mps_root: str = flag(
        OPTIONAL_PATH,
        (
            "The directory of the MPS daemons; its path is the same on the host and in the "
            "plugin's container."
        ),
        "",
    )
    device_discovery_strategy: str = flag(
        Choice(DISCOVERIES),
        "How the plugin finds devices: auto and nvml both use NVML.",
        "auto",
    )
    amd: AmdFlags = key(AMD, "The flags of AMD GPUs.", AmdFlags())
    plugin: PluginFlags = key(PLUGIN, "The flags of the device plugin.", PluginFlags())
    gfd: LabelFlags = key(GFD, "The flags of the feature labels.", LabelFlags())


@dataclass(frozen=True, slots=True)
class Naming:
    """One entry of `resources.gpus` or `resources.mig`: models or profiles to a resource name."""

    pattern: str = key(
        Text(r"[^\x00-\x1f\x7f]{1,200}", "a model, * for any text"),
        "The model, or the profile of a MIG instance; * matches any text.",
    )
    name: str = key(ResourceName(), "The name of the resource.")


@dataclass(frozen=True, slots=True)
class Imex:
    """`imex`: the IMEX channels of every container."""

    channel_ids: tuple[int, ...] = flag(Channels(), "The IMEX channels.", (), name="channelIDs")
    required: bool = flag(BOOLEAN, "Fail if a channel is missing, instead of omitting it.", False)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The whole configuration. `gpus` and `mig` are `resources`; the first match applies."""

    flags: Flags = Flags()
    gpus: tuple[Naming, ...] = (Naming("*", "nvidia.com/gpu"),)
    mig: tuple[Naming, ...] = ()  # (): the names of the MIG strategy
    sharing: Sharing = Sharing()
    imex: Imex = Imex()
    own: Own = Own()


def _configuration(
    resources: Values | None = None, mps: Values | None = None, **fields: Any
) -> Configuration:
    """Return the configuration; empty lists of `resources` and an empty mpsRoot are defaults."""
    namings = {kind: entries for kind, entries in (resources or {}).items() if entries}
    made = Configuration(**fields, **namings)
    root = made.flags.mps_root or (mps or {}).get("root", "")
    return replace(made, flags=replace(made.flags, mps_root=root))


_NAMINGS = Entries(section_of(Naming), "pattern")
_UNUSED = Key("useNodeFeatureAPI", BOOLEAN, "No effect; see gpuhook.labels and gpuhook.labelNode.")
_FLAGS = Section(Flags, (*keys_of(Flags)[:-3], _UNUSED, *keys_of(Flags)[-3:]))
_RESOURCES = Section(
    dict,
    (
        Key("gpus", _NAMINGS, "The resource names of GPU models.", "gpus", ()),
        Key("mig", _NAMINGS, "The resource names of MIG profiles.", "mig", ()),
    ),
)
_IMEX = section_of(Imex, "imex-")
_MPS = Section(dict, (Key("root", OPTIONAL_PATH, "The same as flags.mpsRoot.", "root"),))
ROOT_SECTION = Section(
    _configuration,
    (
        Key("version", Choice((VERSION,)), "The version of the file format."),
        Key("flags", _FLAGS, "The keys that options and variables can override.", "flags"),
        Key(
            "resources",
            _RESOURCES,
            "The names of resources; the first pattern that matches applies.",
            "resources",
        ),
        Key("sharing", SHARING, "How several containers share a device.", "sharing"),
        Key("imex", _IMEX, "The IMEX channels of every container.", "imex"),
        Key("mps", _MPS, "The section of the GPU operator's values.", "mps"),
        Key("gpuhook", OWN, "The keys that NVIDIA's plugin does not have.", "own"),
    ),
)


def schema_text() -> str:
    """Return the JSON schema of the file, for editors; it does not have the contradictions."""
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The configuration of gpuhook device-plugin, version v1",
    }
    return json.dumps(head | ROOT_SECTION.schema(), indent=2, ensure_ascii=False) + "\n"


def document(made: Configuration) -> Values:
    """Return the content of a file that sets every key of a Configuration, as plain data."""
    return {
        "version": VERSION,
        "flags": _FLAGS.plain(made.flags),
        "resources": _RESOURCES.plain(made),
        "sharing": sharing_section.plain(made.sharing),
        "imex": _IMEX.plain(made.imex),
        "gpuhook": OWN.plain(made.own),
    }
