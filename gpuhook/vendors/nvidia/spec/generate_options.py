# SPDX-License-Identifier: Apache-2.0
"""The options of generate-cdi, and its result."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.vendors.spec_choices import DEFAULT_HOOK_PATH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.container_edits import Spec
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu, Node

DEFAULT_STRATEGIES = ("index", "uuid")
HOOKS = ("gpuhook", "none")
# The options of the command that apply to specs with the driver's files alone, by parameter.
OWN_OPTIONS = frozenset((
    "driver_root", "nvml_library", "library_search_path", "config_search_path", "files_dir",
    "mode", "device_class", "device_name_strategy", "create_device_nodes", "feature_flag",
    "hooks", "hook_path", "disable_hook", "enable_hook", "ldconfig_path",
    "csv_file", "csv_ignore_pattern", "csv_compat_container_root",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Choices:
    """The options for one spec. `capabilities` None means all.

    `explicit_libraries` adds libraries that are not of the driver's version, `ipc` the sockets of
    its daemons, `additional_gids` the groups of device nodes; `coherent` adds annotations and
    separate specs for coherent GPUs; `create_nodes` makes the missing nodes of MIG instances;
    without `multiple_csv_devices` a Tegra has one device.
    `disabled_hooks` and `enabled_hooks` are names of hook_names; `ldconfig_path` is the program
    that makes containers' loader caches, "" if gpuhook merges them itself.
    """

    vendor: str = "nvidia.com"
    device_class: str = "gpu"
    strategies: tuple[str, ...] = DEFAULT_STRATEGIES
    device_ids: tuple[str, ...] = ()
    with_all: bool = True
    hooks: str = "gpuhook"
    hook_path: str = DEFAULT_HOOK_PATH
    capabilities: frozenset[str] | None = None
    host_root: str = "/"
    explicit_libraries: bool = False
    ipc: bool = True
    additional_gids: bool = True
    disabled_hooks: frozenset[str] = frozenset()
    ldconfig_path: str = ""
    enabled_hooks: frozenset[str] = frozenset()  # of the hooks that are off by default
    coherent: bool = False
    create_nodes: bool = False
    # For mode csv: host paths of its files, patterns of links, and a directory in containers.
    csv_files: tuple[str, ...] = ()
    csv_ignore_patterns: tuple[str, ...] = ()
    csv_compat_root: str = ""
    multiple_csv_devices: bool = True

    @property
    def kind(self) -> str:
        """The kind of the devices, such as nvidia.com/gpu."""
        return f"{self.vendor}/{self.device_class}"


@dataclass(frozen=True, slots=True)
class Described:
    """A spec, the GPUs in it, warnings about omitted parts, and the node that was read.

    A GPU in MIG mode has only the instances that are in the spec. `node` is None in modes without
    GPUs. `further` are additional specs: the infix of the file's name before its extension, and the
    spec.
    """

    spec: Spec
    gpus: tuple[Gpu, ...]
    warnings: tuple[str, ...]
    node: Node | None = None
    further: tuple[tuple[str, Spec], ...] = ()
