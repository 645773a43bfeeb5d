# SPDX-License-Identifier: Apache-2.0
"""The MIG devices of one GPU as NVML reports them, through pynvml.

A MIG device is a compute instance in a GPU instance. NVML's name of it contains its profile; for an
older library without such a name, the profile is derived from other facts. Source: nvml.h, "Multi
Instance GPU Management".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pynvml

from gpuhook.vendors.nvidia.devices import mig_profile
from gpuhook.vendors.nvidia.devices.mig_profile import Profile
from gpuhook.vendors.nvidia.hot import mig_capabilities
from gpuhook.vendors.nvidia.inventory.inventory import MigInstance

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    T = TypeVar("T")

    class Ask(Protocol):
        """Calls NVML and returns the answer, None without one; raises for a lost GPU."""

        def __call__(self, call: Callable[..., T], *arguments: object) -> T | None: ...


_MIB = 1024**2
_MOST_DEVICES = 64  # of a GPU: a library has at most seven so far
# The end of a profile's name by the profile's number, for libraries without names:
# NVML_GPU_INSTANCE_PROFILE_*_REV1, _GFX, _NO_ME and _ALL_ME.
_ATTRIBUTES = {
    **dict.fromkeys((0x7, 0x8), "+me"),
    **dict.fromkeys((0xA, 0xB, 0xC, 0x11), "+gfx"),
    **dict.fromkeys((0xD, 0xE), "-me"),
    **dict.fromkeys((0xF, 0x10), "+me.all"),
}


def instances(
    gpu: object, ask: Ask, uuid: str | None, memory_bytes: int | None
) -> tuple[MigInstance, ...]:
    """Return the MIG devices of the GPU whose NVML handle is `gpu`, by index.

    `uuid` and `memory_bytes` are those of the GPU. An index without a device is skipped, as is a
    device that disappears between two calls, or that has no UUID. A library without MIG support has
    none.
    """
    most = ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, gpu) or 0
    found = []
    for index in range(min(most, _MOST_DEVICES)):
        handle = ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, index)
        if handle is not None:
            found.append(_instance(_MigHandles(gpu, handle, ask), index, uuid, memory_bytes))
    return tuple(one for one in found if one is not None)


@dataclass(frozen=True, slots=True)
class _MigHandles:
    """NVML's handles of a GPU and of one MIG device of it, and the function that calls NVML."""

    gpu: object
    device: object
    ask: Ask


def _instance(
    handles: _MigHandles, index: int, uuid: str | None, memory_bytes: int | None
) -> MigInstance | None:
    """Return the facts of one MIG device; None if it disappeared, or has no UUID."""
    ask, device = handles.ask, handles.device
    gpu_instance = ask(pynvml.nvmlDeviceGetGpuInstanceId, device)
    compute_instance = ask(pynvml.nvmlDeviceGetComputeInstanceId, device)
    if gpu_instance is None or compute_instance is None:
        return None
    own_uuid = ask(pynvml.nvmlDeviceGetUUID, device)
    if not own_uuid and uuid:
        own_uuid = mig_capabilities.old_uuid(uuid, gpu_instance, compute_instance)
    if not own_uuid:
        return None
    found = MigInstance(
        index=index,
        uuid=own_uuid,
        gpu_instance=gpu_instance,
        compute_instance=compute_instance,
    )
    attributes = ask(pynvml.nvmlDeviceGetAttributes_v2, device)
    if attributes is not None:
        found = _with_attributes(found, attributes)
    placed = _gpu_instance_info(handles, gpu_instance)
    if placed is not None:
        found = _with_placement(found, placed)
    memory = ask(pynvml.nvmlDeviceGetMemoryInfo, device)
    if memory is not None:
        found = replace(found, memory_bytes=int(memory.total))
    profile = mig_profile.parsed(ask(pynvml.nvmlDeviceGetName, device))
    if profile is None and attributes is not None and memory_bytes:
        profile = _computed(handles, found, attributes.memorySizeMB, memory_bytes)
    if profile is None:
        return found
    return replace(
        found,
        profile=str(profile),
        has_graphics=profile.has_graphics,
        gpu_slices=found.gpu_slices or profile.gpu_slices,
        compute_slices=found.compute_slices or profile.compute_slices,
    )


def _with_attributes(instance: MigInstance, attributes: Any) -> MigInstance:
    """Add the device's attributes; slices and memory came with their second version."""
    return replace(
        instance,
        multiprocessors=attributes.multiprocessorCount,
        copy_engines=attributes.sharedCopyEngineCount,
        decoders=attributes.sharedDecoderCount,
        encoders=attributes.sharedEncoderCount,
        jpegs=attributes.sharedJpegCount,
        ofas=attributes.sharedOfaCount,
        gpu_slices=attributes.gpuInstanceSliceCount or None,
        compute_slices=attributes.computeInstanceSliceCount or None,
        memory_bytes=attributes.memorySizeMB * _MIB or None,
    )


def _with_placement(instance: MigInstance, info: Any) -> MigInstance:
    """Add the profile's id, and the memory slices of the GPU instance."""
    return replace(
        instance,
        profile_id=info.profileId,
        memory_start=info.placement.start,
        memory_slices=info.placement.size,
    )


def _gpu_instance_info(handles: _MigHandles, gpu_instance: int) -> Any:
    """Return NVML's answer about a GPU instance, None without one."""
    handle = handles.ask(pynvml.nvmlDeviceGetGpuInstanceById, handles.gpu, gpu_instance)
    return None if handle is None else handles.ask(pynvml.nvmlGpuInstanceGetInfo, handle)


def _computed(
    handles: _MigHandles, instance: MigInstance, memory_mib: int, total_bytes: int
) -> Profile | None:
    """Return the profile of a MIG device without a name in NVML, None if facts are missing."""
    if not memory_mib or instance.gpu_slices is None or instance.compute_slices is None:
        return None
    size = mig_profile.memory_gib(memory_mib, total_bytes)
    attributes = _attributes(handles, instance.profile_id)
    if attributes is None:
        return None
    return Profile(instance.compute_slices, instance.gpu_slices, size, attributes)


def _attributes(handles: _MigHandles, profile_id: int | None) -> str | None:
    """Return the part after the memory in the name of a GPU instance's profile.

    NVML reports the ids and, in newer libraries, the names of all profiles. None if it does not.
    """
    ask, gpu = handles.ask, handles.gpu
    if profile_id is None:
        return None
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        profile = ask(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, gpu, number)
        if profile is None:
            profile = ask(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, gpu, number, 1)
        if profile is not None and profile.id == profile_id:
            named = mig_profile.parsed(ask(getattr, profile, "name", None))
            return _ATTRIBUTES.get(number, "") if named is None else named.attributes
    return None
