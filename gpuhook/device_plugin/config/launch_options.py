# SPDX-License-Identifier: Apache-2.0
"""The options of a start of the device plugin, which do not change while it runs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import Any

from gpuhook.device_plugin.config.config_source import ConfigSource
from gpuhook.device_plugin.config.findings import errors
from gpuhook.device_plugin.config.grammar.grammar import Option, flag
from gpuhook.device_plugin.config.grammar.value_kinds import (
    BOOLEAN,
    DIRECTORY,
    FILE,
    NAME,
    OPTIONAL_PATH,
    PATH,
    Text,
)
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.device_plugin.config.config_reader import Override
    from gpuhook.device_plugin.config.overrides import OptionValues

_SOURCE_FIELDS = {one.name for one in fields(ConfigSource)}
DEFAULT_SOCKET = "/var/lib/kubelet/device-plugins/kubelet.sock"


@dataclass(frozen=True, slots=True)
class Launch:
    """The options of a start. Paths are those of this process."""

    source: ConfigSource = field(default_factory=ConfigSource)
    overrides: Mapping[str, Override] = field(default_factory=dict)
    node_name: str = flag(
        NAME,
        "The name of this node in the cluster. Without it, the plugin does not use the API server.",
        "",
        option=Option(variables=("NODE_NAME",)),
    )
    node_label: str = flag(
        NAME,
        "The label that names the configuration of a node.",
        "nvidia.com/device-plugin.config",
        option=Option(variables=("NODE_LABEL",)),
    )
    kubelet_socket: str = flag(
        OPTIONAL_PATH,
        "The kubelet's socket; empty to serve without registration.",
        DEFAULT_SOCKET,
        option=Option(variables=("KUBELET_SOCKET",), is_empty_set=True),
    )
    plugin_directory: str = flag(
        PATH,
        "The directory of the plugin's sockets. Default: the directory of the kubelet's socket.",
        os.path.dirname(DEFAULT_SOCKET),
    )
    pod_resources_socket: str = flag(
        PATH,
        "The kubelet's PodResources API socket.",
        "/var/lib/kubelet/pod-resources/kubelet.sock",
        option=Option(variables=("GPUHOOK_POD_RESOURCES_SOCKET", "POD_RESOURCES_SOCKET")),
    )
    cdi_directory: str = flag(
        PATH,
        "The directory in which the container engines of this node find CDI specs.",
        "/var/run/cdi",
    )
    strict: bool = flag(
        BOOLEAN, "Reject a configuration with unknown keys.", False, option=Option("strict-config")
    )
    process_name: str = flag(
        NAME,
        "The process name in ps and /proc, for programs that signal it by name, for "
        "example nvidia-device-plugin. Default: unchanged.",
        "",
    )
    inventory: str | None = flag(
        Text(metavar="FILE|PROFILE"),
        "Use a dump (gpuhook inventory -o yaml) or a built-in profile (t4, "
        "a100-mig, mi300x8, ...) instead of this machine.",
        None,
    )
    node_driver_root: str | None = flag(  # None: see host_paths.places
        PATH,
        "The root directory of the driver, as seen by this process. Default: the container "
        "driver root if it exists, else the driver root.",
        None,
        option=Option(variables=("GPUHOOK_DRIVER_ROOT",)),
    )
    node_dev_root: str | None = flag(
        PATH,
        "The directory whose /dev contains the driver's device nodes, as seen by this process.",
        None,
        option=Option(variables=("GPUHOOK_DEV_ROOT",)),
    )
    host_root: str = flag(PATH, "The directory that contains the node's /proc and /sys.", "/")
    nvml_library: str | None = flag(FILE, "The libnvidia-ml.so.1 to use.", None)
    library_search_path: tuple[str, ...] = flag(
        DIRECTORY,
        "A directory below the driver root to search first for libraries. Repeatable; "
        "colon-separated in the variable.",
        (),
        option=Option(separator=":"),
    )

    @property
    def drivers_directory(self) -> str:
        """The kubelet's directory of DRA drivers, next to that of device plugins."""
        return os.path.join(os.path.dirname(os.path.abspath(self.plugin_directory)), "plugins")


def launch(given: OptionValues) -> Launch:
    """Return the options of the command line and the environment.

    Raises GH1803 for a value that does not fit and GH1804 for options that exclude each other.
    """
    wrong = errors(tuple(given.findings))
    if wrong:
        first = wrong[0]
        hint = first.hint or "--help lists the values of each option"
        raise fault("GH1803", source=first.source, reason=first.message, hint=hint)
    values: dict[str, Any] = dict(given.launch)
    source = ConfigSource(**{name: values.pop(name) for name in _SOURCE_FIELDS & values.keys()})
    if source.file and source.directory:
        raise fault("GH1804", file=source.file, directory=source.directory)
    if values.get("kubelet_socket"):
        values.setdefault("plugin_directory", os.path.dirname(values["kubelet_socket"]))
    return Launch(source=source, overrides=dict(given.overrides), **values)
