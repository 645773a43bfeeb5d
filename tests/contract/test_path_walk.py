# SPDX-License-Identifier: Apache-2.0
"""Paths inside a root on kernels without openat2, while a process swaps directories."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuhook.kernel import openat2, openat2_fallback
from tests.contract.build_cache import CHECKOUT
from tests.simulated.older_kernel import OPENAT2

EXPECTED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EAGAIN)
PROGRAM = """
import os, sys
from gpuhook.kernel import openat2
root = os.open(sys.argv[1], os.O_PATH)
for path in sys.argv[2:]:
    try:
        fd = openat2.openat2(root, path, os.O_RDONLY)
        print(os.read(fd, 100).decode())
    except OSError as error:
        print(error.errno, error.strerror, error.filename)
"""


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EPERM])
def test_paths_without_openat2(error: int, tmp_path: Path) -> None:
    """The results are as with openat2, whether the kernel or a seccomp filter refuses the call."""
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/passwd").write_text("inside")
    (root / "link").symlink_to("/etc/passwd")
    (root / "up").symlink_to("../../../../../../etc/passwd")
    (root / "round").symlink_to("round")
    paths = ["link", "up", "/etc/passwd", "../../etc/passwd", "round", "none"]
    command = [sys.executable, "-m", "tests.simulated.older_kernel", str(OPENAT2), str(error)]
    done = subprocess.run(
        [*command, sys.executable, "-c", PROGRAM, str(root), *paths],
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
        check=True,
    )
    assert done.stdout.splitlines() == [
        *["inside"] * 4,
        f"{errno.ELOOP} symbolic links form a loop, or lead through /proc round",
        f"{errno.ENOENT} No such file or directory none",
    ]


def test_older_kernel_filter_refuses_openat2(tmp_path: Path) -> None:
    """The filter of the test above really refuses the system call."""
    words = [sys.executable, "-m", "tests.simulated.older_kernel", str(OPENAT2), str(errno.ENOSYS)]
    code = "import ctypes; l = ctypes.CDLL(None, use_errno=True); l.syscall(437, 0, 0, 0, 0);"
    code += "print(ctypes.get_errno())"
    done = subprocess.run(
        [*words, sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
        check=True,
    )
    assert int(done.stdout) == errno.ENOSYS


@pytest.mark.parametrize("path", ["proc/self/status", "proc/mounts", "proc/net/dev", "proc/self"])
def test_symbolic_links_of_procfs_are_followed(path: str) -> None:
    """Links of /proc that are paths are followed, as openat2 follows them."""
    root = os.open("/", os.O_PATH)
    targets = []
    for call in (openat2.openat2, openat2_fallback.opened):
        fd = call(root, path, os.O_PATH)
        targets.append(os.readlink(f"/proc/self/fd/{fd}"))
        os.close(fd)
    os.close(root)
    assert targets[0] == targets[1]


@pytest.mark.parametrize(
    "path", ["exe", "cwd", "root", "root/etc/passwd", "ns/mnt", "fd/0", "task/{}/cwd"]
)
def test_magic_links_of_procfs_are_refused(path: str) -> None:
    """A link of /proc to an object is ELOOP, from any start directory."""
    inside = path.format(os.getpid())
    starts = [("/", f"proc/self/{inside}"), ("/proc", f"self/{inside}"), ("/proc/self", inside)]
    for start, name in starts:
        root = os.open(start, os.O_PATH)
        for call in (openat2.openat2, openat2_fallback.opened):
            with pytest.raises(OSError) as raised:  # noqa: PT011 # errno is compared below
                call(root, name, os.O_PATH)
            assert raised.value.errno == errno.ELOOP, (call, start, name)
        os.close(root)


SWAP = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
one, two = (os.fsencode(word) for word in sys.argv[1:3])
print("ready", flush=True)
while os.getppid() != 1:
    libc.renameat2(-100, one, -100, two, 2)
"""


def test_swapped_directories_do_not_lead_outside(tmp_path: Path) -> None:
    """A process swaps a directory and a link out of the root: no file outside is opened."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("outside")
    root = tmp_path / "root"
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/file").write_text("inside")
    (root / "link").symlink_to(outside)
    (root / "up").symlink_to("../" * 20 + str(outside)[1:])
    fd = os.open(root, os.O_PATH)
    swapping = subprocess.Popen(
        [sys.executable, "-c", SWAP, str(root / "a/b"), str(root / "link")],
        stdout=subprocess.PIPE,
    )
    try:
        assert swapping.stdout is not None
        swapping.stdout.readline()
        counts = {"inside": 0, "error": 0}
        end = time.monotonic() + 60
        paths = ("a/b/file", "a/b/../b/file", "link/file", "up/file", "a/b/../../../outside/file")
        while min(counts.values()) < 3000 and time.monotonic() < end:
            for path in paths:
                for flags in (os.O_RDONLY, os.O_PATH):
                    counts[read_inside(fd, path, flags)] += 1
        assert min(counts.values()) >= 3000, counts
    finally:
        swapping.kill()
        swapping.communicate()
        os.close(fd)
    assert (outside / "file").read_text() == "outside"


def read_inside(root: int, path: str, flags: int) -> str:
    """Return the text of the file; "error" if the path led nowhere at that moment."""
    try:
        fd = openat2_fallback.opened(root, path, flags)
    except OSError as error:
        return "error" if error.errno in EXPECTED else str(error)
    place = f"/proc/self/fd/{fd}"
    try:
        return Path(place).read_text(encoding="utf-8")
    finally:
        os.close(fd)


def test_long_and_deep_paths_are_errors(tmp_path: Path) -> None:
    """A path with too many characters or components is refused before many files are open."""
    root = os.open(tmp_path, os.O_PATH)
    with pytest.raises(OSError, match="too long"):
        openat2_fallback.opened(root, "a/" * 2048, os.O_PATH)
    here = os.dup(root)
    for _ in range(300):
        os.mkdir("a", dir_fd=here)
        deeper = os.open("a", os.O_PATH, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)
    with pytest.raises(OSError, match="too long"):
        openat2_fallback.opened(root, "a/" * 300, os.O_PATH)
    os.close(openat2_fallback.opened(root, "a/" * 200, os.O_PATH))
    os.close(root)
    subprocess.run(["rm", "-rf", str(tmp_path / "a")], check=True)
