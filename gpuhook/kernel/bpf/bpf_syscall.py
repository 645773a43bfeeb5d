# SPDX-License-Identifier: Apache-2.0
"""bpf(2) for programs of the type BPF_PROG_TYPE_CGROUP_DEVICE: load, attach, query, read back.

Constants and layouts from linux/bpf.h. Errors name the cgroup.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from gpuhook.kernel.libc import LIBC, syscall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BPF_F_ALLOW_OVERRIDE = 1
BPF_F_ALLOW_MULTI = 2
BPF_F_REPLACE = 4

_SYS_BPF = {"x86_64": 321, "aarch64": 280, "ppc64le": 361, "riscv64": 280}
_PROG_LOAD = 5
_PROG_ATTACH = 8
_PROG_DETACH = 9
_PROG_GET_FD_BY_ID = 13
_OBJ_GET_INFO_BY_FD = 15
_PROG_QUERY = 16
_TYPE_CGROUP_DEVICE = 15
_CGROUP_DEVICE = 6
_QUERY_EFFECTIVE = 1
_RLIMIT_MEMLOCK = 8
_LOG_SIZE = 1 << 16
_NAME_SIZE = 16
_INFO = struct.Struct("=II8sIIQQQIIQ16s")

_REASONS = {
    errno.ENOSYS: "this kernel was built without bpf(2)",
    errno.EPERM: "not permitted; CAP_BPF and CAP_NET_ADMIN, or CAP_SYS_ADMIN, are needed",
    errno.ENOENT: "the program is gone",
}


class Info:
    """What the kernel reports about a program; `instructions` is None if it does not show them."""

    __slots__ = ("id", "instructions", "maps", "name")

    def __init__(self, identity: int, name: str, instructions: bytes | None, maps: int = 0) -> None:
        self.id = identity
        self.name = name
        self.instructions = instructions
        self.maps = maps


def prog_load(instructions: bytes, name: str) -> int:
    """Return a descriptor of a loaded program; the verifier's reason is in the OSError.

    Kernels before 5.11 charge programs to RLIMIT_MEMLOCK, which is lifted if it is exceeded.
    """
    try:
        return _load(instructions, name, None)
    except OSError as error:
        if error.errno == errno.EPERM and _memlock_lifted():
            return _load(instructions, name, None)
        if error.errno not in (errno.EINVAL, errno.EACCES):
            raise
    log = ctypes.create_string_buffer(_LOG_SIZE)
    try:
        return _load(instructions, name, log)
    except OSError as error:
        lines = log.value.decode("utf-8", "replace").splitlines()
        reasons = [line for line in lines if not line.startswith("processed ")]
        if reasons:
            error.strerror = f"the kernel's verifier refused it: {reasons[-1]}"
        raise


def prog_attach(cgroup_fd: int, prog_fd: int, flags: int, replace_fd: int | None = None) -> None:
    """Attach a program to a cgroup; with BPF_F_REPLACE, it replaces `replace_fd`.

    Raises OSError: ENOENT if that program is not attached, EINVAL before Linux 5.6.
    """
    attr = struct.pack("=5I", cgroup_fd, prog_fd, _CGROUP_DEVICE, flags, replace_fd or 0)
    _bpf(_PROG_ATTACH, ctypes.create_string_buffer(attr, len(attr)), _name_of(cgroup_fd))


def prog_detach(cgroup_fd: int, prog_fd: int) -> None:
    """Detach a program from a cgroup; raises OSError, ENOENT if it is not attached."""
    attr = struct.pack("=4I", cgroup_fd, prog_fd, _CGROUP_DEVICE, 0)
    _bpf(_PROG_DETACH, ctypes.create_string_buffer(attr, len(attr)), _name_of(cgroup_fd))


def prog_query(cgroup_fd: int, *, effective: bool = False) -> tuple[list[int], int]:
    """Return the ids of a cgroup's device programs in their order, and its attach flags.

    With `effective`, all programs that apply to it, those of the cgroups above included; flags are
    0 then. Raises OSError.
    """
    layout = struct.Struct("=4IQI")
    most = 64
    while True:
        ids = (ctypes.c_uint32 * most)()
        what = (cgroup_fd, _CGROUP_DEVICE, int(effective) * _QUERY_EFFECTIVE, 0)
        attr = ctypes.create_string_buffer(layout.pack(*what, ctypes.addressof(ids), most))
        try:
            _bpf(_PROG_QUERY, attr, _name_of(cgroup_fd), layout.size)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            most *= 4
            continue
        *_, flags, _, count = layout.unpack_from(attr.raw)
        return list(ids[:count]), 0 if effective else flags


def prog_get_fd_by_id(identity: int) -> int:
    """Return a descriptor of a loaded program; raises OSError, ENOENT if it is gone."""
    attr = ctypes.create_string_buffer(struct.pack("=3I", identity, 0, 0))
    return _bpf(_PROG_GET_FD_BY_ID, attr, f"device program {identity}", 12)


def prog_info(fd: int) -> Info:
    """Return what the kernel reports about a program; raises OSError."""
    length = int(_read_info(fd, None)[4])
    code = ctypes.create_string_buffer(length)
    _, identity, _, _, shown, _, pointer, _, _, maps, _, name = _read_info(fd, code)
    # The kernel clears the pointer if it does not show a blinded program.
    seen = code.raw if length and pointer and shown == length else None
    return Info(identity, name.rstrip(b"\0").decode("ascii", "replace"), seen, maps)


def _read_info(fd: int, code: ctypes.Array[ctypes.c_char] | None) -> tuple[Any, ...]:
    """Return the head of struct bpf_prog_info, instructions read into `code`."""
    length = 0 if code is None else len(code)
    pointer = 0 if code is None else ctypes.addressof(code)
    blank = _INFO.pack(0, 0, b"", 0, length, 0, pointer, 0, 0, 0, 0, b"")
    info = ctypes.create_string_buffer(blank, len(blank))
    attr = struct.pack("=IIQ", fd, len(blank), ctypes.addressof(info))
    buffer = ctypes.create_string_buffer(attr, len(attr))
    _bpf(_OBJ_GET_INFO_BY_FD, buffer, "device program")
    return _INFO.unpack(info.raw)


def _load(instructions: bytes, name: str, log: ctypes.Array[ctypes.c_char] | None) -> int:
    code = ctypes.create_string_buffer(instructions, len(instructions))
    licence = ctypes.create_string_buffer(b"Apache-2.0")
    attr = struct.pack(
        "=IIQQIIQII16s",
        _TYPE_CGROUP_DEVICE,
        len(instructions) // 8,
        ctypes.addressof(code),
        ctypes.addressof(licence),
        0 if log is None else 1,
        0 if log is None else len(log),
        0 if log is None else ctypes.addressof(log),
        0,
        0,
        os.fsencode(name)[: _NAME_SIZE - 1],
    )
    buffer = ctypes.create_string_buffer(attr, len(attr))
    return _bpf(_PROG_LOAD, buffer, f"device program {name}")


def _bpf(
    command: int, attr: ctypes.Array[ctypes.c_char], path: str, size: int | None = None
) -> int:
    number = _SYS_BPF.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, f"bpf(2) has no known number on {os.uname().machine}", path)
    return syscall(number, command, attr, size or len(attr), path=path, reasons=_REASONS)


def _memlock_lifted() -> bool:
    """Lift RLIMIT_MEMLOCK, and return whether that was permitted."""
    infinity = (1 << 64) - 1
    limit = struct.pack("=QQ", infinity, infinity)
    return bool(LIBC.setrlimit(_RLIMIT_MEMLOCK, limit) == 0)


def _name_of(cgroup_fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{cgroup_fd}")
    except OSError:
        return "cgroup"
