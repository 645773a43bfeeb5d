# SPDX-License-Identifier: Apache-2.0
"""System calls for mounts, namespaces, paths and device nodes, in another process's namespace."""

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
    """Yield the pid of a process in another mount namespace."""
    started = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", "echo; exec sleep 100"], stdout=subprocess.PIPE
    )
    assert started.stdout is not None
    started.stdout.readline()
    yield started.pid
    started.kill()
    started.communicate()


@pytest.fixture
def in_namespace(process: int) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Yield a function that calls its argument in the process's mount namespace."""
    fd = os.open(f"/proc/{process}/ns/mnt", os.O_RDONLY)
    yield lambda work: in_mount_namespace(fd, work)
    os.close(fd)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Return a file that contains "source", and one that contains "target"."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("source")
    target.write_text("target")
    return source, target


def mount_options(process: int, target: Path) -> list[str]:
    """Return the mountinfo fields of each mount at a path in the process's namespace."""
    lines = Path(f"/proc/{process}/mountinfo").read_text().splitlines()
    return [line.split(" - ")[0] for line in lines if f" {target} " in line]


def path_fd(path: Path) -> int:
    """Return an O_PATH descriptor of a path in the current namespace."""
    return os.open(path, os.O_PATH)


def test_attached_clone_has_flags_in_its_namespace_only(
    process: int, in_namespace: Callable[[Callable[[], None]], None], files: tuple[Path, Path]
) -> None:
    """A clone is mounted with its flags, no other namespace sees it, and umount removes it."""
    source, target = files
    tree = mounts.clone(str(source), ALL)
    in_namespace(lambda: mounts.attach(tree, path_fd(target), ALL, str(target), "."))
    os.close(tree)
    [line] = mount_options(process, target)
    assert "ro,nosuid,nodev,noexec" in line
    assert "shared:" not in line
    assert Path(f"/proc/{process}/root{target}").read_text() == "source"
    assert target.read_text() == "target"
    in_namespace(lambda: mounts.umount2(str(path_fd(target)), mounts.MNT_DETACH))
    assert mount_options(process, target) == []


def test_clone_gets_its_flags_on_attach(
    process: int,
    in_namespace: Callable[[Callable[[], None]], None],
    files: tuple[Path, Path],
) -> None:
    """Before Linux 5.12 a clone has no flags: attach() sets them."""
    source, target = files
    flags = mounts.OPEN_TREE_CLONE | mounts.OPEN_TREE_CLOEXEC
    tree = mounts.open_tree(mounts.AT_FDCWD, str(source), flags)
    in_namespace(lambda: mounts.attach(tree, path_fd(target), ALL, str(target), "."))
    os.close(tree)
    [line] = mount_options(process, target)
    assert "ro,nosuid,nodev,noexec" in line
    assert "shared:" not in line


def test_writable_clone_of_a_read_only_root(
    in_namespace: Callable[[Callable[[], None]], None], tmp_path: Path
) -> None:
    """writable_clone() allows writes to a directory that is mounted read-only."""

    def work() -> None:
        mounts.bind(str(tmp_path), str(tmp_path), mounts.MOUNT_ATTR_RDONLY)
        root = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
        with pytest.raises(OSError, match="Read-only"):
            os.mkdir("refused", dir_fd=root)
        os.mkdir("made", dir_fd=mounts.writable_clone(root))

    in_namespace(work)
    assert os.listdir(tmp_path) == ["made"]


def test_errors_in_a_namespace_are_raised_in_the_caller(
    in_namespace: Callable[[Callable[[], None]], None], tmp_path: Path
) -> None:
    """The caller gets errno, reason and file of an OSError, and the code of a fault."""

    def refused() -> None:
        raise fault("GH1310", path="/x", limit=1)

    def imports() -> None:
        import this  # noqa: F401  # what no test run has imported

    def broken() -> None:
        raise ValueError("wrong")

    with pytest.raises(FileNotFoundError) as missing:
        in_namespace(lambda: mounts.umount2(f"{tmp_path}/none", 0))
    assert missing.value.filename == f"{tmp_path}/none"
    with pytest.raises(OSError, match="nothing is mounted there") as unmounted:
        in_namespace(lambda: mounts.umount2(str(tmp_path), 0))
    assert unmounted.value.errno == errno.EINVAL
    with pytest.raises(GpuhookError) as coded:
        in_namespace(refused)
    assert coded.value.code == "GH1310"
    with pytest.raises(OSError, match="Import"):
        in_namespace(imports)
    with pytest.raises(OSError, match="ValueError: wrong"):
        in_namespace(broken)
    with pytest.raises(OSError, match="ended with signal 9"):
        in_namespace(lambda: os.kill(os.getpid(), 9))


def test_failed_descriptor_transfer_leaks_nothing(
    process: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If open() or fork() fails in the caller, no process waits and no descriptor remains open."""
    namespace = os.open(f"/proc/{process}/ns/mnt", os.O_RDONLY)
    before = os.listdir("/proc/self/fd")
    real = os.open

    def refused(path: str, flags: int, *rest: int) -> int:
        if flags & os.O_PATH:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return real(path, flags, *rest)

    def failing_fork(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refused)
        with pytest.raises(OSError, match="Too many open files"):
            opened_in_mount_namespace(namespace, lambda: real("/", os.O_RDONLY))
    assert os.listdir("/proc/self/fd") == before
    with monkeypatch.context() as patched:
        patched.setattr(os, "fork", failing_fork)
        with pytest.raises(BlockingIOError):
            opened_in_mount_namespace(namespace, lambda: real("/", os.O_RDONLY))
    assert os.listdir("/proc/self/fd") == before
    fd = opened_in_mount_namespace(namespace, lambda: real("/tmp", os.O_RDONLY))
    assert os.path.samestat(os.fstat(fd), os.stat(f"/proc/{process}/root/tmp"))
    os.close(fd)
    os.close(namespace)


def test_missing_system_call_is_explained() -> None:
    """The error of a missing system call names the kernel's version or the reason of the caller."""
    with pytest.raises(OSError, match="does not have the system call") as raised:
        libc.syscall(99999, path="/x")
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSYS, "/x")
    with pytest.raises(OSError, match="newer"):
        libc.syscall(99999, path="/x", reasons={errno.ENOSYS: "Linux 9 or newer is needed"})


def test_initial_user_namespace() -> None:
    """A new user namespace is not the initial one; the test's own is, except in a container."""
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


def test_openat2_resolves_paths_inside_the_root(tmp_path: Path) -> None:
    """Symbolic links and `..` resolve inside the root; magic links of /proc are refused."""
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


def test_mknod_sets_mode_and_owner(tmp_path: Path) -> None:
    """The umask does not change a node's mode; an existing file is an error."""
    directory = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    old = os.umask(0o077)
    try:
        mknod.mknod(directory, "gpu", "c", 195, 3, 0o666, 12, 34)
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(old)
    status = os.stat(tmp_path / "gpu")
    assert stat.S_ISCHR(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o666
    assert (status.st_uid, status.st_gid) == (12, 34)
    assert status.st_rdev == os.makedev(195, 3)
    with pytest.raises(FileExistsError) as raised:
        mknod.mknod(directory, "gpu", "c", 195, 3, 0o666, 0, 0)
    assert raised.value.filename == "gpu"
    os.close(directory)


def test_mknod_in_a_user_namespace_is_refused(tmp_path: Path) -> None:
    """The error states that device nodes cannot be made in a user namespace."""
    tmp_path.chmod(0o777)
    script = (
        "import os, sys; from gpuhook.kernel import mknod;"
        "fd = os.open(sys.argv[1], os.O_PATH);"
        "mknod.mknod(fd, 'gpu', 'c', 195, 3, 0o666, 0, 0)"
    )
    words = ["unshare", "--user", "--map-root-user", "python3", "-c", script, str(tmp_path)]
    done = run_command(words)
    assert "PermissionError: [Errno 1] not permitted to create device nodes here" in done.stderr
    assert os.listdir(tmp_path) == []
