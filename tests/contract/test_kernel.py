# SPDX-License-Identifier: Apache-2.0
"""Mounts, namespaces, paths and nodes: the system calls, on another process's namespace."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuhook.errors import GpuhookError, fault
from gpuhook.kernel import libc, mknod, mounts, openat2
from gpuhook.kernel.namespaces import (
    in_mount_namespace,
    is_initial_user_namespace,
    opened_in_mount_namespace,
)
from tests.contract.runtimes import run_command

ALL = (
    mounts.MOUNT_ATTR_RDONLY
    | mounts.MOUNT_ATTR_NOSUID
    | mounts.MOUNT_ATTR_NODEV
    | mounts.MOUNT_ATTR_NOEXEC
)


@pytest.fixture
def process() -> Iterator[int]:
    """Give the pid of a process in another mount namespace."""
    started = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", "echo; exec sleep 100"], stdout=subprocess.PIPE
    )
    assert started.stdout is not None
    started.stdout.readline()
    yield started.pid
    started.kill()
    started.communicate()


@pytest.fixture
def there(process: int) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Return a function that does work in the process's mount namespace."""
    fd = os.open(f"/proc/{process}/ns/mnt", os.O_RDONLY)
    yield lambda work: in_mount_namespace(fd, work)
    os.close(fd)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Give a file with "source" in it, and one with "target"."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("source")
    target.write_text("target")
    return source, target


def mounted(process: int, target: Path) -> list[str]:
    """Return the options of what is mounted at a path, as the process sees it."""
    lines = Path(f"/proc/{process}/mountinfo").read_text().splitlines()
    return [line.split(" - ")[0] for line in lines if f" {target} " in line]


def handle(path: Path) -> int:
    """Return a descriptor of a path in the namespace we are in."""
    return os.open(path, os.O_PATH)


def test_a_clone_is_attached(
    process: int, there: Callable[[Callable[[], None]], None], files: tuple[Path, Path]
) -> None:
    """A file of the host is mounted there and not here, with its flags, and taken away again."""
    source, target = files
    tree = mounts.clone(str(source), ALL)
    there(lambda: mounts.attach(tree, handle(target), ALL, str(target), "."))
    os.close(tree)
    [line] = mounted(process, target)
    assert "ro,nosuid,nodev,noexec" in line
    assert "shared:" not in line
    assert Path(f"/proc/{process}/root{target}").read_text() == "source"
    assert target.read_text() == "target"
    there(lambda: mounts.umount2(str(handle(target)), mounts.MNT_DETACH))
    assert mounted(process, target) == []


def test_without_mount_setattr(
    process: int,
    there: Callable[[Callable[[], None]], None],
    files: tuple[Path, Path],
) -> None:
    """A clone without its flags, as before Linux 5.12, gets them where it is attached."""
    source, target = files
    flags = mounts.OPEN_TREE_CLONE | mounts.OPEN_TREE_CLOEXEC
    tree = mounts.open_tree(mounts.AT_FDCWD, str(source), flags)
    there(lambda: mounts.attach(tree, handle(target), ALL, str(target), "."))
    os.close(tree)
    [line] = mounted(process, target)
    assert "ro,nosuid,nodev,noexec" in line
    assert "shared:" not in line


def test_read_only_root(there: Callable[[Callable[[], None]], None], tmp_path: Path) -> None:
    """A root that is mounted read-only is written to through a clone of it."""

    def work() -> None:
        mounts.bind(str(tmp_path), str(tmp_path), mounts.MOUNT_ATTR_RDONLY)
        root = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
        with pytest.raises(OSError, match="Read-only"):
            os.mkdir("refused", dir_fd=root)
        os.mkdir("made", dir_fd=mounts.writable_clone(root))

    there(work)
    assert os.listdir(tmp_path) == ["made"]


def test_errors_come_back(there: Callable[[Callable[[], None]], None], tmp_path: Path) -> None:
    """What goes wrong in the namespace is raised here: errno, reason, file; faults with codes."""

    def refused() -> None:
        raise fault("GH1310", path="/x", limit=1)

    def imports() -> None:
        import this  # noqa: F401  # what no test run has imported

    def broken() -> None:
        raise ValueError("wrong")

    with pytest.raises(FileNotFoundError) as gone:
        there(lambda: mounts.umount2(f"{tmp_path}/none", 0))
    assert gone.value.filename == f"{tmp_path}/none"
    with pytest.raises(OSError, match="nothing is mounted there") as unmounted:
        there(lambda: mounts.umount2(str(tmp_path), 0))
    assert unmounted.value.errno == errno.EINVAL
    with pytest.raises(GpuhookError) as coded:
        there(refused)
    assert coded.value.code == "GH1310"
    with pytest.raises(OSError, match="Import"):
        there(imports)
    with pytest.raises(OSError, match="ValueError: wrong"):
        there(broken)
    with pytest.raises(OSError, match="ended with signal 9"):
        there(lambda: os.kill(os.getpid(), 9))


def test_what_cannot_be_opened_here(process: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """If our half of passing a descriptor fails, no process waits and nothing stays open."""
    namespace = os.open(f"/proc/{process}/ns/mnt", os.O_RDONLY)
    before = os.listdir("/proc/self/fd")
    real = os.open

    def refused(path: str, flags: int, *rest: int) -> int:
        if flags & os.O_PATH:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return real(path, flags, *rest)

    def no_more(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refused)
        with pytest.raises(OSError, match="Too many open files"):
            opened_in_mount_namespace(namespace, lambda: real("/", os.O_RDONLY))
    assert os.listdir("/proc/self/fd") == before
    with monkeypatch.context() as patched:
        patched.setattr(os, "fork", no_more)
        with pytest.raises(BlockingIOError):
            opened_in_mount_namespace(namespace, lambda: real("/", os.O_RDONLY))
    assert os.listdir("/proc/self/fd") == before
    fd = opened_in_mount_namespace(namespace, lambda: real("/tmp", os.O_RDONLY))
    assert os.path.samestat(os.fstat(fd), os.stat(f"/proc/{process}/root/tmp"))
    os.close(fd)
    os.close(namespace)


def test_unknown_system_call() -> None:
    """A call that the kernel does not have is an error with the kernel's version, or says so."""
    with pytest.raises(OSError, match="does not have the system call") as raised:
        libc.syscall(99999, path="/x")
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSYS, "/x")
    with pytest.raises(OSError, match="newer"):
        libc.syscall(99999, path="/x", reasons={errno.ENOSYS: "Linux 9 or newer is needed"})


def test_user_namespaces() -> None:
    """Our own is the host's, or a test run in a container would have skipped; a new one is not."""
    namespace = Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]
    assert is_initial_user_namespace(os.stat("/proc/self/ns/user").st_ino) == namespace
    started = subprocess.Popen(["unshare", "--user", "sleep", "100"])
    try:
        while os.readlink(f"/proc/{started.pid}/ns/user") == os.readlink("/proc/self/ns/user"):
            assert started.poll() is None
        assert not is_initial_user_namespace(os.stat(f"/proc/{started.pid}/ns/user").st_ino)
    finally:
        started.kill()
        started.wait()


def test_paths_stay_inside(tmp_path: Path) -> None:
    """Links and dots lead to the root's own files; magic links are refused."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text("inside")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "up").symlink_to("../../../../../../etc/passwd")
    root = os.open(tmp_path, os.O_PATH)
    for path in ("link", "up", "/etc/passwd", "../../etc/passwd"):
        fd = openat2.openat2(root, path, os.O_RDONLY)
        assert not os.get_inheritable(fd)
        assert os.read(fd, 10) == b"inside"
        os.close(fd)
    os.close(root)
    slash = os.open("/", os.O_PATH)
    path = f"/proc/self/fd/{slash}"
    with pytest.raises(OSError, match="through /proc") as raised:
        openat2.openat2(slash, path, os.O_PATH)
    assert raised.value.filename == path
    os.close(slash)


def test_nodes_are_exact(tmp_path: Path) -> None:
    """A node has its mode and owner whatever the umask; what is there already is an error."""
    directory = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    old = os.umask(0o077)
    try:
        mknod.mknod(directory, "gpu", "c", 195, 3, 0o666, 12, 34)
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(old)
    found = os.stat(tmp_path / "gpu")
    assert stat.S_ISCHR(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o666
    assert (found.st_uid, found.st_gid) == (12, 34)
    assert found.st_rdev == os.makedev(195, 3)
    with pytest.raises(FileExistsError) as raised:
        mknod.mknod(directory, "gpu", "c", 195, 3, 0o666, 0, 0)
    assert raised.value.filename == "gpu"
    os.close(directory)


def test_nodes_in_a_user_namespace(tmp_path: Path) -> None:
    """If nodes cannot be made the error says where that is so, and there is none."""
    tmp_path.chmod(0o777)
    script = (
        "import os, sys; from gpuhook.kernel import mknod;"
        "fd = os.open(sys.argv[1], os.O_PATH);"
        "mknod.mknod(fd, 'gpu', 'c', 195, 3, 0o666, 0, 0)"
    )
    words = ["unshare", "--user", "--map-root-user", "python3", "-c", script, str(tmp_path)]
    done = run_command(words)
    assert "PermissionError: [Errno 1] not permitted to make device nodes here" in done.stderr
    assert os.listdir(tmp_path) == []
