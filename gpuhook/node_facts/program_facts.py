# SPDX-License-Identifier: Apache-2.0
"""The programs of a node: where they are, which versions they have, and which daemons run."""

from __future__ import annotations

import posixpath

from gpuhook.engines.read import engine_config
from gpuhook.node_facts.sources import node_readings
from gpuhook.node_facts.sources.node_tree import matching

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from gpuhook.engines.read.engine_config import Version
    from gpuhook.node_facts.check import ExaminedNode
    from gpuhook.node_facts.sources.node_tree import Tree

# The directories in which engines and their runtimes look up bare names; their PATH is the same.
BIN_DIRS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
# NixOS keeps all programs in its store, and has links to those of the current system.
NIXOS_PROGRAMS = ("/run/current-system/sw/bin", "/run/wrappers/bin")
# NixOS has all programs there. The others have the runc of a distribution's containerd: they are in
# the PATH of what such a containerd starts.
MORE_BIN_DIRS = (
    *NIXOS_PROGRAMS,
    "/var/lib/rancher/k3s/data/current/bin",
    "/var/lib/rancher/rke2/bin",
    "/var/lib/rancher/rke2/data/*/bin",
    "/snap/microk8s/current/bin",
    "/var/lib/k0s/bin",
    "/opt/bin",
)
_UNIT_DIRECTORIES = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
_COMM = 15  # the kernel keeps this many characters of a process name


def program(tree: Tree, name: str, more: Iterable[str] = MORE_BIN_DIRS) -> str | None:
    """Return the path of an executable program, None if there is none.

    A bare name is looked up in BIN_DIRS, then in `more`, which are patterns.
    """
    if "/" in name:
        paths = [name]
    else:
        paths = [f"{directory}/{name}" for directory in BIN_DIRS]
        for directory in more:
            path = f"{directory}/{name}"
            paths += matching(tree, path) if "*" in path else [path]
    for path in paths:
        status = tree.status(path)
        if status and status.is_executable:
            return path
    return None


def version(node: ExaminedNode, name: str) -> Version | None:
    """Return the version that a program prints, None if it is unknown."""
    programs = node.readings.document(node_readings.PROGRAMS) or {}
    return engine_config.parse_version(str((programs.get(name) or {}).get("version") or ""))


def processes(node: ExaminedNode, *names: str) -> list[dict[str, Any]]:
    """Return the processes of the node that have one of these names."""
    found = node.readings.document(node_readings.PROCESSES) or []
    return [one for one in found if one["name"] in names]


def unit(node: ExaminedNode, name: str) -> dict[str, Any]:
    """Return the state of a systemd unit, {} if it is unknown."""
    units = node.readings.document(node_readings.UNITS) or {}
    found: dict[str, Any] = units.get(name, {})
    return found


def has_unit(node: ExaminedNode, name: str) -> bool:
    """Return whether the node has a systemd unit."""
    paths = (f"{directory}/{name}" for directory in _UNIT_DIRECTORIES)
    return any(node.tree.status(path) is not None for path in paths)


def runs(node: ExaminedNode, unit_name: str, name: str) -> bool | None:
    """Return whether a daemon runs, as a unit or as a process; None if that is unknown.

    A daemon may run without a unit: in a container, or started from a shell.
    """
    listed = node.readings.document(node_readings.PROCESSES)
    if unit(node, unit_name).get("active") == "active" or _is_among(name, listed or ()):
        return True
    is_known = listed is not None or node.readings.document(node_readings.UNITS) is not None
    return False if is_known else None


def _is_among(name: str, listed: Any) -> bool:
    return any(
        process["name"][:_COMM] == name[:_COMM]
        or posixpath.basename((process["argv"] or [""])[0]) == name
        for process in listed
    )
