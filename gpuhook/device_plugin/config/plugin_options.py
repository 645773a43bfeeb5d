# SPDX-License-Identifier: Apache-2.0
"""Every option of the device plugin: its names, its variables, and what it sets.

Names and variables are those of NVIDIA's plugin where it has them; ours have GPUHOOK_ variables.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.device_plugin.config.grammar import config_keys
from gpuhook.device_plugin.config.grammar.value_kinds import (
    OPTIONAL_PATH,
    PATH,
    Boolean,
    ChoiceKind,
    Text,
    ValueKind,
)

FALLBACKS = ("named", "single", "empty")
DEFAULT_LABEL = "nvidia.com/device-plugin.config"
DEFAULT_SOCKET = "/var/lib/kubelet/device-plugins/kubelet.sock"
DEFAULT_POD_RESOURCES = "/var/lib/kubelet/pod-resources/kubelet.sock"
DEFAULT_CDI_DIRECTORY = "/var/run/cdi"
_ANY = Text()
_FILE, _DIRECTORY, _NAME = (Text(stands_for=word) for word in ("FILE", "DIRECTORY", "NAME"))
_LENIENT = ("DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS")


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `key` is the path in the file that it sets; without one it is of the launch.

    `lenient` variables are lists whose malformed words are left out with a warning, as the
    reference does. `ignored` says why an option of the reference has no effect here.
    """

    name: str  # "mig-strategy"
    variables: tuple[str, ...]  # the first that is set counts
    kind: ValueKind
    about: str
    aliases: tuple[str, ...] = ()
    key: str = ""
    repeatable: bool = False
    separator: str = ","  # between the values of a repeatable one, in a variable
    lenient: tuple[str, ...] = ()
    ignored: str = ""
    empty_counts: bool = False  # an empty variable says something

    @property
    def field(self) -> str:
        """Return the name of the option as an attribute."""
        return self.name.replace("-", "_")


def _set(
    key: str, name: str, *variables: str, aliases: tuple[str, ...] = (), repeatable: bool = False
) -> Option:
    """Return the option that sets a key of the file."""
    about = {path: known.about for path, known in config_keys.walk()}[key]
    lenient = tuple(variable for variable in variables if variable in _LENIENT)
    kind = config_keys.kind_of(key)
    return Option(name, variables, kind, about, aliases, key, repeatable, lenient=lenient)


_OF_THE_FILE = (
    _set("flags.migStrategy", "mig-strategy", "MIG_STRATEGY"),
    _set("flags.failOnInitError", "fail-on-init-error", "FAIL_ON_INIT_ERROR"),
    _set(
        "flags.nvidiaDriverRoot",
        "nvidia-driver-root",
        "NVIDIA_DRIVER_ROOT",
        aliases=("driver-root",),
    ),
    _set("flags.nvidiaDevRoot", "nvidia-dev-root", "NVIDIA_DEV_ROOT", aliases=("dev-root",)),
    _set("flags.plugin.passDeviceSpecs", "pass-device-specs", "PASS_DEVICE_SPECS"),
    _set(
        "flags.plugin.deviceListStrategy",
        "device-list-strategy",
        "DEVICE_LIST_STRATEGY",
        repeatable=True,
    ),
    _set("flags.plugin.deviceIDStrategy", "device-id-strategy", "DEVICE_ID_STRATEGY"),
    _set("flags.gdrcopyEnabled", "gdrcopy-enabled", "GDRCOPY_ENABLED"),
    _set("flags.gdsEnabled", "gds-enabled", "GDS_ENABLED"),
    _set("flags.mofedEnabled", "mofed-enabled", "MOFED_ENABLED"),
    _set("flags.plugin.cdiAnnotationPrefix", "cdi-annotation-prefix", "CDI_ANNOTATION_PREFIX"),
    _set(
        "flags.plugin.nvidiaCTKPath",
        "nvidia-cdi-hook-path",
        "NVIDIA_CDI_HOOK_PATH",
        "NVIDIA_CTK_PATH",
        aliases=("nvidia-ctk-path",),
    ),
    _set(
        "flags.plugin.containerDriverRoot",
        "container-driver-root",
        "DRIVER_ROOT_CTR_PATH",
        "CONTAINER_DRIVER_ROOT",
        aliases=("driver-root-ctr-path",),
    ),
    _set("flags.mpsRoot", "mps-root", "MPS_ROOT"),
    _set(
        "flags.plugin.sharedDevicesAllocationPolicy",
        "shared-devices-allocation-policy",
        "SHARED_DEVICES_ALLOCATION_POLICY",
    ),
    _set("flags.deviceDiscoveryStrategy", "device-discovery-strategy", "DEVICE_DISCOVERY_STRATEGY"),
    _set("imex.channelIDs", "imex-channel-ids", "IMEX_CHANNEL_IDS", repeatable=True),
    _set("imex.required", "imex-required", "IMEX_REQUIRED"),
    _set("flags.gfd.noTimestamp", "no-timestamp", "GFD_NO_TIMESTAMP"),
    _set("flags.gfd.outputFile", "output-file", "GFD_OUTPUT_FILE"),
    _set("flags.gfd.machineTypeFile", "machine-type-file", "GFD_MACHINE_TYPE_FILE"),
)

_OWN = (
    _set("gpuhook.excludeDevices", "exclude-devices", "GPUHOOK_EXCLUDE_DEVICES", repeatable=True),
    _set("gpuhook.preStartCheck", "pre-start-check", "GPUHOOK_PRE_START_CHECK"),
    _set("gpuhook.minFreeMemory", "min-free-memory", "GPUHOOK_MIN_FREE_MEMORY"),
    _set("gpuhook.hostFilesPath", "host-files-path", "GPUHOOK_HOST_FILES_PATH"),
    _set("gpuhook.labels", "labels", "GPUHOOK_LABELS"),
    _set("gpuhook.labelNode", "label-node", "GPUHOOK_LABEL_NODE"),
    _set("gpuhook.removeLabelsOnExit", "remove-labels-on-exit", "GPUHOOK_REMOVE_LABELS_ON_EXIT"),
    _set("gpuhook.acceleratorLabel", "accelerator-label", "GPUHOOK_ACCELERATOR_LABEL"),
    _set(
        "gpuhook.health.criticalXids",
        "health-critical-xids",
        "GPUHOOK_HEALTH_CRITICAL_XIDS",
        repeatable=True,
    ),
    _set(
        "gpuhook.health.ignoredXids",
        "health-ignored-xids",
        "GPUHOOK_HEALTH_IGNORED_XIDS",
        "DP_DISABLE_HEALTHCHECKS",
        repeatable=True,
    ),
    _set(
        "gpuhook.health.enabledXids",
        "health-enabled-xids",
        "GPUHOOK_HEALTH_ENABLED_XIDS",
        "DP_ENABLE_HEALTHCHECKS",
        repeatable=True,
    ),
    _set("gpuhook.health.askDriver", "health-ask-driver", "GPUHOOK_HEALTH_ASK_DRIVER"),
    _set("gpuhook.health.pollInterval", "health-poll-interval", "GPUHOOK_HEALTH_POLL_INTERVAL"),
    _set("gpuhook.metrics.address", "metrics-address", "GPUHOOK_METRICS_ADDRESS"),
    _set("gpuhook.memoryReserve", "memory-reserve", "GPUHOOK_MEMORY_RESERVE"),
    _set("gpuhook.guard.action", "guard-action", "GPUHOOK_GUARD_ACTION"),
    _set("gpuhook.guard.grace", "guard-grace", "GPUHOOK_GUARD_GRACE"),
    _set("gpuhook.guard.killAfter", "guard-kill-after", "GPUHOOK_GUARD_KILL_AFTER"),
    _set("gpuhook.guard.tolerance", "guard-tolerance", "GPUHOOK_GUARD_TOLERANCE"),
    _set(
        "gpuhook.guard.shortestInterval",
        "guard-shortest-interval",
        "GPUHOOK_GUARD_SHORTEST_INTERVAL",
    ),
    _set(
        "gpuhook.guard.longestInterval",
        "guard-longest-interval",
        "GPUHOOK_GUARD_LONGEST_INTERVAL",
    ),
)

_LAUNCH = (
    Option(
        "config-file",
        ("CONFIG_FILE",),
        _FILE,
        "The configuration file. Without one all defaults count.",
    ),
    Option(
        "config-dir",
        ("GPUHOOK_CONFIG_DIR", "CONFIG_FILE_SRCDIR"),
        _DIRECTORY,
        "A directory of named configurations, such as a mounted ConfigMap: the node's label says "
        "which one counts.",
    ),
    Option(
        "config-name-file",
        ("GPUHOOK_CONFIG_NAME_FILE",),
        _FILE,
        "A file that says which one of --config-dir counts, instead of the node's label.",
    ),
    Option(
        "default-config",
        ("DEFAULT_CONFIG",),
        _NAME,
        "The one of --config-dir that counts on a node without the label.",
    ),
    Option(
        "fallback-strategies",
        ("FALLBACK_STRATEGIES",),
        ChoiceKind(FALLBACKS, may_be_empty=True),
        "What counts without a label and without --default-config: named (the one called "
        "default), single (the only one), empty (all defaults); the first that there is. "
        "Default: named,single.",
        repeatable=True,
    ),
    Option(
        "node-name",
        ("NODE_NAME",),
        _NAME,
        "The name of this node in the cluster. Without it the API server is left alone.",
    ),
    Option(
        "node-label",
        ("NODE_LABEL",),
        _NAME,
        f"The label that names a node's configuration. Default: {DEFAULT_LABEL}.",
    ),
    Option(
        "kubelet-socket",
        ("KUBELET_SOCKET",),
        OPTIONAL_PATH,
        f"The kubelet's socket; empty to serve without registering. Default: {DEFAULT_SOCKET}.",
        empty_counts=True,
    ),
    Option(
        "plugin-directory",
        ("GPUHOOK_PLUGIN_DIRECTORY",),
        PATH,
        "Where the plugin's sockets are. Default: where the kubelet's is.",
    ),
    Option(
        "pod-resources-socket",
        ("GPUHOOK_POD_RESOURCES_SOCKET", "POD_RESOURCES_SOCKET"),
        PATH,
        "The socket on which the kubelet tells which pod holds what.",
    ),
    Option(
        "cdi-directory",
        ("GPUHOOK_CDI_DIRECTORY",),
        PATH,
        "Where the engines of this node look for CDI specs.",
    ),
    Option(
        "strict-config",
        ("GPUHOOK_STRICT_CONFIG",),
        Boolean(),
        "Refuse a configuration with unknown keys.",
    ),
    Option(
        "process-name",
        ("GPUHOOK_PROCESS_NAME",),
        _NAME,
        "What ps and /proc call the process, for what sends it signals by name, such as "
        "nvidia-device-plugin. Default: as it was started.",
    ),
    Option(
        "inventory",
        ("GPUHOOK_INVENTORY",),
        Text(stands_for="FILE|PROFILE"),
        "Take the node from a dump (gpuhook inventory -o yaml) or a profile that ships with "
        "gpuhook (t4, a100-mig, ...) instead of from this machine.",
    ),
    Option(
        "node-driver-root",
        ("GPUHOOK_DRIVER_ROOT",),
        PATH,
        "Where this process has the driver's user space. Default: the container driver root if "
        "there is one, else the driver root.",
    ),
    Option(
        "node-dev-root", ("GPUHOOK_DEV_ROOT",), PATH, "Where this process has the driver's /dev."
    ),
    Option(
        "host-root",
        ("GPUHOOK_HOST_ROOT",),
        PATH,
        "Where the node's /proc and /sys are. Default: /.",
    ),
    Option("nvml-library", ("GPUHOOK_NVML_LIBRARY",), _FILE, "The libnvidia-ml.so.1 to ask."),
    Option(
        "library-search-path",
        ("GPUHOOK_LIBRARY_SEARCH_PATH",),
        _DIRECTORY,
        "A directory below the driver root to look for libraries in first; repeatable, in the "
        "environment separated by colons.",
        repeatable=True,
        separator=":",
    ),
)

_WITHOUT_EFFECT = (
    Option(
        "cdi-feature-flags",
        ("CDI_FEATURE_FLAGS",),
        _ANY,
        "Without effect: taken with a warning.",
        repeatable=True,
        ignored="the features of NVIDIA's CDI generator are not those of gpuhook's",
    ),
    Option(
        "cdi-disable-hooks",
        ("CDI_DISABLE_HOOKS",),
        _ANY,
        "Without effect: taken with a warning.",
        repeatable=True,
        ignored="gpuhook's CDI specs have one hook of its own and none of NVIDIA's",
    ),
    Option(
        "use-node-feature-api",
        ("GFD_USE_NODE_FEATURE_API", "USE_NODE_FEATURE_API"),
        Boolean(),
        "Without effect: taken with a warning.",
        ignored="gpuhook writes its labels to a file (--labels) or to the node (--label-node)",
    ),
)

OPTIONS = (*_OF_THE_FILE, *_OWN, *_LAUNCH, *_WITHOUT_EFFECT)
# Of `gpuhook labels` alone: the plugin goes on for ever, and labels whenever something is new.
LABEL_OPTIONS = (
    _set("flags.gfd.sleepInterval", "interval", "GFD_SLEEP_INTERVAL"),
    _set("flags.gfd.oneshot", "oneshot", "GFD_ONESHOT"),
)
