# SPDX-License-Identifier: Apache-2.0
"""The processes of the host: which container they are in, what it was granted, and their end.

A pid can be another process's by the time it is used, so a process is told by its start time, too,
and gets signals through a descriptor of its own. Source: proc(5), pidfd_open(2), and for the inode
of the first pid namespace the kernel's include/linux/proc_ns.h, PROC_PID_INIT_INO.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from gpuhook import files
from gpuhook.container import ledger
from gpuhook.errors import GpuhookError, fault
from gpuhook.grant import memory
from gpuhook.kernel import mountinfo
from gpuhook.kubernetes.metrics import cgroup_names
from gpuhook.vendors.nvidia.words import VOCABULARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.kubernetes.metrics.cgroup_names import Membership

_FIRST_PID_NAMESPACE = 0xEFFFFFFC
_HOST_DEVICES = "devtmpfs"  # what the kernel itself keeps at /dev
_MAX_STAT = 1 << 16
_MAX_MOUNTINFO = 4 << 20


@dataclass(frozen=True, slots=True)
class About:
    """When a process started, in clock ticks since boot, and where it is."""

    started: int
    member: Membership


class Processes:
    """The processes below `proc`, which have the pids that the driver tells."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc

    def trouble(self) -> GpuhookError | None:
        """Return GH1885 where pids are not those of the host, which the driver's are."""
        try:
            found = os.stat(f"{self._proc}/self/ns/pid").st_ino
            # A /proc from elsewhere calls us by another pid, or does not know us.
            is_ours = os.readlink(f"{self._proc}/self") == str(os.getpid())
        except OSError as error:
            return fault("GH1885", reason=f"{error.filename}: {error.strerror}")
        if found != _FIRST_PID_NAMESPACE or not is_ours:
            return fault("GH1885", reason="the plugin is in a pid namespace of its own")
        return None

    def about(self, pid: int) -> About | None:
        """Return what there is to know of a process, None if it has ended."""
        started = self._started(pid)
        member = cgroup_names.of_pid(pid, self._proc)
        if started is None or self._started(pid) != started:
            return None
        return About(started, member)

    def grants(self, pid: int) -> dict[str, int]:
        """Return what the mounts that a process sees grant: bytes by device UUID.

        An image's /var/run usually leads to /run, and mounts are told by where they are. Only the
        host's own /dev/null counts: a pod may mount a file of that name from a volume of its own.
        """
        try:
            content = files.read(f"{self._proc}/{pid}/mountinfo", _MAX_MOUNTINFO)
        except (OSError, GpuhookError):
            return {}
        prefix = VOCABULARY.memory_prefix
        short = prefix.replace("/var/run/", "/run/", 1).encode() + b"/"
        if short not in content:
            return {}
        mounts = [
            {"destination": mount.target, "source": "/dev/null"}
            for mount in mountinfo.parse(content)
            if mount.root == "/null" and mount.fstype == _HOST_DEVICES
        ]
        found: dict[str, int] = {}
        for place in (prefix, short.decode().rstrip("/")):
            for device, limit in memory.granted({"mounts": mounts}, place).items():
                found[device] = min(limit.hard, found.get(device, limit.hard))
        return found

    def send(self, pid: int, name: str, is_still: Callable[[], bool]) -> bool:
        """Send a signal if `is_still()`, which is asked while the pid cannot become another's.

        Returns whether it was sent. Raises GH1886 where it may not be.
        """
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        except OSError as error:
            raise fault("GH1886", pid=pid, reason=error.strerror) from error
        try:
            if not is_still():
                return False
            signal.pidfd_send_signal(descriptor, signal.Signals[name])
        except ProcessLookupError:
            return False
        except OSError as error:
            raise fault("GH1886", pid=pid, reason=error.strerror) from error
        finally:
            os.close(descriptor)
        return True

    def _started(self, pid: int) -> int | None:
        try:
            return ledger.started(files.read(f"{self._proc}/{pid}/stat", _MAX_STAT))
        except (OSError, GpuhookError):
            return None
