# SPDX-License-Identifier: Apache-2.0
"""The driver's events, XIDs of the GPUs of a node, through NVML.

NVML's event set keeps events that no thread waits for, in the order of arrival. Source: nvml.h,
"Event Handling Methods".
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pynvml

from gpuhook.errors import fault
from gpuhook.vendors.nvidia.nvml import nvml_device, nvml_inventory, nvml_sessions
from gpuhook.vendors.nvidia.nvml.nvml_device import NO_INSTANCE, instance_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Only XIDs: a relevant bit error is an XID, too, and others would wake the thread for nothing.
_XID = pynvml.nvmlEventTypeXidCriticalError
_NO_EVENTS = "the GPU has no events"


@dataclass(frozen=True, slots=True)
class NvmlXidEvent:
    """An XID of a GPU (None: unknown to NVML), or of one of its MIG instances."""

    uuid: str | None
    xid: int
    gpu_instance: int | None = None
    compute_instance: int | None = None


@dataclass(frozen=True, slots=True)
class UnwatchedDevices:
    """Why a GPU's XIDs are not watched: a lost GPU is unusable, another one works without."""

    reason: str
    is_lost: bool = False


@contextmanager
def watched(path: str, module_version: str | None = None) -> Iterator[NvmlEventWatch]:
    """Open the NVML library at `path` and a watch in it; both end with the context.

    Raises GH1202 to GH1206 as nvml_inventory.opened() does, and GH1242. The context must not end
    while another thread waits.
    """
    with nvml_inventory.opened(path, module_version):
        try:
            events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            raise fault("GH1242", path=path, reason=error) from error
        try:
            yield NvmlEventWatch(events, nvml_sessions.current())
        finally:
            nvml_device.answered(lambda: pynvml.nvmlEventSetFree(events))


class NvmlEventWatch:
    """An event set of NVML and its GPUs. One thread waits at a time."""

    def __init__(self, events: Any, library: nvml_sessions.LoadedLibrary) -> None:
        self._events = events
        self._library = library
        self._uuids: dict[int | None, str] = {}  # by NVML's handle

    def register(self, uuids: Iterable[str]) -> dict[str, UnwatchedDevices]:
        """Watch the GPUs, and return those that cannot be watched."""
        with nvml_sessions.used(self._library):
            found = {uuid: self._registered(uuid) for uuid in uuids}
        return {uuid: unwatched for uuid, unwatched in found.items() if unwatched is not None}

    def _registered(self, uuid: str) -> UnwatchedDevices | None:
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            if not pynvml.nvmlDeviceGetSupportedEventTypes(handle) & _XID:
                return UnwatchedDevices(_NO_EVENTS)
            pynvml.nvmlDeviceRegisterEvents(handle, _XID, self._events)
        except pynvml.NVMLError as error:
            return _unwatched(error)
        self._uuids[_address(handle)] = uuid
        return None

    def wait(self, milliseconds: int) -> NvmlXidEvent | None:
        """Return the next XID, None after the time or an event of another kind.

        Raises GH1240, which names lost GPUs, if waiting fails. The next call may
        fail at once, so the caller pauses in between.
        """
        # An old library does not set the instances.
        data = pynvml.c_nvmlEventData_t(gpuInstanceId=NO_INSTANCE, computeInstanceId=NO_INSTANCE)
        with nvml_sessions.used(self._library):
            try:
                wait = nvml_sessions.function("nvmlEventSetWait_v2")
                code = wait(self._events, ctypes.byref(data), ctypes.c_uint(milliseconds))
            except pynvml.NVMLError as error:
                raise self._failed(error) from error
            if code == pynvml.NVML_ERROR_TIMEOUT:
                return None
            if code != pynvml.NVML_SUCCESS:
                raise self._failed(pynvml.NVMLError(code))
            if data.eventType != _XID:
                return None
            return NvmlXidEvent(
                uuid=self._uuid(data.device),
                xid=int(data.eventData),
                gpu_instance=instance_id(data.gpuInstanceId),
                compute_instance=instance_id(data.computeInstanceId),
            )

    def lost(self) -> dict[str, str]:
        """Return the watched GPUs that are lost, each with the reason."""
        with nvml_sessions.used(self._library):
            found = {uuid: nvml_device.loss(uuid) for uuid in self._uuids.values()}
        return {uuid: reason for uuid, reason in found.items() if reason is not None}

    def _uuid(self, handle: Any) -> str | None:
        # By the handle first: a GPU that has just fallen off the bus may not report its UUID.
        known = self._uuids.get(_address(handle))
        return known or nvml_device.answered(lambda: str(pynvml.nvmlDeviceGetUUID(handle)))

    def _failed(self, error: Any) -> Exception:
        gpus = ", ".join(f"{uuid} ({reason})" for uuid, reason in self.lost().items())
        return fault("GH1240", reason=f"{error}; lost GPUs: {gpus}" if gpus else error)


def _unwatched(error: Any) -> UnwatchedDevices:
    if error.value in (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND):
        return UnwatchedDevices(_NO_EVENTS)
    reason = nvml_device.loss_of(error)
    return UnwatchedDevices(reason or f"NVML says: {error}", is_lost=reason is not None)


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
