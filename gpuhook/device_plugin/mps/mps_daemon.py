# SPDX-License-Identifier: Apache-2.0
"""Starts, configures and stops the MPS control daemon of a resource.

All methods block shortly: the plugin calls them in a thread. A daemon outlives the plugin, since
its clients would lose their GPU with it; the next plugin finds it. It is stopped only when its
resource is no longer shared by MPS.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from contextlib import contextmanager

from gpuhook.device_plugin.mps import mps_plan
from gpuhook.errors import fault
from gpuhook.kernel import mountinfo
from gpuhook.vendors.nvidia.gpu.compute_mode import DEFAULT, EXCLUSIVE_PROCESS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuhook.device_plugin.mps.mps_plan import MpsPlan

PROGRAM = "nvidia-cuda-mps-control"
_TIMEOUT = 10.0  # seconds
_MAX_OUTPUT = 1 << 16
_TMPFS_TYPE = "tmpfs"
_STICKY = 0o1777  # as /tmp: clients of any user create files, and remove only their own


class MpsDaemon:
    """The daemon of one plan. `set_compute_mode` gets the UUID of a GPU and its mode."""

    def __init__(
        self, plan: MpsPlan, program: str, set_compute_mode: Callable[[str, str], None]
    ) -> None:
        self.plan = plan
        self._program = program
        self._set_compute_mode = set_compute_mode
        self._has_limits = False

    def ensure(self) -> bool:
        """Start the daemon if needed, and set the plan's limits; returns whether it was started.

        Raises GH1873 to GH1875 and GH1878, and what `set_compute_mode` raises.
        """
        with self._os_error_as_fault():
            self._make_directories()
        started = not self.answers()
        if started:
            self._has_limits = False
            with self._os_error_as_fault():
                mps_plan.record(self.plan)
            for uuid in self.plan.uuids:
                self._set_compute_mode(uuid, EXCLUSIVE_PROCESS)
            self._call(["-d"], "")
        if not self._has_limits:
            for command in self.plan.commands():
                self.send(command)
            self._has_limits = True
        return started

    def answers(self) -> bool:
        """Return whether a daemon answers on the plan's pipes."""
        try:
            return bool(self.send("get_default_active_thread_percentage"))
        except Exception:  # any failure means no answer
            return False

    def send(self, command: str) -> str:
        """Send one command and return the answer. Raises GH1873 and GH1874."""
        return self._call([], command + "\n").strip()

    def quit(self) -> None:
        """Stop the daemon, if it runs, and reset the compute mode of its GPUs."""
        if self.answers():
            self.send("quit")
        for uuid in self.plan.uuids:
            self._set_compute_mode(uuid, DEFAULT)
        mps_plan.forget(self.plan)

    def _call(self, arguments: list[str], text: str) -> str:
        env = {
            **os.environ,
            "CUDA_MPS_PIPE_DIRECTORY": self.plan.pipe,
            "CUDA_MPS_LOG_DIRECTORY": self.plan.log,
            "CUDA_VISIBLE_DEVICES": ",".join(self.plan.uuids),
        }
        try:
            # A file: a started daemon keeps a pipe open, and run() would wait for its end.
            with tempfile.TemporaryFile("w+", errors="replace") as output:
                done = subprocess.run(
                    [self._program, *arguments],
                    input=text,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    text=True,
                    env=env,
                    timeout=_TIMEOUT,
                    check=False,
                )
                output.seek(0)
                answer = output.read(_MAX_OUTPUT)
        except FileNotFoundError as error:
            raise fault("GH1873", resource=self.plan.resource, program=self._program) from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise self._failed(arguments, text, str(error)) from error
        if done.returncode != 0:
            reason = answer.strip() or f"exit status {done.returncode}"
            raise self._failed(arguments, text, reason)
        return answer

    def _failed(self, arguments: list[str], text: str, reason: str) -> Exception:
        return fault(
            "GH1874",
            resource=self.plan.resource,
            command=text.strip() or " ".join(arguments),
            reason=reason,
            log=self.plan.log,
        )

    @contextmanager
    def _os_error_as_fault(self) -> Iterator[None]:
        """Raise GH1878 for an OSError: the plugin's container lacks the host's directory."""
        try:
            yield
        except OSError as error:
            path, reason = error.filename or self.plan.root, error.strerror or error
            raise fault("GH1878", resource=self.plan.resource, path=path, reason=reason) from error

    def _make_directories(self) -> None:
        for directory in (self.plan.pipe, self.plan.log):
            os.makedirs(directory, 0o755, exist_ok=True)
        os.chmod(self.plan.pipe, _STICKY)
        _make_shared_memory(self.plan.shm)


def _make_shared_memory(directory: str) -> None:
    """Mount a tmpfs on `directory` unless it is in one."""
    os.makedirs(directory, exist_ok=True)
    os.chmod(directory, _STICKY)
    if _is_in_memory(directory):
        return
    size = f"size={_half_of_memory()}k,mode=1777,nosuid,nodev"
    command = ["mount", "-t", _TMPFS_TYPE, "-o", size, "gpuhook-mps", directory]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise fault("GH1875", path=directory, reason=done.stderr.strip())


def _is_in_memory(directory: str) -> bool:
    """Return whether `directory` is in a tmpfs."""
    real = os.path.realpath(directory)
    with open("/proc/self/mountinfo", "rb") as stream:
        mounts = mountinfo.parse(stream.read())
    over = [mount for mount in mounts if mount.is_over(real)]
    _, nearest = max(enumerate(over), key=lambda pair: (len(pair[1].target), pair[0]))
    return nearest.fstype == _TMPFS_TYPE


def _half_of_memory() -> int:
    """Return half of this machine's memory in KiB."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2048
