# SPDX-License-Identifier: Apache-2.0
"""The C library, for system calls that have no Python function.

ctypes costs over a millisecond, so hooks may import this and the wrapper may not.
"""

from __future__ import annotations

import ctypes
import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
LIBC.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)

_REASONS = {
    errno.ENOSYS: "this kernel does not have the system call",
    errno.EPERM: "not permitted here; CAP_SYS_ADMIN over this mount namespace is needed",
    errno.EBUSY: "it is in use",
}


def os_error(path: str, reasons: Mapping[int, str] | None = None) -> OSError:
    """Return the OSError of the last failed call, with `path` and a readable reason.

    `reasons` override the general ones for some error numbers.
    """
    number = ctypes.get_errno()
    reason = (reasons or {}).get(number) or _REASONS.get(number) or os.strerror(number)
    return OSError(number, reason, path)


def syscall(
    number: int, *arguments: Any, path: str, reasons: Mapping[int, str] | None = None
) -> int:
    """Return what system call `number` returns, for calls that the C library may not have.

    Numbers become machine words, text becomes a file name, and pointers are passed unchanged.
    Raises OSError with `path`.
    """
    words = [_word(argument) for argument in arguments]
    done = int(LIBC.syscall(ctypes.c_long(number), *words))
    if done < 0:
        raise os_error(path, reasons)
    return done


def _word(argument: Any) -> Any:
    if isinstance(argument, int):
        return ctypes.c_long(argument)
    if isinstance(argument, str):
        return ctypes.c_char_p(os.fsencode(argument))
    return argument
