# SPDX-License-Identifier: Apache-2.0
"""Namespaces: entering one, and working in a container's mount namespace.

Constants from linux/sched.h and linux/proc_ns.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from _signal import (  # type: ignore[import-not-found] # the C part: `signal` costs 5 ms
    SIG_BLOCK,
    SIG_SETMASK,
    pthread_sigmask,
    valid_signals,
)

import gpuhook.errors.kinds
import gpuhook.errors.messages  # noqa: F401 # no import works in a container's namespace
from gpuhook.errors import GpuhookError, rebuild
from gpuhook.kernel.libc import LIBC, os_error
from gpuhook.kernel.process import die_with

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_CLONE_NEWNS = 0x00020000
_CLONE_NEWCGROUP = 0x02000000
_CLONE_NEWUSER = 0x10000000
_PROC_USER_INIT_INO = 0xEFFFFFFD
_REASONS = {
    errno.EPERM: "not permitted; CAP_SYS_ADMIN in the container's user namespace is needed",
    errno.EINVAL: "no such namespace, or this process has threads and cannot enter it",
}
_MOST = 8192

LIBC.setns.argtypes = (ctypes.c_int, ctypes.c_int)


def is_initial_user_namespace(inode: int) -> bool:
    """Return whether this is the inode number of the host's own namespace, which is fixed."""
    return inode == _PROC_USER_INIT_INO


def enter_cgroup_namespace(ns_fd: int) -> None:
    """Enter the cgroup namespace behind `ns_fd` for good; raises OSError."""
    if LIBC.setns(ns_fd, _CLONE_NEWCGROUP) != 0:
        raise os_error("cgroup namespace", _REASONS)


def in_mount_namespace(ns_fd: int, work: Callable[[], None]) -> None:
    """Run `work` in a child process that has entered the mount namespace behind `ns_fd`.

    The child's working directory is the host's directory of its descriptors: the relative path "7"
    is descriptor 7, for system calls that only take paths; an absolute path leads into the
    container. Nothing can be imported there. OSError and gpuhook's faults are raised here
    unchanged, other exceptions as an OSError with their text.
    """
    _in_child(lambda: _enter(ns_fd), work, lambda _: None)


def opened_in_mount_namespace(ns_fd: int, opener: Callable[[], int]) -> int:
    """Return a descriptor (the caller's) that `opener` opened in a child of in_mount_namespace().

    For objects that only a process of that namespace may open, such as a copy of one of its mounts.
    """
    flags = os.O_PATH | os.O_CLOEXEC
    (found,) = _opened_of_child(
        lambda: _enter(ns_fd), opener, lambda number: [(f"fd/{number}", flags)]
    )
    return found


def mount_namespace_view(ns_fd: int, user_ns_fd: int) -> tuple[int, int]:
    """Return descriptors (the caller's) of the namespace's mountinfo and of its root directory.

    They are those of a gpuhook process that enters the namespace: a process of the container that
    called chroot(2) shows another root directory, and no mount outside of it. `user_ns_fd` is the
    user namespace that owns the mount namespace; users without rights over the host enter it first.
    Raises OSError.
    """
    try:
        return _view_from_inside(ns_fd)
    except OSError:  # a user without these rights, or a process with threads
        return _view_of_child(ns_fd, user_ns_fd)


def _view_from_inside(ns_fd: int) -> tuple[int, int]:
    """Return what mount_namespace_view() returns: this process enters the namespace and returns.

    No signal handler runs meanwhile, and the only paths that are looked up are "/" and a file of
    our own directory in the host's /proc.
    """
    file, directory = os.O_RDONLY | os.O_CLOEXEC, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    ours: list[int] = []
    opened: list[int] = []
    blocked = pthread_sigmask(SIG_BLOCK, valid_signals())
    try:
        for path in ("/", ".", "/proc/self"):
            ours.append(os.open(path, directory))  # noqa: PERF401 # each is closed
        ours.append(os.open("/proc/self/ns/mnt", file))
        root, here, process, own = ours
        _enter(ns_fd)
        try:
            opened.append(os.open("mountinfo", file, dir_fd=process))
            opened.append(os.open("/", directory))
        finally:
            _come_back(own, root, here)
    except BaseException:
        for fd in opened:
            os.close(fd)
        raise
    finally:
        pthread_sigmask(SIG_SETMASK, blocked)
        for fd in ours:
            os.close(fd)
    table, found = opened
    return table, found


def _come_back(ns_fd: int, root: int, directory: int) -> None:
    """Return to our own mount namespace, root and working directory, or end this process."""
    try:
        _enter(ns_fd)
        os.fchdir(root)
        os.chroot(".")
        os.fchdir(directory)
    except BaseException:
        os._exit(1)  # it must not go on in the container's tree


def _view_of_child(ns_fd: int, user_ns_fd: int) -> tuple[int, int]:
    """Return what mount_namespace_view() returns, by means of a child process."""

    def enter() -> None:
        try:
            _enter(ns_fd)
        except PermissionError:
            if LIBC.setns(user_ns_fd, _CLONE_NEWUSER) != 0:
                raise
            _enter(ns_fd)

    files = [("mountinfo", os.O_RDONLY | os.O_CLOEXEC)]
    files += [("root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]
    mountinfo, root = _opened_of_child(enter, lambda: 0, lambda _: files)
    return mountinfo, root


def _opened_of_child(
    enter: Callable[[], None],
    work: Callable[[], int],
    files: Callable[[int], list[tuple[str, int]]],
) -> list[int]:
    """Return descriptors of files of /proc/PID of a child that has called `enter` and `work`.

    `files` returns their names and flags for open(2); its argument is the result of `work`.
    """
    opened: list[int] = []
    with _Pipe() as result, _Pipe() as release:

        def in_child() -> None:
            release.close_writer()
            os.write(result.writer, b"%d" % work())
            result.close_writer()
            os.read(release.reader, 1)  # until the parent has opened the files, or has exited

        def in_parent(pid: int) -> None:
            result.close_writer()
            try:
                number = os.read(result.reader, 32)
                for name, flags in files(int(number)) if number else ():
                    opened.append(os.open(f"/proc/{pid}/{name}", flags))
            finally:
                release.close_writer()  # or the child would wait for ever

        try:
            _in_child(enter, in_child, in_parent)
        except BaseException:
            for fd in opened:
                os.close(fd)
            raise
    return opened


class _Pipe:
    """A pipe whose open ends are closed at the end of a with statement."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()

    def __enter__(self) -> _Pipe:  # noqa: PYI034 # Self needs a newer Python
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self.reader)
        self.close_writer()

    def close_writer(self) -> None:
        """Close the writing end: the reader gets the end of the file."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1


def _in_child(
    enter: Callable[[], None], work: Callable[[], None], meanwhile: Callable[[int], None]
) -> None:
    """Run `enter` and `work` in a child process, and `meanwhile`, with the child's pid, here."""
    parent = os.getpid()

    def entered_work() -> None:
        # The next process that works on the container must not meet a killed process's child.
        die_with(parent)
        work()

    with _Pipe() as pipe:
        pid = os.fork()
        if pid == 0:
            os.close(pipe.reader)
            _child(enter, entered_work, pipe.writer)
        pipe.close_writer()
        try:
            meanwhile(pid)
            message = _read_all(pipe.reader)
        finally:
            status = os.waitpid(pid, 0)[1]
    if message:
        raise _unpacked(message)
    if status != 0:
        code = os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        kind = "signal" if os.WIFSIGNALED(status) else "status"
        reason = f"the process in the mount namespace ended with {kind} {code}"
        raise OSError(errno.EIO, reason, "mount namespace")


def _child(enter: Callable[[], None], work: Callable[[], None], writer: int) -> None:
    """Enter, work, report errors, and end: the parent's code never runs twice."""
    status = 1
    try:
        _no_imports()
        descriptors = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        enter()
        os.fchdir(descriptors)
        work()
        status = 0
    except BaseException as error:
        os.write(writer, _packed(error))
    finally:
        os._exit(status)


def _enter(ns_fd: int) -> None:
    if LIBC.setns(ns_fd, _CLONE_NEWNS) != 0:
        raise os_error("mount namespace", _REASONS)


def _no_imports() -> None:
    """Remove every means of importing.

    After setns, paths lead into the container's tree: an import would run the image's code with the
    host's rights.
    """
    sys.path.clear()
    sys.meta_path.clear()
    sys.path_hooks.clear()
    sys.path_importer_cache.clear()


def _packed(error: BaseException) -> bytes:
    if isinstance(error, GpuhookError):
        words = [error.code, error.message, error.hint]
    elif isinstance(error, OSError):
        reason = error.strerror or str(error)
        words = [str(error.errno or errno.EIO), reason, _name(error.filename)]
    else:
        words = [str(errno.EIO), f"{type(error).__name__}: {error}", "mount namespace"]
    return b"\0".join(os.fsencode(word)[: _MOST // 4] for word in words)


def _unpacked(data: bytes) -> GpuhookError | OSError:
    code, message, third = (os.fsdecode(word) for word in data.split(b"\0"))
    if code.isdigit():
        return OSError(int(code), message, third)
    return rebuild(code, message, third)


def _name(filename: object) -> str:
    return os.fsdecode(filename) if isinstance(filename, (str, bytes)) else "mount namespace"


def _read_all(fd: int) -> bytes:
    chunks = []
    while chunk := os.read(fd, _MOST):
        chunks.append(chunk)
    return b"".join(chunks)
