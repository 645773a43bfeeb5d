# SPDX-License-Identifier: Apache-2.0
"""The loader's files of a second container of an image are those that a first one gets."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuhook import loader
from gpuhook.apply import rootfs
from gpuhook.apply.rootfs import loader_replay
from gpuhook.apply.rootfs.provision import Provision
from gpuhook.apply.rootfs.root_directory import Root
from gpuhook.apply.rootfs.rootfs_files import provide
from gpuhook.loader import ld_cache, loader_paths
from tests.depth import depth

DIRECTORY = "/usr/lib/x86_64-linux-gnu"
LIBRARIES = [
    (f"{DIRECTORY}/libcuda.so.550.1", "libcuda.so.1"),
    (f"{DIRECTORY}/vdpau/libvdpau_nvidia.so.550.1", "libvdpau_nvidia.so.1"),
]
IMAGE = [(b"libc.so.6", b"/lib/x86_64-linux-gnu/libc.so.6"), (b"libz.so.1", b"/opt/libz.so.1")]
MAKER = "gpuhook.apply.rootfs.loader_files"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state/loader"


def image(place: Path) -> Path:
    """Return a root file system with a loader cache and its configuration."""
    for name in ("etc/ld.so.conf.d", "lib/x86_64-linux-gnu", f"{DIRECTORY[1:]}/vdpau"):
        (place / name).mkdir(parents=True)
    flags = ld_cache.flags_for(os.uname().machine)
    (place / "etc/ld.so.cache").write_bytes(ld_cache.merged(None, IMAGE, flags=flags))
    (place / "etc/ld.so.conf").write_text("/opt\n")
    return place


def tree(place: Path) -> dict[str, bytes | str]:
    return {
        str(path.relative_to(place)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in place.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def provided(place: Path, provision: Provision | None = None, *, is_replayed: bool = True) -> bool:
    """Provide libraries, and return whether the module that makes the files was needed."""
    made = provision or Provision(LIBRARIES, [], [])
    sys.modules.pop(MAKER, None)
    vars(rootfs).pop("loader_files", None)
    with Root(str(place)) as root:
        assert provide(root, made, is_replayed=is_replayed) == []
    return MAKER in sys.modules


def test_a_second_container_gets_the_same_without_the_code(tmp_path: Path) -> None:
    first, second = image(tmp_path / "1"), image(tmp_path / "2")
    assert provided(first)
    assert not provided(second)
    assert tree(second) == tree(first)
    assert "etc/ld.so.conf.d/00-gpuhook.conf" in tree(second)


def test_a_container_that_starts_again_too(tmp_path: Path) -> None:
    first, second = image(tmp_path / "1"), image(tmp_path / "2")
    for place in (first, second):
        provided(place)
    before = tree(first)
    assert provided(first)
    assert not provided(second)
    assert tree(second) == tree(first) == before


def _cache(place: Path) -> None:
    flags = ld_cache.flags_for(os.uname().machine)
    cache = ld_cache.merged(None, [*IMAGE, (b"liba.so", b"/opt/liba.so")], flags=flags)
    (place / "etc/ld.so.cache").write_bytes(cache)


def _linked(path: Path) -> None:
    path.rename(path.with_name("other"))
    path.symlink_to("other")


def _merged(place: Path) -> None:
    shutil.rmtree(place / "lib")
    (place / "lib").symlink_to("usr/lib")


CHANGES: dict[str, Callable[[Path], object]] = {
    "another cache": _cache,
    "no cache": lambda place: (place / "etc/ld.so.cache").unlink(),
    "a broken cache": lambda place: (place / "etc/ld.so.cache").write_bytes(b"broken"),
    "a huge cache": lambda place: os.truncate(place / "etc/ld.so.cache", 32 << 20),
    "a link as cache": lambda place: _linked(place / "etc/ld.so.cache"),
    "another configuration": lambda place: (place / "etc/ld.so.conf").write_text("/opt2\n"),
    "a forged drop-in": lambda place: (place / loader_paths.FIRST[1:]).write_text(
        "# library libcuda.so.1 /opt/libcuda.so.1\n"
    ),
    "musl": lambda place: (place / "lib/ld-musl-x86_64.so.1").write_text(""),
    "a library in a directory of the driver": lambda place: shutil.copy(
        "/proc/self/exe", place / f"{DIRECTORY[1:]}/vdpau/libown.so.1"
    ),
    "a merged /lib": _merged,
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_image_gets_what_it_would_get_without_a_record(change: str, tmp_path: Path) -> None:
    provided(image(tmp_path / "recorded"))
    other, expected = image(tmp_path / "other"), image(tmp_path / "expected")
    for place in (other, expected):
        CHANGES[change](place)
    provided(expected, is_replayed=False)
    for _ in range(2):  # the second time, the record may be of this image
        again = tmp_path / "again"
        shutil.copytree(other, again, symlinks=True)
        provided(again)
        assert tree(again) == tree(expected)
        shutil.rmtree(again)


def test_other_libraries_are_another_record(tmp_path: Path) -> None:
    provided(image(tmp_path / "1"))
    other = [(f"{DIRECTORY}/libcuda.so.560.1", "libcuda.so.1")]
    assert provided(image(tmp_path / "2"), Provision(other, [], []))
    assert b"560.1" not in (tmp_path / "2/etc/ld.so.cache").read_bytes()  # the link has it
    assert provided(image(tmp_path / "3"), Provision(LIBRARIES, [], [("liba.so", "/a/liba.so")]))


def test_another_release_makes_the_files_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provided(image(tmp_path / "1"))
    monkeypatch.setattr(loader_replay, "__version__", "0.0")
    assert provided(image(tmp_path / "2"))


def test_another_build_of_the_release_makes_the_files_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provided(image(tmp_path / "1"))
    monkeypatch.setattr(loader, "__path__", [str(tmp_path)])
    assert provided(image(tmp_path / "2"))


@pytest.mark.parametrize(
    "content", [b"", b"\0", b"\0\0\0\0", b"i\x01\0\0\0", b")\x00", b"\0\0\0\0(\xff\xff\xff\x7f"]
)
def test_a_broken_record_is_made_again(content: bytes, tmp_path: Path, state: Path) -> None:
    expected = image(tmp_path / "1")
    provided(expected)
    (record,) = state.iterdir()
    record.write_bytes(content)
    assert provided(image(tmp_path / "2"))
    assert not provided(image(tmp_path / "3"))
    assert tree(tmp_path / "2") == tree(tmp_path / "3") == tree(expected)


@pytest.mark.skipif(os.geteuid() != 0, reason="a file of another user")
def test_a_record_of_another_user_is_ignored(tmp_path: Path, state: Path) -> None:
    provided(image(tmp_path / "1"))
    (record,) = state.iterdir()
    os.chown(record, 1000, 1000)
    assert provided(image(tmp_path / "2"))


def test_records_are_few(tmp_path: Path, state: Path) -> None:
    for number in range(depth(60, 300)):
        place = image(tmp_path / str(number))
        (place / "etc/ld.so.cache").write_bytes(
            ld_cache.merged(None, [(b"lib.so", b"/%d/lib.so" % number)], flags=0x0303)
        )
        provided(place)
    assert 1 < len(list(state.iterdir())) <= 32


def test_a_large_record_is_not_kept(tmp_path: Path, state: Path) -> None:
    place = image(tmp_path / "1")
    (place / "etc/ld.so.conf").write_text("#" * (300 << 10))
    provided(place)
    assert not state.exists()


def test_a_large_cache_is_not_copied_into_a_record(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = image(tmp_path / "1")
    entries = [(b"lib%d.so" % number, b"/opt/lib%d.so" % number) for number in range(12000)]
    flags = ld_cache.flags_for(os.uname().machine)
    (place / "etc/ld.so.cache").write_bytes(ld_cache.merged(None, entries, flags=flags))
    monkeypatch.setattr(loader_replay, "_store", None)
    assert provided(place)
    assert not state.exists()


def test_without_a_state_directory_the_files_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "file"))
    for number in range(2):
        assert provided(image(tmp_path / str(number)))
    assert tree(tmp_path / "0") == tree(tmp_path / "1")


def test_a_program_that_only_reads_keeps_no_record(tmp_path: Path, state: Path) -> None:
    provided(image(tmp_path / "1"), is_replayed=False)
    assert not state.exists()
