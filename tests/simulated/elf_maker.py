# SPDX-License-Identifier: Apache-2.0
"""Tiny real ELF shared objects, written byte by byte: a driver tree has fifty of them.

glibc and musl load them with dlopen, and ldconfig lists them. They hold one writable segment (old
glibc relocates the dynamic section in place), an empty symbol table with its hash table (musl
insists), and a PT_GNU_STACK (without it glibc makes the stack executable, or refuses).
Source: the System V ABI, chapters 4 and 5; gabi "Note Section".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

EM_X86_64, EM_AARCH64 = 62, 183
_PT_LOAD, _PT_DYNAMIC, _PT_NOTE, _PT_GNU_STACK = 1, 2, 4, 0x6474E551
_DT_NULL, _DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB = 0, 1, 4, 5, 6
_DT_STRSZ, _DT_SYMENT, _DT_SONAME = 10, 11, 14
_SHT_STRTAB, _SHT_DYNAMIC, _SHT_NOTE, _SHF_ALLOC = 3, 6, 7, 2
_R, _RW = 4, 6
_HEADER, _PROGRAM, _SECTION, _SYMBOL = 64, 56, 64, 24
_PAGE = 0x1000


@dataclass(frozen=True)
class Note:
    """An ELF note in a separate section."""

    section: str  # ".note.cuda.fwd_compatibility"
    owner: str
    content: bytes
    type: int = 1


def write(
    path: str | Path,
    soname: str | None,
    *,
    needed: tuple[str, ...] = ("libc.so.6",),
    machine: int = EM_X86_64,
    note: Note | None = None,
) -> None:
    """Write a shared object with these names to `path`, a new file of mode 0644."""
    Path(path).unlink(missing_ok=True)  # a program may map the old file: never write into it
    Path(path).write_bytes(shared_object(soname, needed=needed, machine=machine, note=note))
    Path(path).chmod(0o644)


def shared_object(
    soname: str | None,
    *,
    needed: tuple[str, ...] = ("libc.so.6",),
    machine: int = EM_X86_64,
    note: Note | None = None,
) -> bytes:
    """Return the bytes of a 64-bit little-endian shared object."""
    strings = _Strings()
    names = [(_DT_NEEDED, strings.add(name)) for name in needed]
    if soname is not None:
        names.append((_DT_SONAME, strings.add(soname)))
    program_count = 3 + (note is not None)
    symbols_at = _HEADER + program_count * _PROGRAM
    hash_at = symbols_at + _SYMBOL
    strings_at = hash_at + 4 * 4
    note_at = _aligned(strings_at + len(strings.content))
    note_bytes = _note_bytes(note) if note is not None else b""
    dynamic_at = _aligned(note_at + len(note_bytes))
    dynamic = b"".join(
        struct.pack("<QQ", tag, value)
        for tag, value in (
            *names,
            (_DT_HASH, hash_at),
            (_DT_STRTAB, strings_at),
            (_DT_SYMTAB, symbols_at),
            (_DT_STRSZ, len(strings.content)),
            (_DT_SYMENT, _SYMBOL),
            (_DT_NULL, 0),
        )
    )
    end = dynamic_at + len(dynamic)
    programs = _program(_PT_LOAD, _RW, 0, end, _PAGE)
    programs += _program(_PT_DYNAMIC, _RW, dynamic_at, len(dynamic), 8)
    programs += _program(_PT_GNU_STACK, _RW, 0, 0, 16)
    if note is not None:
        programs += _program(_PT_NOTE, _R, note_at, len(note_bytes), 4)
    sections, section_count = (
        _sections(note, (note_at, len(note_bytes)), (dynamic_at, len(dynamic)), end)
        if note is not None
        else (b"", 0)
    )
    body = bytearray(end)
    body[:_HEADER] = _header(machine, program_count, end if sections else 0, section_count)
    for offset, part in (
        (_HEADER, programs),
        (hash_at, struct.pack("<4I", 1, 1, 0, 0)),  # one bucket, one (empty) symbol
        (strings_at, bytes(strings.content)),
        (note_at, note_bytes),
        (dynamic_at, dynamic),
    ):
        body[offset : offset + len(part)] = part
    return bytes(body) + sections


class _Strings:
    """A string table under construction."""

    def __init__(self) -> None:
        self.content = bytearray(b"\0")

    def add(self, text: str) -> int:
        offset = len(self.content)
        self.content += text.encode() + b"\0"
        return offset


def _aligned(offset: int) -> int:
    return (offset + 7) & ~7


def _program(kind: int, flags: int, offset: int, size: int, align: int) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, flags, offset, offset, offset, size, size, align)


def _note_bytes(note: Note) -> bytes:
    owner = note.owner.encode() + b"\0"
    head = struct.pack("<III", len(owner), len(note.content), note.type)
    return head + _padded(owner) + _padded(note.content)


def _padded(content: bytes) -> bytes:
    return content.ljust((len(content) + 3) & ~3, b"\0")


def _sections(
    note: Note, note_at: tuple[int, int], dynamic_at: tuple[int, int], end: int
) -> tuple[bytes, int]:
    """Return the section headers, followed by their names: tools find notes by section name."""
    strings = _Strings()
    note_name, dynamic_name, table_name = map(strings.add, (note.section, ".dynamic", ".shstrtab"))
    table_at = (end + 4 * _SECTION, len(strings.content))
    headers = bytes(_SECTION)
    headers += _section(note_name, _SHT_NOTE, note_at, flags=_SHF_ALLOC)
    headers += _section(dynamic_name, _SHT_DYNAMIC, dynamic_at, flags=_SHF_ALLOC, entry=16)
    headers += _section(table_name, _SHT_STRTAB, table_at)
    return headers + bytes(strings.content), 4


def _section(
    name: int, kind: int, extent: tuple[int, int], *, flags: int = 0, entry: int = 0
) -> bytes:
    offset, size = extent
    address, align = (offset, 4) if flags else (0, 1)
    return struct.pack("<IIQQQQIIQQ", name, kind, flags, address, offset, size, 0, 0, align, entry)


def _header(machine: int, programs: int, sections_at: int, sections: int) -> bytes:
    identity = b"\x7fELF" + bytes((2, 1, 1, 0)) + bytes(8)  # 64 bit, little endian, System V
    rest = struct.pack(
        "<HHIQQQIHHHHHH",
        3,  # ET_DYN
        machine,
        1,
        0,
        _HEADER,
        sections_at,
        0,
        _HEADER,
        _PROGRAM,
        programs,
        _SECTION if sections else 0,
        sections,
        sections - 1 if sections else 0,
    )
    return identity + rest
