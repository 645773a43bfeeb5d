# SPDX-License-Identifier: Apache-2.0
"""Tiny real ELF shared objects for 32-bit x86, like those of elf_maker for 64 bits.

ldconfig lists them as libraries of the 32-bit libc. Source: the System V ABI, chapters 4 and 5.
"""

from __future__ import annotations

import struct
from pathlib import Path

EM_386 = 3
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB = 0, 1, 4, 5, 6
_DT_STRSZ, _DT_SYMENT, _DT_SONAME = 10, 11, 14
_HEADER, _PROGRAM, _SYMBOL = 52, 32, 16
_RW, _PAGE = 6, 0x1000


def write(path: str | Path, soname: str | None) -> None:
    """Write a shared object of this SONAME to `path`, a new file of mode 0644."""
    Path(path).unlink(missing_ok=True)  # a program may map the old file: never write into it
    Path(path).write_bytes(shared_object(soname))
    Path(path).chmod(0o644)


def shared_object(soname: str | None) -> bytes:
    """Return the bytes of a 32-bit little-endian shared object that needs libc.so.6."""
    strings = b"\0libc.so.6\0" + (soname or "").encode() + b"\0"
    names = [(_DT_NEEDED, 1)] + ([] if soname is None else [(_DT_SONAME, 11)])
    symbols_at = _HEADER + 2 * _PROGRAM
    hash_at = symbols_at + _SYMBOL
    strings_at = hash_at + 4 * 4
    dynamic_at = (strings_at + len(strings) + 3) & ~3
    tags = [
        *names,
        (_DT_HASH, hash_at),
        (_DT_STRTAB, strings_at),
        (_DT_SYMTAB, symbols_at),
        (_DT_STRSZ, len(strings)),
        (_DT_SYMENT, _SYMBOL),
        (_DT_NULL, 0),
    ]
    dynamic = b"".join(struct.pack("<II", *tag) for tag in tags)
    body = bytearray(dynamic_at + len(dynamic))
    for offset, part in (
        (0, _header()),
        (_HEADER, _program(_PT_LOAD, 0, len(body), _PAGE)),
        (_HEADER + _PROGRAM, _program(_PT_DYNAMIC, dynamic_at, len(dynamic), 4)),
        (hash_at, struct.pack("<4I", 1, 1, 0, 0)),  # one bucket, one (empty) symbol
        (strings_at, strings),
        (dynamic_at, dynamic),
    ):
        body[offset : offset + len(part)] = part
    return bytes(body)


def _header() -> bytes:
    identity = b"\x7fELF" + bytes((1, 1, 1, 0)) + bytes(8)  # 32 bit, little endian, System V
    ehdr = (3, EM_386, 1, 0, _HEADER, 0, 0, _HEADER, _PROGRAM, 2, 0, 0, 0)
    return identity + struct.pack("<HHIIIIIHHHHHH", *ehdr)


def _program(kind: int, offset: int, size: int, align: int) -> bytes:
    return struct.pack("<IIIIIIII", kind, offset, offset, offset, size, size, _RW, align)
