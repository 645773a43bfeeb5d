# SPDX-License-Identifier: Apache-2.0
"""The processes on GPUs, each with its container, or the reason why it has none.

A process belongs to the container that its cgroup names, else to the one that shares its mount
namespace. The answer is only displayed. Pids are those of the host, as the driver reports them.
"""

from __future__ import annotations

import os

from gpuhook.device_plugin.guard.container_processes import Processes
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from gpuhook.containers.warm.runtime_state import Found
    from gpuhook.device_plugin.guard.container_processes import ProcessFacts
    from gpuhook.vendors.usage.usage_device import ProcessOnDevice, UsageDevice

HOST = "host"
_ENDED, _HIDDEN, _STRANGE = "ended", "hidden", "strange"
_REASONS = {
    _ENDED: "it has exited",
    _HIDDEN: "permission denied",
    _STRANGE: "it is in a container without a runtime state",
}
_MAX_NAME = 256


class Members:
    """Finds the container of a process among the containers of the node."""

    def __init__(self, running: Iterable[Found], ids: Iterable[str] = ()) -> None:
        """Take the running containers, and the ids of others that may run."""
        self._processes = Processes()
        self._firsts = {found.id: found.pid for found in running if found.pid}
        self._ids = frozenset((*self._firsts, *ids))
        self._by_mounts: dict[tuple[int, int], str] | None = None
        self._hosts = self._processes.host_mounts()
        trouble = self._processes.trouble()
        self.trouble = fault("GH1953") if trouble is not None else None

    def of(self, pid: int) -> tuple[str, str]:
        """Return (id of the container, "") of a process; ("", reason) if it has none.

        The reason is HOST, or that the process has exited, cannot be read or has no pid here, or is
        in an unknown container.
        """
        if self.trouble is not None:
            return "", _HIDDEN
        about = self._processes.about(pid)
        if about is None:
            return "", _ENDED
        named = about.member.container(self._ids)
        return (named, "") if named is not None else self._by_home(about)

    def _by_home(self, about: ProcessFacts) -> tuple[str, str]:
        if about.scope is None or self._hosts is None:
            return "", _HIDDEN
        mounts = about.scope.mounts
        if mounts in self._hosts:
            return "", HOST
        found = self._mounts().get(mounts, "")
        return found, "" if found else _STRANGE

    def _mounts(self) -> dict[tuple[int, int], str]:
        """Return mount namespace -> container; it is read only if a cgroup names no container."""
        if self._by_mounts is None:
            self._by_mounts = {}
            for identity, pid in self._firsts.items():
                try:
                    namespace = os.stat(f"/proc/{pid}/ns/mnt")
                except OSError:
                    continue
                self._by_mounts[namespace.st_dev, namespace.st_ino] = identity
        return self._by_mounts


class Users:
    """The processes on devices: those of containers, and the others."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[str, str], list[ProcessOnDevice]] = {}  # (container, device)
        self.others: list[tuple[str, ProcessOnDevice, str]] = []  # device, process, reason

    @property
    def containers(self) -> dict[str, list[str]]:
        """The devices that the processes of each container are on."""
        found: dict[str, list[str]] = {}
        for container, device in self.by_key:
            found.setdefault(container, []).append(device)
        return found

    def documents(self) -> list[dict[str, Any]]:
        """Return the processes without a container, as JSON."""
        return [
            {
                "gpu": device,
                "host": reason == HOST,
                "reason": _REASONS.get(reason, ""),
                **process_document(process),
            }
            for device, process, reason in self.others
        ]

    def strangers(self, device: str) -> set[int]:
        """Return the pids on a device that belong neither to a container nor to the host."""
        return {
            process.pid
            for uuid, process, reason in self.others
            if uuid == device and reason in _REASONS
        }


def attribute(devices: Iterable[UsageDevice], members: Members) -> Users:
    """Return the processes on the devices, by container."""
    found = Users()
    for device in devices:
        for process in device.processes or ():
            container, reason = members.of(process.pid)
            if container:
                found.by_key.setdefault((container, device.uuid), []).append(process)
            else:
                found.others.append((device.uuid, process, reason))
    return found


def known_sum(values: Sequence[int | None]) -> int | None:
    """Return the sum of the known values; None if there are values and none is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known or not values else None


def process_document(process: ProcessOnDevice) -> dict[str, Any]:
    """Return a process as JSON: memory in bytes; null if the driver does not report it."""
    return {
        "pid": process.pid,
        "name": _name(process.pid) or None,
        "used": process.memory_bytes,
        "percent": process.percent,
    }


def _name(pid: int) -> str:
    try:
        content = files.read(f"/proc/{pid}/comm", _MAX_NAME)
    except (OSError, GpuhookError):
        return ""
    return content.decode("utf-8", "replace").rstrip("\n")
