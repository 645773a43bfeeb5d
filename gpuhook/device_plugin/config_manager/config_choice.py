# SPDX-License-Identifier: Apache-2.0
"""Which of the configurations a node gets, and the file that leads to it."""

from __future__ import annotations

import os

from gpuhook.errors import fault
from gpuhook.host.hot import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config_manager.manager_options import ManagerOptions

EMPTY = ""  # the configuration that says nothing
_NAMED = "default"
_EMPTY_TEXT = b"version: v1\n"


def names(directory: str) -> list[str]:
    """Return the configurations of a mounted ConfigMap: its files, but for those of the kubelet."""
    found = sorted(name for name in os.listdir(directory) if not name.startswith("."))
    return [name for name in found if os.path.isfile(os.path.join(directory, name))]


def chosen(label: str | None, known: list[str], options: ManagerOptions) -> str:
    """Return the name of the configuration for a node with this label; EMPTY for none.

    Raises GH2107 for a name that there is none of, and GH2109 where nothing is to be chosen.
    """
    wanted = label or options.default_config
    if wanted:
        if wanted in known:
            return wanted
        told = {"directory": options.config_file_srcdir, "known": ", ".join(known) or "none"}
        where = f"label {options.node_label}" if label else "variable DEFAULT_CONFIG"
        raise fault("GH2107", where=where, node=options.node_name, name=wanted, **told)
    for strategy in options.fallback_strategies:
        if strategy == "named" and _NAMED in known:
            return _NAMED
        if strategy == "single" and len(known) == 1:
            return known[0]
        if strategy == "empty":
            return EMPTY
    raise fault(
        "GH2109",
        node=options.node_name,
        label=options.node_label,
        strategies=", ".join(options.fallback_strategies) or "none",
    )


def lead(options: ManagerOptions, name: str) -> bool:
    """Have the destination lead to the configuration `name`; returns whether it did not before."""
    to = options.config_file_dst
    os.makedirs(os.path.dirname(to) or ".", 0o755, exist_ok=True)
    temporary = f"{to}.new"
    if name == EMPTY:
        if os.path.isfile(to) and not os.path.islink(to) and files.read(to) == _EMPTY_TEXT:
            return False
        # Not through a link, of a killed run either: that leads to a configuration.
        _remove(temporary)
        files.replace(temporary, _EMPTY_TEXT)
        os.rename(temporary, to)
        return True
    target = os.path.join(options.config_file_srcdir, name)
    if os.path.islink(to) and os.readlink(to) == target:
        return False
    # Replaced in one step: a plugin that starts meanwhile finds the old one or the new one.
    _remove(temporary)
    os.symlink(target, temporary)
    os.rename(temporary, to)
    return True


def _remove(path: str) -> None:
    if os.path.lexists(path):
        os.unlink(path)


def edition(options: ManagerOptions) -> str:
    """Return what changes when the kubelet has brought another edition of the ConfigMap."""
    data = os.path.join(options.config_file_srcdir, "..data")
    return os.readlink(data) if os.path.islink(data) else ""
