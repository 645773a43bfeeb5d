# SPDX-License-Identifier: Apache-2.0
"""Namespaces: entering one, and doing work in a container's mount namespace.

WARM. Constants from linux/sched.h and linux/proc_ns.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

from gpuhook import fault_texts
from gpuhook.errors import GpuhookError
from gpuhook.kernel.libc import LIBC, os_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_CLONE_NEWNS = 0x00020000
_CLONE_NEWCGROUP = 0x02000000
_PROC_USER_INIT_INO = 0xEFFFFFFD
_REASONS = {
    errno.EPERM: "not permitted; CAP_SYS_ADMIN in the container's user namespace is needed",
    errno.EINVAL: "no such namespace, or this process has threads and cannot enter it",
}
_MOST = 8192

LIBC.setns.argtypes = (ctypes.c_int, ctypes.c_int)
fault_texts.load()  # nothing can be imported in a container's mount namespace


def is_initial_user_namespace(inode: int) -> bool:
    """Return whether this is the inode number of the host's own: it is fixed there."""
    return inode == _PROC_USER_INIT_INO


def enter_cgroup_namespace(ns_fd: int) -> None:
    """Enter the cgroup namespace behind `ns_fd`, for good; raises OSError."""
    if LIBC.setns(ns_fd, _CLONE_NEWCGROUP) != 0:
        raise os_error("cgroup namespace", _REASONS)


def in_mount_namespace(ns_fd: int, work: Callable[[], None]) -> None:
    """Run `work` in a child process that has entered the mount namespace behind `ns_fd`.

    The child's working directory is the host's directory of its own descriptors: a relative path
    "7" is descriptor 7, for system calls that take paths only; an absolute path leads into the
    container. Nothing can be imported there. What `work` raises is raised here: OSError and the
    package's own faults as they are, everything else as an OSError that says what it was.
    """
    _in_child(ns_fd, work, lambda _: None)


def opened_in_mount_namespace(ns_fd: int, opener: Callable[[], int]) -> int:
    """Return a descriptor (the caller's) of what `opener` opened as in_mount_namespace() says.

    For what only a process of that namespace may open, such as a copy of one of its mounts.
    """
    found = -1
    with _Pipe() as told, _Pipe() as held:

        def work() -> None:
            held.close_writer()
            os.write(told.writer, b"%d" % opener())
            told.close_writer()
            os.read(held.reader, 1)  # until the parent has opened it too, or has ended

        def meanwhile(pid: int) -> None:
            nonlocal found
            told.close_writer()
            try:
                number = os.read(told.reader, 32)
                if number:
                    path = f"/proc/{pid}/fd/{int(number)}"
                    found = os.open(path, os.O_PATH | os.O_CLOEXEC)
            finally:
                held.close_writer()  # or the child would wait for ever

        _in_child(ns_fd, work, meanwhile)
    return found


class _Pipe:
    """A pipe whose ends are closed at the end of a with statement, if they are open still."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()

    def __enter__(self) -> _Pipe:  # noqa: PYI034 # Self needs a newer Python
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self.reader)
        self.close_writer()

    def close_writer(self) -> None:
        """Close the writing end: whoever reads comes to the end."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1


def _in_child(ns_fd: int, work: Callable[[], None], meanwhile: Callable[[int], None]) -> None:
    """Run `work` in the namespace and `meanwhile`, which gets the child's pid, here."""
    with _Pipe() as pipe:
        pid = os.fork()
        if pid == 0:
            os.close(pipe.reader)
            _child(ns_fd, work, pipe.writer)
        pipe.close_writer()
        try:
            meanwhile(pid)
            told = _read_all(pipe.reader)
        finally:
            status = os.waitpid(pid, 0)[1]
    if told:
        raise _told(told)
    if status != 0:
        code = os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        kind = "signal" if os.WIFSIGNALED(status) else "status"
        reason = f"the process in the mount namespace ended with {kind} {code}"
        raise OSError(errno.EIO, reason, "mount namespace")


def _child(ns_fd: int, work: Callable[[], None], writer: int) -> None:
    """Enter, work, tell what went wrong, and end: the parent's code never runs twice."""
    status = 1
    try:
        _no_imports()
        descriptors = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        _enter(ns_fd)
        os.fchdir(descriptors)
        work()
        status = 0
    except BaseException as error:
        os.write(writer, _telling(error))
    finally:
        os._exit(status)


def _enter(ns_fd: int) -> None:
    if LIBC.setns(ns_fd, _CLONE_NEWNS) != 0:
        raise os_error("mount namespace", _REASONS)


def _no_imports() -> None:
    """Take every means of importing away.

    Paths lead into the container's tree after setns: an import would run the image's code with
    the host's rights.
    """
    sys.path.clear()
    sys.meta_path.clear()
    sys.path_hooks.clear()
    sys.path_importer_cache.clear()


def _telling(error: BaseException) -> bytes:
    if isinstance(error, GpuhookError):
        words = [error.code, error.message, error.hint]
    elif isinstance(error, OSError):
        reason = error.strerror or str(error)
        words = [str(error.errno or errno.EIO), reason, _name(error.filename)]
    else:
        words = [str(errno.EIO), f"{type(error).__name__}: {error}", "mount namespace"]
    return b"\0".join(os.fsencode(word)[: _MOST // 4] for word in words)


def _told(told: bytes) -> GpuhookError | OSError:
    code, message, third = (os.fsdecode(word) for word in told.split(b"\0"))
    if fault_texts.is_known(code):
        return fault_texts.text_of(code)[0](code, message, third)
    return OSError(int(code), message, third)


def _name(filename: object) -> str:
    return os.fsdecode(filename) if isinstance(filename, (str, bytes)) else "mount namespace"


def _read_all(fd: int) -> bytes:
    chunks = []
    while chunk := os.read(fd, _MOST):
        chunks.append(chunk)
    return b"".join(chunks)
