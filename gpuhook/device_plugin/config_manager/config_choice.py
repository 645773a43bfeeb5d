# SPDX-License-Identifier: Apache-2.0
"""The selection of a node's configuration, and the file that links to it."""

from __future__ import annotations

import os

from gpuhook.device_plugin.config.config_source import fallback
from gpuhook.errors import fault
from gpuhook.host.hot import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config_manager.manager_options import ManagerOptions

EMPTY = ""  # the configuration with all defaults
_EMPTY_TEXT = b"version: v1\n"


def choose(label: str | None, known: list[str], options: ManagerOptions) -> str:
    """Return the one of the `known` configurations for a node with this label; EMPTY for none.

    Raises GH2107 for an unknown name, and GH2109 if no strategy finds a configuration.
    """
    name = label or options.default_config
    if name:
        if name in known:
            return name
        raise fault(
            "GH2107",
            where=f"label {options.node_label}" if label else "variable DEFAULT_CONFIG",
            node=options.node_name,
            name=name,
            directory=options.config_file_srcdir,
            known=", ".join(known) or "none",
        )
    chosen = fallback(options.fallback_strategies, known)
    if chosen is None:
        raise fault(
            "GH2109",
            node=options.node_name,
            label=options.node_label,
            strategies=", ".join(options.fallback_strategies) or "none",
        )
    return chosen


def link(options: ManagerOptions, name: str) -> bool:
    """Link the destination to the configuration `name`; return whether that is a change."""
    to = options.config_file_dst
    os.makedirs(os.path.dirname(to) or ".", 0o755, exist_ok=True)
    temporary = f"{to}.new"
    target = os.path.join(options.config_file_srcdir, name)
    if os.path.islink(to):
        is_current = name != EMPTY and os.readlink(to) == target
    else:
        is_current = name == EMPTY and os.path.isfile(to) and files.read(to) == _EMPTY_TEXT
    if is_current:
        return False
    # A killed run may have left a link to a configuration, which a write would follow.
    if os.path.lexists(temporary):
        os.unlink(temporary)
    if name == EMPTY:
        files.replace(temporary, _EMPTY_TEXT)
    else:
        os.symlink(target, temporary)
    # The rename is atomic: a plugin that starts now finds the old link or the new one.
    os.rename(temporary, to)
    return True


def edition(options: ManagerOptions) -> str:
    """Return a text that changes with each edition of the ConfigMap that the kubelet mounts."""
    data = os.path.join(options.config_file_srcdir, "..data")
    return os.readlink(data) if os.path.islink(data) else ""
