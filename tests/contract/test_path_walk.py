# SPDX-License-Identifier: Apache-2.0
"""Paths inside a root on kernels without openat2, while a process swaps parts of the path."""

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
def test_without_the_call(error: int, tmp_path: Path) -> None:
    """A kernel of before 5.6, and Docker's filter of then, which says EPERM: all works as ever."""
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/passwd").write_text("inside")
    (root / "link").symlink_to("/etc/passwd")
    (root / "up").symlink_to("../../../../../../etc/passwd")
    (root / "round").symlink_to("round")
    asked = ["link", "up", "/etc/passwd", "../../etc/passwd", "round", "none"]
    command = [sys.executable, "-m", "tests.simulated.older_kernel", str(OPENAT2), str(error)]
    done = subprocess.run(
        [*command, sys.executable, "-c", PROGRAM, str(root), *asked],
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
        check=True,
    )
    assert done.stdout.splitlines() == [
        *["inside"] * 4,
        f"{errno.ELOOP} symbolic links form a circle, or lead through /proc round",
        f"{errno.ENOENT} No such file or directory none",
    ]


def test_the_filter_refuses(tmp_path: Path) -> None:
    """The test above is one of a kernel without openat2: a call of it is really refused."""
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
def test_links_of_procfs(path: str) -> None:
    """Those that are paths are followed, as openat2 follows them."""
    root = os.open("/", os.O_PATH)
    found = []
    for call in (openat2.openat2, openat2_fallback.opened):
        fd = call(root, path, os.O_PATH)
        found.append(os.readlink(f"/proc/self/fd/{fd}"))
        os.close(fd)
    os.close(root)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "path", ["exe", "cwd", "root", "root/etc/passwd", "ns/mnt", "fd/0", "task/{}/cwd"]
)
def test_magic_links(path: str) -> None:
    """A link that is an object and no path leads nowhere, from whatever directory one starts."""
    inside = path.format(os.getpid())
    starts = [("/", f"proc/self/{inside}"), ("/proc", f"self/{inside}"), ("/proc/self", inside)]
    for start, name in starts:
        root = os.open(start, os.O_PATH)
        for call in (openat2.openat2, openat2_fallback.opened):
            with pytest.raises(OSError) as raised:  # noqa: PT011 # the number is looked at
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


def test_swapped_on_the_way(tmp_path: Path) -> None:
    """A directory that is a link out of the root at every other look: never is anything outside
    opened."""
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
        told = {"inside": 0, "error": 0}
        end = time.monotonic() + 60
        asked = ("a/b/file", "a/b/../b/file", "link/file", "up/file", "a/b/../../../outside/file")
        while min(told.values()) < 3000 and time.monotonic() < end:
            for path in asked:
                for flags in (os.O_RDONLY, os.O_PATH):
                    told[look(fd, path, flags)] += 1
        assert min(told.values()) >= 3000, told
    finally:
        swapping.kill()
        swapping.communicate()
        os.close(fd)
    assert (outside / "file").read_text() == "outside"


def look(root: int, path: str, flags: int) -> str:
    """Return "inside" for the root's own file, "error" where there was none at that moment."""
    try:
        fd = openat2_fallback.opened(root, path, flags)
    except OSError as error:
        return "error" if error.errno in EXPECTED else str(error)
    place = f"/proc/self/fd/{fd}"
    try:
        return Path(place).read_text(encoding="utf-8")
    finally:
        os.close(fd)


def test_deep_and_long(tmp_path: Path) -> None:
    """A path that is too long, and one that is too deep, are errors and not a thousand files."""
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
