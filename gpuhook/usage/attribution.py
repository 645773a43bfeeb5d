# SPDX-License-Identifier: Apache-2.0
"""The processes that the driver tells of, each with its container, or why it has none."""

from __future__ import annotations

from gpuhook.usage import gpu_processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from gpuhook.usage.gpu_processes import Members
    from gpuhook.usage.gpu_readings import ProcessOnDevice, UsageDevice

_REASONS = {
    gpu_processes.ENDED: "it has ended meanwhile",
    gpu_processes.HIDDEN: "it may not be looked at",
    gpu_processes.STRANGE: "it is in a container that no runtime's state tells of",
}


class Users:
    """The processes on devices: those of each container, and those of nobody's that is known."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[str, str], list[ProcessOnDevice]] = {}  # (container, device)
        self.others: list[tuple[str, ProcessOnDevice, str]] = []  # device, process, why

    @property
    def containers(self) -> dict[str, list[str]]:
        """Return the devices that processes of each container are on."""
        found: dict[str, list[str]] = {}
        for container, device in self.by_key:
            found.setdefault(container, []).append(device)
        return found

    def documents(self) -> list[dict[str, Any]]:
        """Return the processes that no container of the list has."""
        return [
            {
                "gpu": device,
                "host": why == gpu_processes.HOST,
                "reason": _REASONS.get(why, ""),
                **document(use),
            }
            for device, use, why in self.others
        ]


def attribute(devices: Iterable[UsageDevice], members: Members) -> Users:
    """Return whose the processes are that the driver tells of."""
    found = Users()
    for device in devices:
        for use in device.processes or ():
            container, why = members.of(use.pid)
            if container:
                found.by_key.setdefault((container, device.uuid), []).append(use)
            else:
                found.others.append((device.uuid, use, why))
    return found


def strangers(users: Users, device: str) -> set[int]:
    """Return the processes on a device of which nobody knows whose they are."""
    return {use.pid for uuid, use, why in users.others if uuid == device and why in _REASONS}


def total(values: Sequence[int | None]) -> int | None:
    """Return what the known ones add up to; None where there are some, and none is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known or not values else None


def document(use: ProcessOnDevice) -> dict[str, Any]:
    """Return a process as JSON has it: bytes, null where the driver cannot tell."""
    return {
        "pid": use.pid,
        "name": gpu_processes.name_of(use.pid) or None,
        "used": use.memory_bytes,
        "percent": use.percent,
    }
