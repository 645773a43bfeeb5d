# SPDX-License-Identifier: Apache-2.0
"""The allow-list of a bundle: files by path, and in each the keys whose values are kept.

An unlisted file is skipped. In a listed file, the value of an unlisted key is replaced.
"""

from __future__ import annotations

import json
import re
from importlib import resources
from typing import NamedTuple

from gpuhook.doctor.facts import toolkit_settings
from gpuhook.node import daemons

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

WHOLE, PARTS, LINES, JSON, YAML, TOML, COMMAND = (
    "whole", "parts", "lines", "json", "yaml", "toml", "command",
)  # fmt: skip


class FileKind(NamedTuple):
    """The format of a file, and its listed keys; of PARTS, the pattern of what is kept."""

    form: str
    keys: frozenset[str] = frozenset()
    parts: re.Pattern[str] | None = None


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _of_schema(name: str) -> frozenset[str]:
    """Return all keys of a schema of gpuhook, of every depth."""
    text = resources.files("gpuhook.schemas").joinpath(f"{name}.json").read_text("utf-8")
    return frozenset(_properties(json.loads(text)))


def _properties(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        found = schema.get("properties")
        yield from found if isinstance(found, dict) else ()
    for one in schema.values() if isinstance(schema, dict) else ():
        yield from _properties(one)
    for one in schema if isinstance(schema, list) else ():
        yield from _properties(one)


# The parts of a launcher that doctor reads: interpreter, library, version, gpuhook's name.
_PROGRAM = re.compile(
    r"^#!/[\w./-]+(?: -\w+)?|\"/[\w./-]+\" -\w+ -c |sys\.path\[:0\] = \[\"/[\w./-]+\"[,\]]"
    r"|^__version__ = \"[\w.+-]+\"|\bgpuhook[\w.-]*",
    re.MULTILINE,
)
# What keeps the kernel from loading a module, and options of GPU drivers: lines of modprobe.d, and
# words of the command line.
_MODPROBE = re.compile(
    r"^[ \t]*(?:blacklist[ \t]+[\w-]+|install[ \t]+[\w-]+[ \t]+[a-z/]*/(?:false|true)"
    r"|options[ \t]+(?:amdgpu|nvidia[\w-]*|vfio[\w-]*)(?:[ \t]+\w+=[\w,.:-]+)+)[ \t]*$",
    re.MULTILINE,
)
_KERNEL_WORDS = re.compile(
    r"\b(?:modprobe\.|module_)blacklist=[\w,-]+|\b(?:amdgpu|nvidia)[\w.-]*=[\w,.-]+"
)
# Below these keys are names that users choose: of runtimes, resources, units, plugins.
NAMED = _words(
    "plugins runtimes runtime-handlers workloads RegisteredDevices capacity allocatable units"
    " programs features refused"
)
PATHS = _words("draSockets")  # below these keys are paths
# Lists of variables, and of words of a command.
ENVIRONMENTS = _words("env environment Environment")
COMMANDS = _words("args argv")
# Variables that request GPUs or configure the driver.
VARIABLES = re.compile(
    r"NVIDIA_(?:VISIBLE_DEVICES|DRIVER_CAPABILITIES|REQUIRE_\w+|CTK_LIBCUDA_DIR|GPU_MEMORY_\w+)"
    r"|NVIDIA_(?:DISABLE_REQUIRE|DRIVER_ROOT|IMEX_CHANNELS|GDS|MOFED|GDRCOPY|NVSWITCH)"
    r"|AMD_VISIBLE_DEVICES|HSA_CU_MASK|(?:ROCR|HIP)_VISIBLE_DEVICES"
    r"|PATH|CUDA_(?:VISIBLE_DEVICES|MPS_\w+|VERSION)|GPUHOOK_\w+|__NV\w+|__GLX_\w+"
)
# Options whose values are kept.
OPTIONS = _words(
    "c config config-file root root-dir state data-root exec-root data-dir default-runtime"
    " add-runtime cdi-spec-dir feature container-runtime-endpoint cgroup-driver kubelet-arg"
    " feature-gates host-cuda-version cuda-version driver-version host-driver-version library"
    " link folder path gpus params compat driver-root dev-root mode since optional hooks-dir"
    " needs skip chmod whole fingerprint libcuda ldconfig host-root cuda-compat ldconfig-path"
    " driver-params cuda-compat-container-root container-spec"
    " cdi-spec-dirs mig-strategy device-list-strategy nvidia-driver-root runtime index name socket"
)
# Words of a command that are neither options nor paths.
WORDS = daemons.PROGRAMS | _words(
    "agent server apply hook update-ldcache create-symlinks chmod enable-cuda-compat prestart"
    " device-plugin gpuhook gpuhook-hook nvidia-cdi-hook nvidia-ctk nvidia-device-plugin cdi"
    " nvidia-container-runtime-hook disable-device-node-modification gpuhook-prestart kubelet"
    " amd-container-runtime amd-ctk dra nri run gpu-kubelet-plugin"
)
_CDI = _words(
    "cdiVersion kind devices name containerEdits deviceNodes path hostPath type major minor"
    " fileMode permissions uid gid env mounts containerPath options hooks hookName args timeout"
    " annotations io.gpuhook.token io.gpuhook.options"
    " additionalGids intelRdt closID l3CacheSchema memBwSchema enableCMT enableMBM"
)
_TOML = frozenset(part for key in toolkit_settings.KEYS for part in key.split(".")) | _words(
    "version imports plugins containerd runtimes runtime_type runtime_path runtime_root options"
    " SystemdCgroup BinaryName systemd_cgroup default_runtime_name default_runtime disabled_plugins"
    " required_plugins pod_annotations container_annotations privileged_without_host_devices cri"
    " privileged_without_host_devices_all_devices_allowed enable_cdi cdi_spec_dirs crio runtime"
    " allowed_annotations hooks_dir cdi_dirs engine workloads nvidia-container-cli environment"
    " ldconfig load-kmods nvidia-container-runtime log-level mode modes cdi annotation-prefixes"
    " default-kind spec-dirs legacy cuda-compat-mode nvidia-container-runtime-hook path csv"
    " skip-mode-detection nvidia-ctk root no-cgroups no-cgroup mount-spec-path runtime_engine"
    " activation_annotation annotation_prefix resources state containers monitor_path cgroup"
    " cgroup_manager snapshotter runtime_config_path base_runtime_spec conmon nri disable"
    " disable_connections socket_path plugin_path plugin_config_path enable_nri nri_listen"
    " nri_plugin_dir nri_plugin_config_dir nri_disable_connections"
)
_DAEMON = _words(
    "runtimes path args runtimeArgs runtimeType options default-runtime features cdi-spec-dirs"
    " log-level exec-opts data-root exec-root cgroup-parent hosts BinaryName SystemdCgroup cdi"
)
_LEDGER = _words(
    "schema id root pid started since engine pod namespace container route gpus uuids nodes names"
    " source request minors devices replicas memory limit spec mounts links mode bundle boot"
    " undone generation warnings code claims claim share"
)
_RECORD = _words(
    "schema engine wanted route name program hook is_default takes_over enables_cri config drop_in"
    " files path digest kept mode uid gid known directories service units processes reloads"
    " ends_containers is_taken_up is_new created"
)
_KUBELET = _words(
    "kind apiVersion cgroupDriver containerRuntimeEndpoint featureGates KubeletCgroups"
    " DevicePlugins cpuManagerPolicy topologyManagerPolicy memoryManagerPolicy cgroupRoot"
    " DynamicResourceAllocation PodResources DevicePluginCDIDevices podResources"
)
_CHECKPOINT = _words(
    "Data PodDeviceEntries RegisteredDevices Checksum PodUID ContainerName ResourceName DeviceIDs"
)
_PLUGIN = _of_schema("device-plugin")
_SETTINGS = _of_schema("config")
_HOOKS = _words("version hook path args env timeout when always commands stages annotations")
_ICD = _words("file_format_version ICD library_path api_version layers layer name type version")
_MANIFEST = _words("kind apiVersion metadata name handler")
_OS = _words("ID ID_LIKE VERSION_ID VERSION_CODENAME NAME VERSION PRETTY_NAME VARIANT_ID")
_UNIT = _words(
    "Unit Service Install ExecStart ExecStartPre Type Restart After Requires Wants WantedBy"
    " DevicePolicy DeviceAllow Delegate PathModified PathExists OnBootSec"
)
_FLAGS = _words("KUBELET_KUBEADM_ARGS KUBELET_EXTRA_ARGS")
_PACKAGE = _words("Package Status Version Architecture Source")

_OF_PROGRAM = FileKind(PARTS, parts=_PROGRAM)

FILES: tuple[tuple[re.Pattern[str], FileKind], ...] = tuple(
    (re.compile(pattern, re.DOTALL), kind)
    for pattern, kind in (
        (r"/proc/\d+/cmdline", FileKind(COMMAND)),
        (r"/proc/\d+/(?:stat|comm|cgroup)", FileKind(WHOLE)),
        (r"/proc/(?:version|devices|modules)|/proc/sys/kernel/.*", FileKind(WHOLE)),
        (r"/proc/driver/nvidia.*|/sys/.*", FileKind(WHOLE)),
        (r"/proc/cmdline", FileKind(PARTS, parts=_KERNEL_WORDS)),
        (r"/(?:etc|run|lib|usr/lib)/modprobe\.d/[^/]*\.conf", FileKind(PARTS, parts=_MODPROBE)),
        (r"/etc/ld\.so\.cache|/lib/modules/[^/]+/modules\.\w+", FileKind(WHOLE)),
        (r".*/gpuhook/__init__\.py|.*/versions/[^/]+/tree\.json", _OF_PROGRAM),
        (r".*/s?bin/(?:gpuhook|nvidia)[\w.-]*", _OF_PROGRAM),
        (r"/(?:etc|run|var/run)/cdi/.*\.json", FileKind(JSON, _CDI)),
        (r"/(?:etc|run|var/run)/cdi/.*", FileKind(YAML, _CDI)),
        (r"/etc/gpuhook/.*\.ya?ml", FileKind(YAML, _SETTINGS)),
        (r".*/daemon\.json", FileKind(JSON, _DAEMON)),
        (r"/run/gpuhook/containers/.*\.json", FileKind(JSON, _LEDGER)),
        (r"/var/lib/gpuhook/configured/[^/]+/record\.json", FileKind(JSON, _RECORD)),
        (r".*/hooks\.d/.*\.json", FileKind(JSON, _HOOKS)),
        (r"/(?:etc|usr/share)/(?:vulkan|egl|glvnd)/.*\.json", FileKind(JSON, _ICD)),
        (r".*/kubelet_internal_checkpoint", FileKind(JSON, _CHECKPOINT)),
        (r".*/dra_manager_state", FileKind(WHOLE)),  # names and UIDs of claims, pods and devices
        (r".*/kubelet/config\.yaml", FileKind(YAML, _KUBELET)),
        (r".*/volumes/kubernetes\.io~configmap/[^/]+/.*", FileKind(YAML, _PLUGIN)),
        (r"/var/lib/rancher/(?:k3s|rke2)/server/manifests/.*", FileKind(YAML, _MANIFEST)),
        (r".*\.toml(?:\.tmpl)?|/etc/crio/.*\.conf|.*/containers\.conf", FileKind(TOML, _TOML)),
        (r".*/crio\.conf\.d/.*|.*/containers\.conf\.d/.*", FileKind(TOML, _TOML)),
        (r"/(?:etc|usr/lib)/os-release", FileKind(LINES, _OS)),
        (r".*/systemd/system/.*", FileKind(LINES, _UNIT)),
        (
            r".*/kubelet/kubeadm-flags\.env|/etc/(?:default|sysconfig)/kubelet",
            FileKind(LINES, _FLAGS),
        ),
        (r"/var/lib/dpkg/status", FileKind(LINES, _PACKAGE)),
        (r"/etc/debian_version|/opt/rocm/\.info/version", FileKind(WHOLE)),
    )
)

CONTAINERD = FileKind(TOML, _TOML)
READINGS: dict[str, frozenset[str]] = {
    "inventory": frozenset(),  # from the driver alone: kept as it is
    "vendors": frozenset(),  # from the kernel alone: kept as it is
    "units": _words("units load active result enabled"),
    "processes": _words("processes pid name argv started exe"),
    "containers": _words(
        "containers looked_at trouble where code message hint id engine runtime pod namespace"
        " container nodes missing findings injected_by repairable"
    ),
    "programs": _words("programs path version trouble"),
    "containerd": _words("containerd command"),
    "stored": _words("stored engine id name why program running"),
    "kubernetes": _words(
        "kubernetes source node name labels capacity allocatable conditions type status reason"
        " unschedulable kubelet engine runtimeClasses handler daemonSets namespace wanted ready"
        " images runtimeClass refused message dra minor versions slices driver pool generation"
        " count devices replicas classes extendedResourceName drivers serviceAccount missing"
        " terminating"
    ),
    "draSockets": _words("draSockets"),
    "gpuhook": _words("gpuhook version python executable package"),
}
# Keys of the documents of commands: results, not sentences, which may quote values of files. Only
# the titles of checks are fixed texts.
DOCUMENTS = _words(
    "title"
    " schema live well counts ok warning failed results id section status containers engine runtime"
    " pod namespace name container route recorded gpus uuid index model memory total used share"
    " replicas claims claim pid code findings missing nodes path major minor driver version units"
    " replica limit backend injected_by repairable state since mig access allowed libraries found"
    " not_applicable"
)
# Keys of `gpuhook dra status`.
_DRA_STATUS = DOCUMENTS | _words(
    "kubelet root drivers directory sockets listens registration registrations server gates pool"
    " devices shared taints key value effect slices counter_sets published checkpoint uid complete"
    " request device admin pods"
)
OF_DOCUMENTS = {"dra-status.json": _DRA_STATUS}
EVENT = re.compile(r"[A-Za-z][a-z]*(?: [a-z]+){0,7}")
LOG_KEYS = _words("timestamp level event code resource gpu replica devices xid units socket")


def kind_of(path: str) -> FileKind | None:
    """Return the format and keys of a file, None if it is not listed."""
    if path.startswith(("/home/", "/root/")):
        return None
    return next((kind for pattern, kind in FILES if pattern.fullmatch(path)), None)
