# SPDX-License-Identifier: Apache-2.0
"""The machine as the tests see it: without its real GPUs, CDI specs and GPU programs.

A machine that has GPUs, or that gpuhook is installed on, would have a part in what tests find. A
test process therefore enters a new mount namespace. What it starts is in there too.
"""

from __future__ import annotations

import ctypes
import os
import signal
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from tempfile import NamedTemporaryFile, mkdtemp
from typing import TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")
_CLONE_FS, _CLONE_NEWNS = 0x00000200, 0x00020000
_MS_NOATIME, _MS_BIND, _MS_REC, _MS_PRIVATE = 1024, 4096, 16384, 1 << 18
_MNT_DETACH = 2
_LIBC = ctypes.CDLL(None, use_errno=True)
_GPU_NODES = "nvidia*"
# Directories that are empty for the tests, and private. On the machine, all that the tests leave of
# one that it lacks is the empty directory: a mount needs it.
_EMPTY = ("/etc/cdi", "/run/cdi", "/run/gpuhook")
# Installed programs that gpuhook finds by the PATH.
_PROGRAMS = ("gpuhook*", "nvidia-container*", "nvidia-ctk", "nvidia-cdi-hook")


_machine: list[int] = []  # a descriptor of the mount namespace that this process came from


def enter() -> None:
    """Hide the machine's GPU nodes, CDI specs and gpuhook's state from this process; needs root."""
    _machine.append(os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC))
    _check(_LIBC.unshare(_CLONE_NEWNS))
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE)
    if any(Path("/dev").glob(_GPU_NODES)):
        _hide_gpu_nodes()
    for directory in _EMPTY:
        os.makedirs(directory, exist_ok=True)  # without a mount, tests would write to the machine
        _mount("tmpfs", directory, "tmpfs", 0)
    _hide_programs()


@contextmanager
def in_memory(directory: Path, is_kept: Callable[[], bool]) -> Iterator[None]:
    """Have an empty directory in memory meanwhile: a copy of a root costs a tenth there.

    A file that is read keeps its times. In the end the files are put on the disk if `is_kept()`,
    for the reader of a failed test.
    """
    disk = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        _mount("tmpfs", str(directory), "tmpfs", _MS_NOATIME)
        directory.chmod(0o700)
        yield
        if is_kept():
            words = ["cp", "--archive", f"{directory}/.", f"/proc/self/fd/{disk}/"]
            subprocess.run(words, check=False, pass_fds=[disk])
        _check(_LIBC.umount2(os.fsencode(directory), _MNT_DETACH))
    finally:
        os.close(disk)


@contextmanager
def own_parent(directory: Path) -> Iterator[None]:
    """Have the directory above those of all runs of pytest for this process alone meanwhile.

    Each run that starts makes that one private, which users of containers have to pass.
    """
    root = next((one for one in directory.parents if one.name.startswith("pytest-of-")), None)
    if root is None:  # the option --basetemp
        yield
        return
    run = root / directory.relative_to(root).parts[0]
    shared = os.open(run, os.O_PATH | os.O_DIRECTORY)
    try:
        _mount("tmpfs", str(root), "tmpfs", 0)
        root.chmod(0o711)
        run.mkdir(mode=0o700)
        _mount(f"/proc/self/fd/{shared}", str(run), "", _MS_BIND)
    finally:
        os.close(shared)
    try:
        yield
    finally:
        _check(_LIBC.umount2(os.fsencode(root), _MNT_DETACH))


def on_machine(work: Callable[[], T]) -> T:
    """Return what `work` returns in the machine's mount namespace, which enter() has left.

    A descriptor of a detached mount, for one, which can be mounted in our namespace as well.
    """

    def there() -> T:
        _check(_LIBC.unshare(_CLONE_FS))
        _check(_LIBC.setns(_machine[-1], _CLONE_NEWNS))
        return work()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(there).result()


def restore_signals() -> None:
    """Let SIGINT and SIGHUP end programs, also where nohup or a shell's & has them ignored.

    Programs inherit ignored signals, and a shell cannot trap one that it was started with.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _hide_gpu_nodes() -> None:
    """Mount a /dev that has everything but the GPUs: the machine's own keeps its nodes."""
    made = Path(mkdtemp(prefix="gpuhook-dev-"))
    _mount("tmpfs", str(made), "tmpfs", 0)
    made.chmod(0o755)
    hidden = set(Path("/dev").glob(_GPU_NODES))
    for entry in Path("/dev").iterdir():
        if entry not in hidden:
            _show(entry, made / entry.name)
    _mount(str(made), "/dev", "", _MS_BIND | _MS_REC)
    _check(_LIBC.umount2(os.fsencode(made), _MNT_DETACH))
    made.rmdir()


def _hide_programs() -> None:
    """Mount an empty file, which cannot be executed, over each installed program."""
    directories = {os.path.realpath(name) for name in os.get_exec_path() if os.path.isdir(name)}
    with NamedTemporaryFile(prefix="gpuhook-hidden-") as empty:
        for name, pattern in product(sorted(directories), _PROGRAMS):
            for path in Path(name).glob(pattern):
                if not path.is_symlink():
                    _mount(empty.name, str(path), "", _MS_BIND)


def _show(entry: Path, name: Path) -> None:
    """Make `name` the same as `entry` of /dev. A mount of null shows that it is the machine's."""
    status = entry.lstat()
    if entry.name == "null":
        name.touch()
        _mount(str(entry), str(name), "", _MS_BIND)
    elif stat.S_ISLNK(status.st_mode):
        name.symlink_to(entry.readlink())
    elif stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        os.mknod(name, status.st_mode, status.st_rdev)
        os.chown(name, status.st_uid, status.st_gid)
        name.chmod(stat.S_IMODE(status.st_mode))
    else:
        name.mkdir() if stat.S_ISDIR(status.st_mode) else name.touch()
        _mount(str(entry), str(name), "", _MS_BIND | _MS_REC)


def _mount(source: str, target: str, fstype: str, flags: int) -> None:
    words = (os.fsencode(word) for word in (source, target, fstype))
    _check(_LIBC.mount(*words, ctypes.c_ulong(flags), None))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
