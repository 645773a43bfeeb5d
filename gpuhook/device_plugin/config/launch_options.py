# SPDX-License-Identifier: Apache-2.0
"""What the device plugin is started with: all that does not change while it runs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, cast

from gpuhook.device_plugin.config import plugin_options
from gpuhook.device_plugin.config.config_source import ConfigSource
from gpuhook.device_plugin.config.findings import errors
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.device_plugin.config.config_reader import Override
    from gpuhook.device_plugin.config.overrides import Given


@dataclass(frozen=True, slots=True)
class Launch:
    """The options of a start. Paths are as this process sees them."""

    source: ConfigSource = field(default_factory=ConfigSource)
    overrides: Mapping[str, Override] = field(default_factory=dict)
    strict: bool = False
    kubelet_socket: str = plugin_options.DEFAULT_SOCKET  # "": serve without registering
    plugin_directory: str = os.path.dirname(plugin_options.DEFAULT_SOCKET)
    pod_resources_socket: str = plugin_options.DEFAULT_POD_RESOURCES
    cdi_directory: str = plugin_options.DEFAULT_CDI_DIRECTORY
    node_name: str = ""
    node_label: str = plugin_options.DEFAULT_LABEL
    process_name: str = ""  # "": as it is
    inventory: str | None = None  # a dump or a profile, instead of this machine
    node_driver_root: str | None = None  # None: see host_paths.places
    node_dev_root: str | None = None
    host_root: str = "/"
    nvml_library: str | None = None
    library_search_path: tuple[str, ...] = ()


def launch(given: Given) -> Launch:
    """Return what the command line and the environment ask for.

    Raises GH1803 for a value that does not fit and GH1804 for options that exclude each other.
    """
    wrong = errors(tuple(given.findings))
    if wrong:
        first = wrong[0]
        raise fault(
            "GH1803",
            source=first.source,
            reason=first.message,
            hint=first.hint or "--help says what each option takes",
        )
    values: dict[str, Any] = dict(given.launch)
    source = _source(values)
    socket = cast("str", values.setdefault("kubelet_socket", plugin_options.DEFAULT_SOCKET))
    values.setdefault("plugin_directory", os.path.dirname(socket or plugin_options.DEFAULT_SOCKET))
    values["strict"] = values.pop("strict_config", False)
    return Launch(source=source, overrides=dict(given.overrides), **values)


def _source(values: dict[str, Any]) -> ConfigSource:
    """Take what is about the source out of `values`."""
    named = {
        "file": values.pop("config_file", ""),
        "directory": values.pop("config_dir", ""),
        "name_file": values.pop("config_name_file", ""),
        "default_name": values.pop("default_config", ""),
        "fallbacks": values.pop("fallback_strategies", ConfigSource().fallbacks),
    }
    if named["file"] and named["directory"]:
        raise fault("GH1804", file=named["file"], directory=named["directory"])
    return ConfigSource(**named)
