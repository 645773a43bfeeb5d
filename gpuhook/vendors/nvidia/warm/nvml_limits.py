# SPDX-License-Identifier: Apache-2.0
"""The driver's memory limits of a cgroup's processes on a GPU, through NVML.

ctypes alone, on a library that the caller names; a process keeps it loaded. Needs CUDA 13.4's
driver, cgroup v2 and the host's root. A limit ends with its cgroup, but a guarantee on the
controller dmem does not. Source: nvml.h, nvmlDeviceSetMemoryLimits_v1 and _GetMemoryLimits_v1.
"""

from __future__ import annotations

import ctypes
import os
from struct import Struct

from gpuhook.containers.warm.driver_limit import DriverLimit, limit_words
from gpuhook.errors import GpuhookError, fault
from gpuhook.request.memory_request import NO_LIMIT
from gpuhook.vendors.nvidia.warm import driver_backend, nvml_constants, nvml_refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SET = "nvmlDeviceSetMemoryLimits_v1"
GET = "nvmlDeviceGetMemoryLimits_v1"
_MODULE_VERSION = "/sys/module/nvidia/version"

# nvmlSetMemoryLimits_v1_t and nvmlGetMemoryLimits_v1_t: the cgroup's path, soft, hard, used
_SETTING = Struct("@PQQ")
_GETTING = Struct("@PQQQ")
_MEMORY = Struct("@QQQ")  # nvmlMemory_t: total, free, used

# nvmlReturn_enum
_INVALID_ARGUMENT = 2
_NOT_SUPPORTED = 3
_NO_PERMISSION = 4
_NOT_FOUND = 6
_DRIVER_NOT_LOADED = 9
_LIBRARY_NOT_FOUND = 12
_FUNCTION_NOT_FOUND = 13
_MISMATCH = 18
_IN_USE = 19


class NvmlDriver:
    """An NVML library, started; a context manager that shuts it down at its end."""

    def __init__(self, library: str) -> None:
        """Load and start the library at the path `library`.

        Raises GH1202 to GH1206 as nvml_inventory.opened does, and GH1250 if the driver is old.
        """
        self._path = library
        self._library = _loaded(library)
        self._handles: dict[str, ctypes.c_void_p] = {}
        if not all(hasattr(self._library, name) for name in (SET, GET)):
            raise fault("GH1250", path=library)
        self._start()

    def __enter__(self) -> NvmlDriver:  # noqa: PYI034 # Self needs a newer Python
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Shut the library down; limits that were set remain."""
        self._handles.clear()
        self._library.nvmlShutdown()

    def backend(self, uuid: str, cgroup: str) -> str:
        """Return the driver's way for the cgroup, DMEM or MISC of driver_limit.py.

        The GPU is attached for it, which registers its memory. Raises GH1253, GH1255.
        """
        self._handle(uuid)
        return self.backend_of(cgroup)

    def backend_of(self, cgroup: str) -> str:
        """Return the driver's way, which is known after a call about a GPU."""
        return driver_backend.backend_of(cgroup)

    def set(self, uuid: str, cgroup: str, hard: int, soft: int) -> DriverLimit:
        """Limit the processes of `cgroup` and below on the GPU; return what is read back.

        `cgroup` is the full path of its directory, `hard` and `soft` are bytes. Raises GH1251 (the
        driver refuses, and why), GH1252 (it reads back other values), GH1253 (a MIG device), GH1254
        (it cannot be read back), GH1255 (no such GPU, or a lost one), GH1250.
        """
        code, _said = self._call(SET, uuid, cgroup, _SETTING, soft, hard)
        if code:
            code = _IN_USE if self._uses_more(uuid, cgroup, hard) else code
            raise self._refusal(code, uuid, cgroup, reading=False)
        held = self.get(uuid, cgroup)
        if held is None:
            if not os.path.isdir(cgroup):
                raise self._refusal(_NOT_FOUND, uuid, cgroup, reading=False)
            held = DriverLimit(NO_LIMIT, 0, 0)
        if not held.holds(hard, soft):
            if held.used > hard:  # the kernel silently ignores a limit below the current use
                raise self._refusal(_IN_USE, uuid, cgroup, reading=False)
            raise fault(
                "GH1252",
                uuid=uuid,
                cgroup=cgroup,
                asked=limit_words(hard, soft),
                found=limit_words(held.hard, held.soft),
            )
        return held

    def get(self, uuid: str, cgroup: str) -> DriverLimit | None:
        """Return the limits of `cgroup` on the GPU, None if the driver does not know it.

        A driver with its own account answers for such a cgroup that it does not support it, and for
        others with the limits of the nearest cgroup above that has some. Raises GH1253, GH1254,
        GH1255, GH1250.
        """
        code, data = self._call(GET, uuid, cgroup, _GETTING, 0, 0, 0)
        if code == _NOT_FOUND or (code == _INVALID_ARGUMENT and not os.path.isdir(cgroup)):
            return None
        if code == _NOT_SUPPORTED and not self._is_divided(uuid):
            return None
        if code:
            raise self._refusal(code, uuid, cgroup, reading=True)
        _path, soft, hard, used = _GETTING.unpack(data)
        return DriverLimit(hard, soft, used, None if hard == NO_LIMIT else self._total(uuid))

    def clear(self, uuid: str, cgroup: str) -> None:
        """Remove the limits of `cgroup` on the GPU; a cgroup that is gone has none.

        Raises as set() does.
        """
        try:
            self.set(uuid, cgroup, NO_LIMIT, 0)
        except GpuhookError as error:
            if error.code != "GH1251" or os.path.isdir(cgroup):
                raise

    def within(self, uuid: str, hard: int) -> int:
        """Return `hard`, but no more than the GPU's memory if the driver reports it, in bytes.

        A larger limit limits nothing, and drivers refuse it: a user who requests the same on every
        node may meet a small card. Raises GH1255.
        """
        if hard == NO_LIMIT or uuid.startswith("MIG-"):
            return hard
        return min(hard, self._total(uuid) or hard)

    def _total(self, uuid: str) -> int | None:
        """Return the GPU's memory, in bytes, None if the driver does not report it."""
        memory = ctypes.create_string_buffer(_MEMORY.size)
        if self._library.nvmlDeviceGetMemoryInfo(self._handle(uuid), memory):
            return None
        return int(_MEMORY.unpack(memory.raw)[0]) or None

    def _call(
        self, name: str, uuid: str, cgroup: str, layout: Struct, *numbers: int
    ) -> tuple[int, bytes]:
        """Return the nvmlReturn_t of the call, and the structure after the call."""
        handle = self._handle(uuid)
        path = ctypes.create_string_buffer(os.fsencode(cgroup))
        limits = ctypes.create_string_buffer(layout.pack(ctypes.addressof(path), *numbers))
        code = int(getattr(self._library, name)(handle, limits))
        return code, limits.raw[: layout.size]

    def _handle(self, uuid: str) -> ctypes.c_void_p:
        if uuid.startswith("MIG-"):
            raise fault("GH1253", uuid=uuid)
        if uuid not in self._handles:
            handle = ctypes.c_void_p()
            code = self._library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle))
            if code:
                raise self._missing(code, uuid)
            self._handles[uuid] = handle
        return self._handles[uuid]

    def _missing(self, code: int, uuid: str) -> GpuhookError:
        if code in (_NOT_FOUND, _INVALID_ARGUMENT):
            reason = "the driver has no GPU of this UUID"
        else:
            reason = nvml_constants.LOSSES.get(code) or self._error_text(code)
        return fault("GH1255", uuid=uuid, reason=reason)

    def _refusal(self, code: int, uuid: str, cgroup: str, *, reading: bool) -> GpuhookError:
        if code == _FUNCTION_NOT_FOUND:
            return fault("GH1250", path=self._path)
        if code in nvml_constants.LOSSES:
            return self._missing(code, uuid)
        if code == _NOT_SUPPORTED and self._is_divided(uuid):
            return fault("GH1253", uuid=uuid)
        reason, remedy = nvml_refusal.words(code, cgroup) or (self._error_text(code), "")
        remedy = remedy or nvml_refusal.OTHERWISE
        facts = {"uuid": uuid, "cgroup": cgroup, "reason": reason, "remedy": remedy}
        return fault("GH1254", **facts) if reading else fault("GH1251", **facts)

    def _is_divided(self, uuid: str) -> bool:
        """Return whether the GPU is in MIG mode; a GPU without that mode is not."""
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        handle = self._handle(uuid)
        asked = (ctypes.byref(current), ctypes.byref(pending))
        return not self._library.nvmlDeviceGetMigMode(handle, *asked) and current.value == 1

    def _uses_more(self, uuid: str, cgroup: str, hard: int) -> bool:
        """Return whether the cgroup already uses more than `hard`."""
        try:
            held = self.get(uuid, cgroup)
        except GpuhookError:
            return False
        return held is not None and held.used > hard

    def _start(self) -> None:
        try:
            code = self._library.nvmlInit_v2()
        except AttributeError:
            reason = "it has no nvmlInit_v2: not an NVML library"
            raise fault("GH1202", path=self._path, reason=reason) from None
        if code == _MISMATCH:
            library = os.path.realpath(self._path).partition(".so.")[2]
            raise fault("GH1203", path=self._path, library=library, module=_module_version())
        if code in (_DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND):
            raise fault("GH1204", path=self._path, reason=self._error_text(code))
        if code == _NO_PERMISSION:
            raise fault("GH1205", path=self._path)
        if code:
            raise fault("GH1206", path=self._path, reason=self._error_text(code))

    def _error_text(self, code: int) -> str:
        """Return NVML's own text for an error."""
        words = self._library.nvmlErrorString
        words.restype = ctypes.c_char_p
        text = words(code)
        return f"{text.decode('utf-8', 'replace') if text else 'an unknown error'} ({code})"


def _loaded(library: str) -> Any:
    try:
        return ctypes.CDLL(library)
    except OSError as error:
        raise fault("GH1202", path=library, reason=error) from error


def _module_version() -> str:
    try:
        with open(_MODULE_VERSION, encoding="ascii") as file:
            return file.read(64).strip()
    except OSError:
        return "of another version"
