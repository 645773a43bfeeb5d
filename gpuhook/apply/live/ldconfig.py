# SPDX-License-Identifier: Apache-2.0
"""The loader cache of a root file system, made by the host's ldconfig: for sites that require it.

ldconfig reads an image that an attacker may have made. It runs in its own namespaces with the image
as its read-only root, without /proc, with no capability but that of reading, for a bounded time; it
writes into a private tmpfs. Nothing of the image is executed: the program is the host's, statically
linked, and is run from a sealed copy in memory.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time

from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import files
from gpuhook.host.warm import child_process
from gpuhook.kernel import mounts, sandbox
from gpuhook.kernel.namespaces import in_mount_namespace
from gpuhook.loader import elf
from gpuhook.loader.loader_paths import MAX_CACHE

SECONDS = 30
_MAX_PROGRAM = 16 << 20
_MAX_OUTPUT = 2000
_MEMORY = 512 << 20
_SCRATCH = ("/proc", "/sys", "/dev", "/run", "/tmp")  # noqa: S108 # covered, not used
_CONF, _CACHE = "gpuhook.conf", "gpuhook.cache"
_SEALS = 0xF  # F_SEAL_SEAL, _SHRINK, _GROW and _WRITE, linux/fcntl.h
_ADD_SEALS = 1033
_LOCKS = mounts.MOUNT_ATTR_RDONLY | mounts.MOUNT_ATTR_NOSUID | mounts.MOUNT_ATTR_NODEV
_UNSPEAKABLE = b"#=\0\n\t\v\f\r "
# Directories that a host's ldconfig with other built-in ones would not search. Debian's have names
# of the machine; a missing directory is skipped.
_SYSTEM = (
    "/lib/{machine}-linux-gnu",
    "/usr/lib/{machine}-linux-gnu",
    "/lib",
    "/usr/lib",
    "/lib64",
    "/usr/lib64",
)


def cache_of(
    namespace: int, root: int, program: str, first: list[bytes], last: list[bytes]
) -> bytes:
    """Return the cache that the host's `program` makes of the root behind the descriptor `root`.

    `namespace` is a descriptor of the mount namespace in which the root is mounted, `first` are the
    directories to search before those that the image names, `last` those after them. Raises GH1517
    for an unusable program, GH1518 if it fails.
    """
    runnable = _sealed(program)
    made = os.memfd_create("ld.so.cache", os.MFD_CLOEXEC)
    text = _configuration(first, last)
    try:
        in_mount_namespace(namespace, lambda: _make(root, runnable, text, made))
        os.lseek(made, 0, os.SEEK_SET)
        return files.read_descriptor(made, program, MAX_CACHE)
    except OSError as error:
        reason = error.strerror or str(error)
        raise fault("GH1518", program=program, reason=reason) from error
    finally:
        os.close(runnable)
        os.close(made)


def real_program(path: str) -> str:
    """Return the program behind `path`: Debian's and Ubuntu's may be a script around PATH.real."""
    return path + ".real" if os.path.isfile(path + ".real") else path


def require_usable(path: str) -> None:
    """Raise GH1517 if ldconfig at `path` cannot be run safely in an untrusted root file system."""
    os.close(_sealed(path))


def _sealed(path: str) -> int:
    """Return a descriptor of a copy of the program that no process can change; GH1517."""
    path = real_program(path)
    try:
        data = files.read(path, _MAX_PROGRAM)
        is_executable = bool(os.stat(path).st_mode & 0o111)
    except OSError as error:
        raise fault("GH1517", path=path, reason=error.strerror or str(error)) from error
    except GpuhookError as error:
        raise fault(
            "GH1517", path=path, reason="it is not a regular file, or it is too large"
        ) from error
    if not is_executable:
        raise fault("GH1517", path=path, reason="it is not executable")
    copy = os.memfd_create("ldconfig", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    files.write_whole(copy, data)
    fcntl.fcntl(copy, _ADD_SEALS, _SEALS)
    if not elf.is_static(f"/proc/self/fd/{copy}"):
        # The kernel would load the image's own dynamic loader, and run it.
        os.close(copy)
        raise fault("GH1517", path=path, reason="it is not a statically linked program")
    return copy


def _configuration(first: list[bytes], last: list[bytes]) -> bytes:
    """Return ldconfig's configuration: `first`, the image's, `last`, the system's directories."""
    machine = os.uname().machine
    named = [*first, b"include /etc/ld.so.conf", *last]
    lines = [line for line in named if line[:1] != b"/" or not any(c in _UNSPEAKABLE for c in line)]
    lines += [where.format(machine=machine).encode() for where in _SYSTEM]
    return b"".join(line + b"\n" for line in lines)


def _make(root: int, program: int, text: bytes, made: int) -> None:
    """Run ldconfig, and put the cache into `made`; in a process whose namespaces may change."""
    flags = mounts.OPEN_TREE_CLONE | mounts.OPEN_TREE_CLOEXEC
    flags |= mounts.AT_EMPTY_PATH | mounts.AT_RECURSIVE
    tree = mounts.open_tree(root, "", flags)
    try:
        mounts.mount_setattr(tree, _LOCKS, 0, mounts.MS_PRIVATE, recursive=True)
    except OSError as error:
        if error.errno != errno.ENOSYS:  # before Linux 5.12 the dropped capabilities suffice
            raise
    sandbox.enter_namespaces()
    sandbox.change_root(tree)
    scratch = _scratch()
    _write(f"{scratch}/{_CONF}", text)
    _run(program, ["-X", "-i", "-f", f"{scratch}/{_CONF}", "-C", f"{scratch}/{_CACHE}"])
    found = os.open(f"{scratch}/{_CACHE}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    files.write_whole(made, files.read_descriptor(found, _CACHE, MAX_CACHE))


def _scratch() -> str:
    """Mount a tmpfs over a directory without libraries, /proc if it exists; return it."""
    covered = [path for path in _SCRATCH if os.path.isdir(path) and not os.path.islink(path)]
    if not covered:
        raise OSError(errno.ENOENT, "the root file system has neither /proc nor /dev", "/proc")
    mounts.mount("tmpfs", covered[0], "tmpfs", 0)
    return covered[0]


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    files.write_whole(fd, data)
    os.close(fd)


def _run(program: int, arguments: list[str]) -> None:
    """Run the program as the first process of a pid namespace; OSError with its output."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(program, arguments, writer)
    os.close(writer)
    end = time.monotonic() + SECONDS
    output, _ = child_process.read_until(reader, end, _MAX_OUTPUT)
    status = child_process.wait_until(pid, end)
    if status is None:
        raise OSError(errno.EIO, f"it did not finish within {SECONDS} seconds", "ldconfig")
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        reason = f"it was killed by signal {-code}" if code < 0 else f"its exit status is {code}"
        text = " ".join(output.decode("utf-8", "replace").split())
        raise OSError(errno.EIO, f"{reason}: {text}" if text else reason, "ldconfig")


def _become(program: int, arguments: list[str], writer: int) -> None:
    try:
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        last = os.dup2(program, 3, inheritable=False)
        os.dup2(os.open("/", os.O_RDONLY | os.O_DIRECTORY), 0)  # nothing to read
        os.closerange(4, 1 << 16)
        sandbox.keep_capabilities((sandbox.CAP_DAC_READ_SEARCH,))
        sandbox.bound(seconds=SECONDS, memory=_MEMORY, file_size=MAX_CACHE, descriptors=256)
        os.execve(last, ["ldconfig", *arguments], {})  # noqa: S606 # of a descriptor, no path
    except OSError as error:
        os.write(2, os.fsencode(error.strerror or str(error)))
    finally:
        os._exit(127)
