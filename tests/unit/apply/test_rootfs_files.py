# SPDX-License-Identifier: Apache-2.0
"""Links and the loader's files in root file systems with glibc, musl, both and none."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpuhook.apply.rootfs.provision import Provision
from gpuhook.apply.rootfs.root_directory import Root
from gpuhook.apply.rootfs.rootfs_files import provide, require_writable
from gpuhook.errors import GpuhookError
from gpuhook.loader import ld_cache, ld_cache_entries, loader_paths
from gpuhook.loader.loader_paths import CACHE, FRONT

DIRECTORY = "/usr/lib/x86_64-linux-gnu"
LIBRARIES = [
    (f"{DIRECTORY}/libcuda.so.550.1", "libcuda.so.1"),
    (f"{DIRECTORY}/libnvidia-ml.so.550.1", "libnvidia-ml.so.1"),
    (f"{DIRECTORY}/libnvidia-tls.so.550.1", "libnvidia-tls.so.550.1"),
]
LINKS = [("libcuda.so.1", f"{DIRECTORY}/libcuda.so")]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a root file system with /etc and /lib."""
    for name in ("root/etc", "root/lib"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path / "root"


def provided(place: Path, libraries: list[tuple[str, str]] = LIBRARIES) -> list[OSError]:
    with Root(str(place)) as root:
        return provide(root, Provision(libraries, LINKS, []))


def listed(place: Path) -> dict[bytes, bytes]:
    """Return the path of each name in the loader cache; the first entry of a name applies."""
    found: dict[bytes, bytes] = {}
    for entry in ld_cache_entries.parse((place / "etc/ld.so.cache").read_bytes()):
        found.setdefault(entry.soname, entry.path)
    return found


def tree(place: Path) -> dict[str, str]:
    """Return every file of the root with its content or link target."""
    found = {}
    for path in sorted(place.rglob("*")):
        if path.is_symlink():
            found[str(path)] = "-> " + os.readlink(path)
        elif path.is_file():
            found[str(path)] = path.read_bytes().hex()
    return found


def test_glibc_root_gets_links_and_a_drop_in(place: Path) -> None:
    """The cache has the links of the libraries; a later ldconfig reads the drop-in."""
    (place / "lib/ld-linux-x86-64.so.2").write_text("")
    (place / "etc/ld.so.conf").write_text("/opt/lib")
    assert provided(place) == []
    assert os.readlink(f"{place}{DIRECTORY}/libcuda.so.1") == "libcuda.so.550.1"
    assert os.readlink(f"{place}{DIRECTORY}/libcuda.so") == "libcuda.so.1"
    assert not os.path.lexists(f"{place}{DIRECTORY}/libnvidia-tls.so.550.1")
    assert listed(place)[b"libcuda.so.1"] == f"{DIRECTORY}/libcuda.so.1".encode()
    tls = f"{DIRECTORY}/libnvidia-tls.so.550.1"
    assert listed(place)[b"libnvidia-tls.so.550.1"] == tls.encode()
    assert DIRECTORY in (place / loader_paths.LAST[1:]).read_text().split("\n")
    text = (place / "etc/ld.so.conf").read_text().split("\n")
    assert text == [f"include {loader_paths.FIRST}", "/opt/lib", f"include {loader_paths.LAST}", ""]
    assert list(place.glob("etc/ld-musl-*")) == []


def test_second_run_changes_nothing(place: Path) -> None:
    """A second run changes no byte and adds no file."""
    (place / "lib/ld-musl-x86_64.so.1").write_text("")
    (place / "lib/ld-linux-x86-64.so.2").write_text("")
    provided(place)
    first = tree(place)
    provided(place)
    assert tree(place) == first


def test_root_without_loader_files_gets_them(place: Path) -> None:
    """A distroless root without ld.so.conf and cache gets both."""
    os.rmdir(place / "lib")
    os.rmdir(place / "etc")
    assert provided(place) == []
    assert set(listed(place)) == {b"libcuda.so", *(soname.encode() for _, soname in LIBRARIES)}
    assert (place / "etc/ld.so.conf").read_text() == "include /etc/ld.so.conf.d/*.conf\n"


def test_musl_root_gets_a_path_file(place: Path) -> None:
    """A root with musl alone gets its path file, and no cache."""
    (place / "lib/ld-musl-x86_64.so.1").write_text("")
    assert provided(place) == []
    lines = (place / "etc/ld-musl-x86_64.path").read_text().splitlines()
    assert lines == ["/lib", "/usr/local/lib", "/usr/lib", DIRECTORY]
    assert not (place / "etc/ld.so.cache").exists()
    assert not (place / "etc/ld.so.conf").exists()


def test_root_with_both_loaders_gets_both(place: Path) -> None:
    """A root with both loaders gets the files of both."""
    (place / "lib/ld-musl-x86_64.so.1").write_text("")
    (place / "lib64").mkdir()
    (place / "lib64/ld-linux-x86-64.so.2").write_text("")
    assert provided(place) == []
    assert (place / "etc/ld-musl-x86_64.path").exists()
    assert b"libcuda.so.1" in listed(place)


def test_many_musl_loaders_are_bounded(place: Path) -> None:
    """An image that names a thousand loaders gets a few files, not a thousand."""
    for number in range(1000):
        (place / f"lib/ld-musl-a{number}.so.1").write_text("")
    assert provided(place) == []
    assert 0 < len(list(place.glob("etc/ld-musl-*"))) < 10


@pytest.mark.parametrize("content", [b"", b"corrupt", b"glibc-ld.so.cache1.1" + b"\xff" * 40])
def test_corrupt_cache_is_replaced(content: bytes, place: Path) -> None:
    """A cache that the loader would ignore is replaced by one with gpuhook's entries alone."""
    (place / "etc/ld.so.cache").write_bytes(content)
    assert provided(place) == []
    assert b"libcuda.so.1" in listed(place)


def test_pipe_in_place_of_the_cache_is_replaced(place: Path) -> None:
    """No process waits for the pipe."""
    os.mkfifo(place / "etc/ld.so.cache")
    assert provided(place) == []
    assert b"libcuda.so.1" in listed(place)


def test_overlapping_cache_sections_are_bounded(place: Path) -> None:
    """A cache whose extension names the same megabytes many times does not grow."""
    text = ld_cache.merged(None, [(b"libx.so.1", b"/lib/libx.so.1")], flags=0x0303)
    extension = len(text) + -len(text) % 4
    body = bytearray(text.ljust(extension, b"\0"))
    body[32:36] = extension.to_bytes(4, "little")
    count, size = 60, 1 << 20
    head = (0xEAA42174).to_bytes(4, "little") + count.to_bytes(4, "little")
    section = b"".join(n.to_bytes(4, "little") for n in (9, 0, 0, size))
    huge = bytes(body) + head + section * count
    (place / "etc/ld.so.cache").write_bytes(huge.ljust(size, b"\0"))
    assert provided(place) == []
    assert (place / "etc/ld.so.cache").stat().st_size < size
    assert b"libcuda.so.1" in listed(place)


def test_libraries_of_an_older_driver_are_removed(place: Path) -> None:
    """Entries that the last create added for another driver are removed from the cache."""
    old = [(path.replace("550", "470"), name.replace("550", "470")) for path, name in LIBRARIES]
    provided(place, old)
    assert b"libnvidia-tls.so.470.1" in listed(place)
    provided(place)
    assert b"libnvidia-tls.so.470.1" not in listed(place)
    assert b"libnvidia-tls.so.550.1" in listed(place)
    assert os.readlink(f"{place}{DIRECTORY}/libcuda.so.1") == "libcuda.so.550.1"


def test_preferred_libraries_come_first(place: Path) -> None:
    """The image's compatibility library is found before the host's of the same name."""
    compat = "/usr/local/cuda/compat/libcuda.so.1"
    with Root(str(place)) as root:
        provide(root, Provision(LIBRARIES, LINKS, [("libcuda.so.1", compat)]))
    assert listed(place)[b"libcuda.so.1"] == compat.encode()
    assert "/usr/local/cuda/compat" in (place / loader_paths.FIRST[1:]).read_text().split("\n")
    assert DIRECTORY in (place / loader_paths.LAST[1:]).read_text().split("\n")


def test_links_alone_change_no_loader_file(place: Path) -> None:
    assert provided(place, []) == []
    assert os.readlink(f"{place}{DIRECTORY}/libcuda.so") == "libcuda.so.1"
    assert list((place / "etc").iterdir()) == []


def test_paths_are_all_written_files(place: Path) -> None:
    """`paths` names every file that a glibc root gets: mounts over them are found by it."""
    provision = Provision(LIBRARIES, LINKS, [])
    image = ld_cache.merged(None, [(b"libcuda.so.1", b"/opt/libcuda.so.1")], flags=0x0303)
    (place / "etc/ld.so.cache").write_bytes(image)
    with Root(str(place)) as root:
        provide(root, provision)
    links = {FRONT + "/libcuda.so.1": FRONT.rpartition("/")[0]}
    written = [path[len(str(place)) :] for path in tree(place)]
    assert {links.get(path, path) for path in written} == set(provision.paths())
    assert CACHE in provision.paths()


def test_directories_in_the_way_are_reported(place: Path) -> None:
    """A directory of the image in place of a link or a file is kept and named."""
    (place / DIRECTORY[1:] / "libcuda.so.1").mkdir(parents=True)
    (place / "etc/ld.so.cache/x").mkdir(parents=True)
    failures = provided(place)
    assert [type(failure) for failure in failures] == [IsADirectoryError] * 2
    assert failures[0].filename == f"{DIRECTORY}/libcuda.so.1"
    assert os.path.islink(f"{place}{DIRECTORY}/libnvidia-ml.so.1")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")
def test_read_only_root_is_refused(place: Path) -> None:
    """A root that is mounted read-only is refused first; without that check, each part fails."""
    subprocess.run(["mount", "--bind", place, place], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)
    try:
        with Root(str(place)) as root, pytest.raises(GpuhookError) as caught:
            require_writable(root)
        assert caught.value.code == "GH1305"
        assert str(place) in caught.value.message
        failures = provided(place)
        assert {failure.strerror for failure in failures} == {"Read-only file system"}
    finally:
        subprocess.run(["umount", place], check=True)
    with Root(str(place)) as root:
        require_writable(root)


def test_directories_searched_only_by_the_hosts_ldconfig(place: Path) -> None:
    """The cache of the host's ldconfig does not show what the image's ldconfig searches."""
    made = Provision([("/usr/lib64/libcuda.so.550.1", "libcuda.so.1")], [], [])
    found = [(b"libcuda.so.1", b"/usr/lib64/libcuda.so.1")]
    made.index = lambda _first, _last: ld_cache.merged(None, found, flags=0x0303)
    for _ in range(2):
        with Root(str(place)) as root:
            provide(root, made)
        assert "/usr/lib64" in (place / loader_paths.LAST[1:]).read_text().split("\n")
