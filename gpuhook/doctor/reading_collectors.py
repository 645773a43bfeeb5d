# SPDX-License-Identifier: Apache-2.0
"""Collects the readings of a running node; each has a deadline and changes nothing.

node_readings.py describes the documents.
"""

from __future__ import annotations

import errno
import os
import sys
from functools import partial
from typing import Any

import gpuhook
from gpuhook.engines.state import dependent_containers
from gpuhook.errors import GpuhookError, fault
from gpuhook.inspect import gpu_containers
from gpuhook.node import daemons, kubernetes_state, node_programs, socket_state
from gpuhook.node_facts.sources import node_readings
from gpuhook.vendors import driver_worker
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuhook.node_facts.sources.node_readings import Readings
    from gpuhook.node_facts.sources.node_tree import Tree
    from gpuhook.vendors.inventory.vendor_inventory import NodePlace

_INITIAL_PIDS = 0xEFFFFFFC  # linux/proc_ns.h, PROC_PID_INIT_INO
_BOOT = "/proc/sys/kernel/random/boot_id"


def live_readings(
    tree: Tree,
    place: NodePlace,
    state_roots: Sequence[str] = (),
) -> Readings:
    """Return the readings of the running node with the files `tree`."""
    readings: Readings
    collectors: dict[str, Callable[[], Any]] = {
        node_readings.INVENTORY: partial(inventory, place),
        node_readings.VENDORS: partial(_inventories, place),
        node_readings.UNITS: partial(_units, tree),
        node_readings.PROCESSES: partial(daemons.processes, tree),
        node_readings.PROGRAMS: partial(node_programs.programs, tree),
        node_readings.CONTAINERD: lambda: node_programs.containerd(
            tree, readings.document(node_readings.PROCESSES)
        ),
        node_readings.CONTAINERS: partial(_containers, tree, state_roots),
        node_readings.STORED: partial(_stored, tree),
        node_readings.API: kubernetes_state.collect,
        node_readings.DRA_SOCKETS: partial(socket_state.socket_states, tree),
        node_readings.SELF: own_version,
    }
    readings = node_readings.Readings(collectors)
    return readings


def is_this_machine(tree: Tree) -> bool:
    """Return whether the files are those of this machine: they have its boot id."""
    with open(_BOOT, "rb") as file:
        return tree.read(_BOOT) == file.read()


def inventory(place: NodePlace) -> dict[str, Any]:
    """Return the dump of the node's driver and GPUs, made in a child process.

    Raises GH1200 to GH1210, GH1256 if the driver does not answer, GH1257 if it ends the process.
    """
    return driver_worker.call_driver(partial(driver_dump, place))


def driver_dump(place: NodePlace) -> dict[str, Any]:
    """Return the parts of the vendors whose driver is asked, made in this process.

    Raises the first vendor's reason if there is none.
    """
    found: dict[str, Any] = {}
    reasons = []
    for vendor in vendors():
        try:
            found |= vendor.driver_dump(place) or {}
        except GpuhookError as error:
            reasons.append(error)
    if reasons and not found:
        raise reasons[0]
    return found


def _inventories(place: NodePlace) -> dict[str, Any]:
    """Return the inventory by vendor of those that the kernel's files describe."""
    found = {
        one.name: one.support_inventory(place.host_root, place.dev_root or place.host_root)
        for one in vendors()
    }
    return {name: inventory for name, inventory in found.items() if inventory is not None}


def _units(tree: Tree) -> dict[str, dict[str, str]]:
    if not tree.status(daemons.SYSTEMD):
        raise fault("GH1902", path=daemons.SYSTEMD)
    return daemons.units(tree.root)


def _containers(tree: Tree, state_roots: Sequence[str]) -> dict[str, Any]:
    """Return the running containers of this machine.

    Raises OSError in a container that has the node's files in another directory, without the node's
    /run and processes.
    """
    if tree.root != "/" and is_this_machine(tree):
        pids = os.stat("/proc/self/ns/pid").st_ino
        if not os.path.samefile("/run", tree.root + "/run") or pids != _INITIAL_PIDS:
            message = "containers are found only with the node's /run at /run and its processes"
            raise OSError(errno.EOPNOTSUPP, f"{message}: mount /run and set hostPID: true")
    return gpu_containers.inspect_all(state_roots)


def _stored(tree: Tree) -> list[dict[str, Any]]:
    """Return the containers that engines keep and that need gpuhook. Raises OSError."""
    return [
        {
            "engine": one.engine,
            "id": one.id,
            "name": one.name,
            "why": one.why,
            "program": one.program,
            "running": one.is_running,
        }
        for one in dependent_containers.dependent_containers(tree)
    ]


def own_version() -> dict[str, str]:
    """Return the version of this gpuhook and of its Python, its interpreter and its directory."""
    return {
        "version": gpuhook.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "executable": sys.executable,
        "package": os.path.dirname(os.path.abspath(gpuhook.__file__)),
    }
