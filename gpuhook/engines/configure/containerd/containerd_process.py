# SPDX-License-Identifier: Apache-2.0
"""The containerd process of a host that runs with a given configuration file.

The program of this process, not the first one in the PATH, decides how the file is read.
"""

from __future__ import annotations

import os
import posixpath
import stat
from contextlib import suppress

from gpuhook.engines.configure.containerd import containerd_locations
from gpuhook.engines.configure.host_programs import HostPrograms
from gpuhook.engines.read.containerd_config import PATH, configuration_file, read
from gpuhook.engines.read.containerd_files import may_read
from gpuhook.engines.state import host_processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.host_files import Host
    from gpuhook.engines.state.host_processes import HostProcess

_NAME = "containerd"
_DELETED = " (deleted)"  # proc_pid_exe(5): the program was replaced since the process started
_WRITABLE_BY_OTHERS = 0o022


def host_programs(host: Host, engine: str, config: str = "") -> HostPrograms:
    """Return the host's programs; containerd is the one that runs with the file `config`.

    Without `config`, the file that containerd's unit names applies. If none runs with it, the
    containerd in the PATH is used, but not a 1.x for a version 3 file. Raises OSError.
    """
    programs = HostPrograms(host)
    if engine != _NAME:
        return programs
    config = config or containerd_locations.started_with(host)
    running = _running_program(host, config)
    if running or not may_read(programs.version(_NAME), read(host, config).version):
        return HostPrograms(host, {_NAME: running})
    return programs


def _running_program(host: Host, config: str) -> str:
    """Return the program's path on the host, "" if no containerd runs with `config`.

    Only processes of root and of this user are used: gpuhook runs their program itself.
    """
    for process in host_processes.running(host.root):
        if process.program != _NAME or _configuration(process) != posixpath.normpath(config):
            continue
        with suppress(OSError):
            if not process.is_trusted:
                continue
            path = _path(host, os.readlink(f"/proc/{process.pid}/exe").removesuffix(_DELETED))
            found = host.status(path)
            if found and _is_program(found):
                return path
    return ""


def _configuration(process: HostProcess) -> str:
    return posixpath.normpath(configuration_file(list(process.arguments)) or PATH)


def _path(host: Host, path: str) -> str:
    """Return the path on the host; in a chroot, the kernel prints the path as seen from here."""
    root = os.path.realpath(host.root).rstrip("/")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def _is_program(found: os.stat_result) -> bool:
    is_file = stat.S_ISREG(found.st_mode) and bool(found.st_mode & 0o111)
    is_safe = found.st_uid in (0, os.geteuid()) and not found.st_mode & _WRITABLE_BY_OTHERS
    return is_file and is_safe
