# SPDX-License-Identifier: Apache-2.0
"""What the dynamic loader reads of a shared object: class, machine, SONAME, NEEDED, notes.

Files may come from a container's image: every read is bounded, counts and offsets are checked, and
the result for anything but a usable little-endian ELF file is None. System call failures are
OSError. Source: the ELF specification (gABI 4.1) and <elf.h>.
"""

from __future__ import annotations

import os
import stat
from _struct import Struct

_MAX_DYNAMIC = 64 << 10
_MAX_NAME = 255
_MAX_NEEDED = 512
_MAX_NOTES = 64 << 10
_MAX_SECTIONS = 4096
_MAX_SECTION_NAMES = 256 << 10
_MAX_SEGMENTS = 128

_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SONAME = 0, 1, 5, 14
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP, _PT_NOTE = 1, 2, 3, 4
_SHT_NOTE = 7

# e_type .. e_shstrndx; p_type ..; sh_name ..; d_tag, d_val
_HEADER = {32: Struct("<HHIIIIIHHHHHH"), 64: Struct("<HHIQQQIHHHHHH")}
_SEGMENT = {32: Struct("<IIIIIIII"), 64: Struct("<IIQQQQQQ")}
_SECTION = {32: Struct("<IIIIIIIIII"), 64: Struct("<IIQQQQIIQQ")}
_DYNAMIC = {32: Struct("<II"), 64: Struct("<QQ")}
_NOTE = Struct("<III")  # the same in both classes
# The indices of p_offset, p_vaddr, p_filesz and p_align in a program header.
_SEGMENT_FIELDS = {32: (1, 2, 4, 7), 64: (2, 3, 5, 7)}


class Elf:
    """The parts of one ELF file that name it to the loader."""

    __slots__ = ("bits", "machine", "needed", "soname")

    def __init__(self, bits: int, machine: int) -> None:
        self.bits = bits  # 32 or 64
        self.machine = machine  # e_machine
        self.soname: str | None = None
        self.needed: list[str] = []


class _Segment:
    __slots__ = ("address", "align", "kind", "offset", "size")

    def __init__(self, fields: tuple[int, ...], bits: int) -> None:
        self.kind = fields[0]
        self.offset, self.address, self.size, self.align = (
            fields[i] for i in _SEGMENT_FIELDS[bits]
        )


class _Image:
    """An open ELF file: its class, header fields and program headers."""

    __slots__ = ("bits", "fd", "head", "segments")

    def __init__(self, fd: int, bits: int, head: tuple[int, ...]) -> None:
        self.fd = fd
        self.bits = bits
        self.head = head
        self.segments: list[_Segment] = []


def read(path: str) -> Elf | None:
    """Return what the loader reads of the ELF file at `path`, None if it is not one.

    Big-endian files are not usable. SONAME and NEEDED come from PT_DYNAMIC, so section headers are
    not needed. A name that cannot be a file's name is skipped.
    """
    fd = _opened(path)
    if fd < 0:
        return None
    try:
        image = _image(fd)
        return _named(image) if image else None
    finally:
        os.close(fd)


def is_static(path: str) -> bool:
    """Return whether the file at `path` is an ELF program that the kernel runs without a loader."""
    fd = _opened(path)
    if fd < 0:
        return False
    try:
        image = _image(fd)
        return image is not None and all(s.kind != _PT_INTERP for s in image.segments)
    finally:
        os.close(fd)


def note(path_or_fd: str | int, section_name: bytes, owner: bytes | None = None) -> bytes | None:
    """Return the descriptor of the first note in the section called `section_name`, or None.

    With `owner`, only a note of that owner, which is also searched in the PT_NOTE segments, for
    files whose section headers were stripped. At most 64 KiB of notes are read.
    """
    fd = path_or_fd if isinstance(path_or_fd, int) else _opened(path_or_fd)
    if fd < 0:
        return None
    try:
        image = _image(fd)
        if image is None:
            return None
        for offset, size, align in _note_places(image, section_name, owner):
            found = _descriptor(_pread(fd, min(size, _MAX_NOTES), offset), owner, align)
            if found is not None:
                return found
        return None
    finally:
        if not isinstance(path_or_fd, int):
            os.close(fd)


def _opened(path: str) -> int:
    """Return a descriptor of the regular file `path`, -1 for anything else."""
    # O_NONBLOCK: a FIFO in an image must not hang us.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return -1


def _pread(fd: int, size: int, offset: int) -> bytes:
    # Offsets come from the file; the kernel takes signed 64-bit ones.
    return os.pread(fd, size, offset) if offset < 1 << 62 else b""


def _image(fd: int) -> _Image | None:
    ident = _pread(fd, 64, 0)
    # EI_CLASS 1 or 2, EI_DATA 1: little endian.
    if len(ident) < 52 or ident[:4] != b"\x7fELF" or ident[4] not in (1, 2) or ident[5] != 1:
        return None
    bits = ident[4] * 32
    if len(ident) < 16 + _HEADER[bits].size:
        return None
    image = _Image(fd, bits, _HEADER[bits].unpack_from(ident, 16))
    offset, entry, count = image.head[4], image.head[8], image.head[9]
    layout = _SEGMENT[bits]
    if count > _MAX_SEGMENTS or (count and entry != layout.size):
        return None
    table = _pread(fd, entry * count, offset)
    if len(table) != entry * count:
        return None
    image.segments = [_Segment(fields, bits) for fields in layout.iter_unpack(table)]
    return image


def _named(image: _Image) -> Elf | None:
    """Return the Elf of `image`, None if its dynamic section cannot be followed."""
    elf = Elf(image.bits, image.head[1])
    dynamic = next((s for s in image.segments if s.kind == _PT_DYNAMIC), None)
    if dynamic is None:
        return elf
    layout = _DYNAMIC[image.bits]
    table = _pread(image.fd, min(dynamic.size, _MAX_DYNAMIC), dynamic.offset)
    strings: int | None = None
    soname: int | None = None
    needed: list[int] = []
    for tag, value in layout.iter_unpack(table[: len(table) // layout.size * layout.size]):
        if tag == _DT_NULL:
            break
        if tag == _DT_STRTAB:
            strings = _file_offset(image, value)
        elif tag == _DT_SONAME:
            soname = value
        elif tag == _DT_NEEDED and len(needed) < _MAX_NEEDED:
            needed.append(value)
    if strings is None:
        return None if needed or soname is not None else elf
    elf.soname = None if soname is None else _name(image.fd, strings + soname)
    elf.needed = [n for n in (_name(image.fd, strings + at) for at in needed) if n]
    return elf


def _file_offset(image: _Image, address: int) -> int | None:
    """Return the offset in the file of the byte that is loaded at `address`."""
    for segment in image.segments:
        if segment.kind == _PT_LOAD and 0 <= address - segment.address < segment.size:
            return segment.offset + address - segment.address
    return None


def _name(fd: int, offset: int) -> str | None:
    """Return the file name at `offset`, None if it is not plain and printable."""
    raw, end, _ = _pread(fd, _MAX_NAME + 1, offset).partition(b"\0")
    if not end or raw in (b"", b".", b"..") or b"/" in raw or min(raw) <= 32 or 127 in raw:
        return None
    return os.fsdecode(raw)


def _note_places(
    image: _Image, section_name: bytes, owner: bytes | None
) -> list[tuple[int, int, int]]:
    """Return (offset, size, alignment) of the places that may have the note, best first."""
    names = b""
    sections = _sections(image)
    if image.head[12] < len(sections):
        _, _, _, _, at, size = sections[image.head[12]][:6]
        names = _pread(image.fd, min(size, _MAX_SECTION_NAMES), at)
    wanted = section_name + b"\0"
    # sh_name, sh_type, sh_flags, sh_addr, sh_offset, sh_size, sh_link, sh_info, sh_addralign
    places = [
        (section[4], section[5], section[8])
        for section in sections
        if section[1] == _SHT_NOTE and names.startswith(wanted, section[0])
    ]
    if owner is not None:
        places += [(s.offset, s.size, s.align) for s in image.segments if s.kind == _PT_NOTE]
    return places


def _sections(image: _Image) -> list[tuple[int, ...]]:
    offset, entry, count = image.head[5], image.head[10], image.head[11]
    layout = _SECTION[image.bits]
    if entry != layout.size or not 0 < count <= _MAX_SECTIONS:
        return []
    table = _pread(image.fd, entry * count, offset)
    return list(layout.iter_unpack(table)) if len(table) == entry * count else []


def _descriptor(notes: bytes, owner: bytes | None, align: int) -> bytes | None:
    """Return the first descriptor of `owner` among `notes`; each part is padded to `align`."""
    pad = 7 if align == 8 else 3
    at = 0
    while at + _NOTE.size <= len(notes):
        name_size, size, _ = _NOTE.unpack_from(notes, at)
        name_end = at + _NOTE.size + name_size
        start = (name_end + pad) & ~pad
        if start + size > len(notes):
            return None
        if owner is None or notes[at + _NOTE.size : name_end].rstrip(b"\0") == owner:
            return notes[start : start + size]
        at = (start + size + pad) & ~pad
    return None
