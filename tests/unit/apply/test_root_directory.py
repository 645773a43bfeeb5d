# SPDX-License-Identifier: Apache-2.0
"""Access to a root file system: no file outside it is read or written, whatever it contains."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuhook.apply.rootfs.root_directory import Root
from gpuhook.apply.rootfs.safe_walk import CrossingError
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a directory with a root file system `root` and a host directory `host`."""
    (tmp_path / "root/usr/lib").mkdir(parents=True)
    (tmp_path / "host").mkdir()
    (tmp_path / "host/secret").write_text("secret")
    return tmp_path


def test_links_and_files_are_created_once(place: Path) -> None:
    """They are created with their parent directories; a second time changes nothing."""
    with Root(str(place / "root")) as root:
        assert root.link("libcuda.so.1", "/usr/lib/deep/er/libcuda.so")
        assert not root.link("libcuda.so.1", "/usr/lib/deep/er/libcuda.so")
        assert root.write("/etc/ld.so.conf", b"x")
        assert not root.write("/etc/ld.so.conf", b"x")
        assert root.read("/etc/ld.so.conf", 10) == b"x"
    assert os.readlink(place / "root/usr/lib/deep/er/libcuda.so") == "libcuda.so.1"
    assert sorted(os.listdir(place / "root/etc")) == ["ld.so.conf"]


@pytest.mark.parametrize(
    "target", ["HOST", "../../host", "../../../../../../../HOST", "/../../HOST"]
)
def test_directory_links_are_resolved_inside_the_root(place: Path, target: str) -> None:
    """A directory that is a link to a host path is resolved inside the root."""
    host = str(place / "host")
    os.symlink(target.replace("HOST", host), place / "root/usr/lib/x")
    with Root(str(place / "root")) as root:
        root.link("a", "/usr/lib/x/link")
        root.write("/usr/lib/x/file", b"data")
        assert root.read("/usr/lib/x/secret", 10) is None
    assert os.listdir(place / "host") == ["secret"]


def test_links_to_host_files_are_replaced(place: Path) -> None:
    """A file that is a link to a host path is read inside the root, and replaced, not followed."""
    os.mkdir(place / "root/etc")
    os.symlink(place / "host/secret", place / "root/etc/ld.so.cache")
    with Root(str(place / "root")) as root:
        assert root.read("/etc/ld.so.cache", 100) is None
        root.write("/etc/ld.so.cache", b"ours")
    assert (place / "host/secret").read_text() == "secret"
    assert not os.path.islink(place / "root/etc/ld.so.cache")


def test_link_replaces_a_file_and_no_directory(place: Path) -> None:
    """A file of the image is replaced by the link; a directory is not."""
    (place / "root/usr/lib/a").write_text("image")
    os.mkdir(place / "root/usr/lib/b")
    with Root(str(place / "root")) as root:
        assert root.link("t", "/usr/lib/a")
        with pytest.raises(IsADirectoryError):
            root.link("t", "/usr/lib/b")
    assert sorted(os.listdir(place / "root/usr/lib")) == ["a", "b"]


def test_link_loops_are_errors(place: Path) -> None:
    """A loop of links is an error, not an endless loop."""
    os.symlink("/usr/lib/y", place / "root/usr/lib/x")
    os.symlink("/usr/lib/x", place / "root/usr/lib/y")
    with Root(str(place / "root")) as root, pytest.raises(OSError, match="symbolic links"):
        root.write("/usr/lib/x/file", b"")


def test_special_files_are_not_opened(place: Path) -> None:
    """A pipe or an endless file in place of the cache is refused, without a wait."""
    os.mkdir(place / "root/etc")
    os.mkfifo(place / "root/etc/ld.so.cache")
    (place / "root/etc/big").write_bytes(b"x" * 100)
    with Root(str(place / "root")) as root:
        for path in ("/etc/ld.so.cache", "/etc/big"):
            with pytest.raises(GpuhookError) as caught:
                root.read(path, 10)
            assert caught.value.code == "GH1310"
        root.write("/etc/ld.so.cache", b"ours")
    assert (place / "root/etc/ld.so.cache").read_bytes() == b"ours"


def test_host_root_is_refused() -> None:
    """The host's own root is never changed."""
    with pytest.raises(GpuhookError) as caught:
        Root("/")
    assert caught.value.code == "GH1304"


def test_mount_points_are_not_crossed(place: Path) -> None:
    """Files below a mount point inside the root are not changed."""
    inside = place / "root/mnt"
    inside.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "none", inside], check=False).returncode:
        pytest.skip("needs root to mount")
    try:
        with Root(str(place / "root")) as root, pytest.raises(CrossingError):
            root.write("/mnt/file", b"x")
    finally:
        subprocess.run(["umount", inside], check=True)


def test_binds_of_the_same_file_system_are_not_crossed(place: Path) -> None:
    """A host directory bound into the root has the same device number, and is not changed."""
    inside = place / "root/mnt"
    inside.mkdir()
    if subprocess.run(["mount", "--bind", place / "host", inside], check=False).returncode:
        pytest.skip("needs root to mount")
    try:
        with Root(str(place / "root")) as root:
            with pytest.raises(CrossingError):
                root.write("/mnt/file", b"x")
            for path in ("/mnt/link", "/mnt/new/link"):
                with pytest.raises(CrossingError):
                    root.link("t", path)
    finally:
        subprocess.run(["umount", inside], check=True)
    assert os.listdir(place / "host") == ["secret"]


def test_real_path(place: Path) -> None:
    """The real path is resolved as far as it exists."""
    os.symlink("usr/lib", place / "root/lib")
    os.symlink("/lib/../../nowhere/x", place / "root/l")
    with Root(str(place / "root")) as root:
        assert root.real("/lib/a/b") == "/usr/lib/a/b"
        assert root.real("/lib/") == "/usr/lib"
        assert root.real("/../..") == "/"
        assert root.real("/l/y") == "/nowhere/x/y"


def test_stale_temporary_files_are_removed(place: Path) -> None:
    """A change removes temporary files of a killed writer, not those of a running one."""
    (place / "root/usr/lib/.gpuhook-999999999-x").write_text("")
    (place / f"root/usr/lib/.gpuhook-{os.getppid()}-x").write_text("")
    (place / f"root/usr/lib/.gpuhook-{os.getpid()}-f").write_text("of one who had our pid")
    with Root(str(place / "root")) as root:
        root.write("/usr/lib/f", b"")
    assert sorted(os.listdir(place / "root/usr/lib")) == [f".gpuhook-{os.getppid()}-x", "f"]


REUSED_ID = """
import os, sys
from gpuhook.apply.rootfs.safe_walk import CrossingError, Walk, is_in, mount_id
from gpuhook.kernel import mounts

os.chdir(sys.argv[1])
mounts.mount("tmpfs", "root/usr", "tmpfs", 0)
fd = os.open("root/usr", os.O_PATH)
own = {mount_id(fd): os.fstat(fd).st_dev}
assert is_in(fd, own)
os.close(fd)
for _ in range(1000):  # other processes of the machine mount, too
    mounts.umount2("root/usr", 0)
    mounts.mount("host", "root/usr", "", mounts.MS_BIND)
    fd = os.open("root/usr", os.O_PATH)
    if mount_id(fd) in own:
        break
    os.close(fd)
else:
    sys.exit("no id was used again")
try:
    Walk(os.open("root", os.O_PATH), own, create=True).to("/usr/made")
except CrossingError:
    print(os.listdir("host"))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="it mounts")
def test_volume_with_the_id_of_a_removed_mount_is_foreign(place: Path) -> None:
    """The kernel gives the id of a tmpfs that is gone to the next mount, such as a volume."""
    command = ["unshare", "--mount", sys.executable, "-c", REUSED_ID, str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "['secret']\n", done


def test_huge_directory_is_not_read_to_its_end(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that adds names while they are read cannot use up the memory of the host."""
    monkeypatch.setattr(files, "MAX_NAMES", 10)
    names = [f"lib{number:02}.so" for number in range(11)]
    with Root(str(place / "root")) as root:
        for name in names[:10]:
            (place / "root/usr/lib" / name).touch()
        assert root.names("/usr/lib") == root.directory_names("/usr/lib") == names[:10]
        (place / "root/usr/lib" / names[10]).touch()
        for read in (root.names, root.directory_names):
            with pytest.raises(OSError, match="has more than 10 entries") as raised:
                read("/usr/lib")
            assert raised.value.errno == errno.EFBIG
