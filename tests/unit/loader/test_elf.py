# SPDX-License-Identifier: Apache-2.0
"""ELF files: real ones of gcc and the machine, truncated and hostile ones."""

import os
import random
import struct
import subprocess
from pathlib import Path

import pytest

from gpuhook.loader import elf

I386 = 3  # e_machine, from <elf.h>

FORWARD = b".note.cuda.fwd_compatibility"
OWNER = b"NVIDIA Corporation"
JSON = b'{"format": 1, "CUDA version": "13.0", "driver": [535, 550], "device": []}'


def _note_source(section: bytes, owner: bytes, descriptor: bytes) -> str:
    def bytes_of(raw: bytes) -> str:
        return ".byte " + ",".join(str(byte) for byte in raw)

    name = owner + b"\0"
    return f"""
    .section {section.decode()}, "a", @note
    .balign 4
    .long {len(name)}, {len(descriptor)}, 1
    {bytes_of(name)}
    .balign 4
    {bytes_of(descriptor)}
    .balign 4
    """


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("elf")
    (where / "note.s").write_text(_note_source(FORWARD, OWNER, JSON))
    made = where / "libcuda.so.580.1"
    command = ["gcc", "-shared", "-nostdlib", "-Wl,-soname,libcuda.so.1", "-o", str(made)]
    subprocess.run([*command, str(where / "note.s")], check=True)
    return made


def test_names_of_a_real_library() -> None:
    """The C compiler's own library is read as the linker wrote it."""
    path = subprocess.check_output(["gcc", "-print-file-name=libm.so.6"], text=True).strip()
    found = elf.read(os.path.realpath(path))
    assert found is not None
    assert (found.bits, found.soname) == (64, "libm.so.6")
    assert "libc.so.6" in found.needed


def test_soname_without_section_headers(library: Path, tmp_path: Path) -> None:
    """A file without section headers still has its SONAME and its note."""
    data = bytearray(library.read_bytes())
    data[40:48] = bytes(8)  # e_shoff
    data[58:64] = bytes(6)  # e_shentsize, e_shnum, e_shstrndx
    stripped = tmp_path / "stripped"
    stripped.write_bytes(data)
    found = elf.read(str(stripped))
    assert found is not None
    assert found.soname == "libcuda.so.1"
    assert elf.note(str(stripped), FORWARD) is None
    assert elf.note(str(stripped), FORWARD, OWNER) == JSON


def test_note_by_section(library: Path) -> None:
    """The note is found by its section's name and its owner."""
    assert elf.note(str(library), FORWARD) == JSON
    assert elf.note(str(library), FORWARD, b"GNU") != JSON
    assert elf.note(str(library), b".note.other") is None
    fd = os.open(library, os.O_RDONLY)
    try:
        assert elf.note(fd, FORWARD) == JSON
        os.fstat(fd)  # still open: the caller closes its own descriptor
    finally:
        os.close(fd)


def test_a_32_bit_file(tmp_path: Path) -> None:
    """A 32-bit shared object, written by hand, is read with 32-bit layouts."""
    strings = b"\0libold.so.1\0libc.so.6\0"
    dynamic = struct.pack("<6I", 5, 0x1000 + 200, 14, 1, 1, 13) + bytes(8)
    load = struct.pack("<8I", 1, 0, 0x1000, 0, 400, 400, 5, 4096)
    dyn = struct.pack("<8I", 2, 148, 0x1000 + 148, 0, len(dynamic), len(dynamic), 6, 4)
    head = b"\x7fELF\x01\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIIIIIHHHHHH", 3, I386, 1, 0, 52, 0, 0, 52, 32, 2, 0, 0, 0
    )
    made = tmp_path / "old"
    made.write_bytes(((head + load + dyn).ljust(148, b"\0") + dynamic).ljust(200, b"\0") + strings)
    found = elf.read(str(made))
    assert found is not None
    assert (found.bits, found.machine, found.soname) == (32, I386, "libold.so.1")
    assert found.needed == ["libc.so.6"]


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"#!/bin/sh\n" * 20, b"\x7fELF\x02\x02" * 20])
def test_other_files_are_not_elf(content: bytes, tmp_path: Path) -> None:
    """The result for empty, truncated, foreign and big-endian files is None."""
    made = tmp_path / "file"
    made.write_bytes(content)
    assert elf.read(str(made)) is None
    assert elf.note(str(made), FORWARD) is None


def test_fifo_is_not_elf(tmp_path: Path) -> None:
    """A FIFO is not waited for."""
    os.mkfifo(tmp_path / "fifo")
    assert elf.read(str(tmp_path / "fifo")) is None


def test_missing_file_is_an_os_error(tmp_path: Path) -> None:
    """The error has the file's name."""
    with pytest.raises(FileNotFoundError) as caught:
        elf.read(str(tmp_path / "none"))
    assert caught.value.filename == str(tmp_path / "none")


@pytest.mark.parametrize("name", ["a/b", "..", "white space", "new\nline"])
def test_invalid_sonames_are_left_out(name: str, library: Path, tmp_path: Path) -> None:
    """A SONAME with a slash or a line break is skipped."""
    data = library.read_bytes().replace(b"libcuda.so.1\0", name.encode().ljust(13, b"\0"))
    made = tmp_path / "evil"
    made.write_bytes(data)
    found = elf.read(str(made))
    assert found is not None
    assert found.soname is None


def test_damaged_files_raise_no_exception(library: Path, tmp_path: Path) -> None:
    """Thousands of truncated and changed files have a result."""
    random_bytes = random.Random(2)
    good = library.read_bytes()
    made = tmp_path / "damaged"
    for turn in range(3000):
        data = bytearray(good[: random_bytes.randrange(len(good))] if turn % 3 == 0 else good)
        for _ in range(random_bytes.randrange(1, 6)):
            if data:
                # Most changes are in the headers, which most reads are of.
                limit = min(len(data), random_bytes.choice([64, 1024, len(data)]))
                data[random_bytes.randrange(limit)] = random_bytes.choice([0, 1, 127, 128, 255])
        made.write_bytes(data)
        found = elf.read(str(made))
        assert found is None or len(found.needed) <= 512
        elf.note(str(made), FORWARD, OWNER)
