# SPDX-License-Identifier: Apache-2.0
"""Whether a daemon of the node runs, by its unit and by the processes there are."""

from __future__ import annotations

import posixpath

from gpuhook.node import node_readings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.doctor.check import ExaminedNode

_COMM = 15  # characters that the kernel keeps of a process' name


def unit(node: ExaminedNode, name: str) -> dict[str, Any]:
    """Return what systemd says of a unit, {} where it says nothing or could not be asked."""
    units = node.readings.document(node_readings.UNITS)
    found = units.get(name) if isinstance(units, dict) else None
    return found if isinstance(found, dict) else {}


def runs(node: ExaminedNode, unit_name: str, program: str) -> bool | None:
    """Return whether a daemon runs, by its unit or as a process; None where nothing tells.

    A daemon may run without a unit: in a container, or started by hand.
    """
    processes = node.readings.document(node_readings.PROCESSES)
    if unit(node, unit_name).get("active") == "active" or _is_among(program, processes or ()):
        return True
    is_told = processes is not None or node.readings.document(node_readings.UNITS) is not None
    return False if is_told else None


def _is_among(program: str, processes: Any) -> bool:
    return any(
        process.get("name", "")[:_COMM] == program[:_COMM]
        or posixpath.basename((process.get("argv") or [""])[0]) == program
        for process in processes
    )
