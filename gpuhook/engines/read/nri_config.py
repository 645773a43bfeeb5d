# SPDX-License-Identifier: Apache-2.0
"""The NRI of an engine: whether it is enabled, and its paths.

The NRI of containerd 1.6 is another one, which runs programs and has no socket.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.engines.read import toml_document

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from gpuhook.engines.read.engine_config import Version

CONTAINERD_KEY = "io.containerd.nri.v1.nri"
CONTAINERD_KEYS = (CONTAINERD_KEY, "nri")  # the short key is that of files of version 1
CRIO_KEY = ("crio", "nri")
# Engine -> the first release with this NRI, and the first in which it is enabled by default.
RELEASES = {"containerd": ((1, 7), (2,)), "crio": ((1, 26), (1, 30))}
SOCKET, PLUGINS, PLUGIN_CONFIG = "/var/run/nri/nri.sock", "/opt/nri/plugins", "/etc/nri/conf.d"


@dataclass(frozen=True, slots=True)
class NriConfig:
    """An engine's NRI; `is_enabled` is False if its release has none. An unknown one has it."""

    has_nri: bool = True
    is_enabled: bool = True
    has_connections: bool = True
    socket: str = SOCKET
    plugins: str = PLUGINS
    plugin_config: str = PLUGIN_CONFIG


def of_containerd(
    tables: Mapping[str, Any], disabled: Collection[str], daemon: Version | None, *, of_1: bool
) -> NriConfig:
    """Return the NRI of a containerd; `tables` are those of its plugins."""
    table: Mapping[str, Any] = next((tables[key] for key in CONTAINERD_KEYS if key in tables), {})
    is_off = table.get("disable", of_1) is not False
    return _nri(
        "containerd",
        table,
        daemon,
        ("socket_path", "plugin_path", "plugin_config_path", "disable_connections"),
        is_enabled=not is_off and not {*CONTAINERD_KEYS}.intersection(disabled),
    )


def of_crio(table: Mapping[str, Any], daemon: Version | None) -> NriConfig:
    """Return the NRI of a CRI-O; `table` is its crio.nri. An unknown release has it enabled."""
    by_default = daemon is None or daemon >= RELEASES["crio"][1]
    return _nri(
        "crio",
        table,
        daemon,
        ("nri_listen", "nri_plugin_dir", "nri_plugin_config_dir", "nri_disable_connections"),
        is_enabled=table.get("enable_nri", by_default) is True,
    )


def _nri(
    engine: str,
    table: Mapping[str, Any],
    daemon: Version | None,
    keys: tuple[str, str, str, str],
    *,
    is_enabled: bool,
) -> NriConfig:
    has_nri = daemon is None or daemon >= RELEASES[engine][0]
    socket, plugins, plugin_config = (toml_document.text(table.get(key)) for key in keys[:3])
    return NriConfig(
        has_nri,
        has_nri and is_enabled,
        table.get(keys[3]) is not True,
        socket or SOCKET,
        plugins or PLUGINS,
        plugin_config or PLUGIN_CONFIG,
    )
