# SPDX-License-Identifier: Apache-2.0
"""Files of the dynamic loader, which an image may have written."""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError
from gpuhook.loader import elf, image_libraries, ld_cache, ld_cache_entries, ld_so_conf, musl_path
from tests.fuzz.fuzz_target import fuzz_target, scratch_file
from tests.simulated import elf_maker, elf_maker_32

ADDED = [
    (b"libcuda.so.1", b"/usr/lib/x86_64-linux-gnu/libcuda.so.1"),
    (b"libc.so.6", b"/opt/libc.so.6"),
]
FLAGS = 0x0303
DIRECTORIES = [b"/usr/lib/x86_64-linux-gnu", b"/opt/gpu"]


def caches() -> list[bytes]:
    names = [(b"libc.so.6", b"/lib/libc.so.6"), (b"libz.so.1.2", b"/usr/lib/libz.so.1.2")]
    plain = ld_cache.merged(None, names, flags=FLAGS)
    old = b"ld.so-1.7.0\0" + (1).to_bytes(4, "little") + bytes(12) + b"libc.so.6\0/lib/libc.so.6\0"
    return [
        plain,
        ld_cache.merged(plain, ADDED, flags=0x0A03),
        old,
        old + bytes(-len(old) % 8) + plain,
    ]


@fuzz_target(caches, everyday=200)
def ld_cache_merged(data: bytes) -> None:
    """A merged cache can be read, has the added entries, and a second merge changes nothing."""
    merged = ld_cache.merged(data, ADDED, flags=FLAGS)
    before, after = entries(data), entries(merged)
    assert set(after).issuperset([*before, *ADDED])
    assert ld_cache.merged(merged, ADDED, flags=FLAGS, was_merged=True) == merged


def entries(data: bytes) -> list[tuple[bytes, bytes]]:
    return [(one.soname, one.path) for one in ld_cache_entries.parse(data)]


@fuzz_target(caches, everyday=200)
def ld_cache_removed(data: bytes) -> None:
    """What is added can be removed, and the entries of the image remain."""
    before = entries(data)
    merged = ld_cache.merged(data, ADDED, flags=FLAGS)
    after = entries(ld_cache.merged(merged, [], ADDED, flags=FLAGS))
    left = {one for one in before if one not in ADDED}
    assert set(after) == left
    held = ld_cache.Cache(data, FLAGS)
    held.paths([b"libc.so.6"])
    held.has_directory(b"/lib")


def libraries() -> list[bytes]:
    note = elf_maker.Note(".note.cuda.fwd_compatibility", "NVIDIA", b'{"CUDA Version": "12.4"}')
    return [
        elf_maker.shared_object("libcuda.so.1"),
        elf_maker.shared_object("libcuda.so.1", note=note),
        elf_maker_32.shared_object("libcuda.so.1"),
    ]


@fuzz_target(libraries, everyday=200)
def elf_file(data: bytes) -> None:
    path = scratch_file(data)
    found = elf.read(path)
    assert found is None or found.soname is None or "\0" not in found.soname
    elf.is_static(path)
    for owner in (None, b"NVIDIA"):
        note = elf.note(path, b".note.cuda.fwd_compatibility", owner)
        assert note is None or len(note) <= 64 << 10


class OneFile:
    """A root file system with one library."""

    def __init__(self, path: str) -> None:
        self._path = path

    def is_link(self, path: str) -> bool:
        return path.endswith(".so.1")

    def open_file(self, path: str) -> int | None:
        return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)


@fuzz_target(libraries)
def image_library(data: bytes) -> None:
    """The library of an image keeps its directory, whatever its name in the file."""
    root, names = OneFile(scratch_file(data)), ["libcuda.so.1", "libx.so.2", "README"]
    for name, path in image_libraries.entries(root, "/opt", names):
        assert name in names
        assert path == f"/opt/{name}"


def drop_ins() -> list[bytes]:
    return [
        ld_so_conf.first(DIRECTORIES, [b"/usr/lib64"], ADDED, [(b"libx.so", b"/opt/libx.so")]),
        b"include /etc/ld.so.conf.d/*.conf\n/usr/local/lib\n# comment\nhwcap 0 nosegneg\n",
        b"include ld.so.conf.d/00-gpuhook.conf /etc/ld.so.conf.d/z*.conf",
        b"/lib\0/x\r\n\tinclude\t*\n",
    ]


@fuzz_target(drop_ins, everyday=200)
def ld_so_conf_text(data: bytes) -> None:
    """The record has only plausible entries; gpuhook's includes are added once."""
    pairs = ld_so_conf.recorded(data, of_image=True)
    assert len(pairs) <= ld_so_conf.MAX_LIBRARIES
    assert set(ld_so_conf.recorded(data)) <= set(pairs)
    assert all(path.startswith(b"/") and b"\n" not in name + path for name, path in pairs)
    assert ld_so_conf.recorded(ld_so_conf.first([], [], pairs)) == list(dict.fromkeys(pairs))
    ld_so_conf.has_last(data)
    ld_so_conf.names_last(data, b"/usr/lib64")
    for with_last in (False, True):
        once = ld_so_conf.main(data, with_last=with_last)
        assert ld_so_conf.main(once, with_last=with_last) == once
        assert not data.strip() or data in once


@fuzz_target([b"/lib\n/usr/lib\n", b"/lib:/usr/local/lib", b"/lib\0/opt/gpu\n", b""], everyday=200)
def musl_path_file(data: bytes) -> None:
    """Directories are added once, and what the file has remains."""
    once = musl_path.merged(data, DIRECTORIES)
    assert musl_path.merged(once, DIRECTORIES) == once
    read, nul, unread = data.partition(b"\0")
    assert once.startswith(read)
    assert once.endswith(nul + unread)
    named = once.partition(b"\0")[0].replace(b":", b"\n").split(b"\n")
    assert set(named).issuperset(DIRECTORIES)


@fuzz_target([b"ld-musl-x86_64.so.1", b"libcuda.so.1 libc.so.6", b"ld-linux-x86-64.so.2"])
def musl_architectures(data: bytes) -> None:
    names = os.fsdecode(data).split()
    for one in musl_path.architectures(names):
        assert f"ld-musl-{one}.so.1" in names
        musl_path.path_file(one)
    try:
        ld_so_conf.last([os.fsencode(name) for name in names])
    except GpuhookError as error:
        assert error.code == "GH1604"  # noqa: PT017 # the only one
