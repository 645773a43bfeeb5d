# SPDX-License-Identifier: Apache-2.0
"""What NVML says of the MIG devices of one GPU, through pynvml.

A MIG device is a compute instance in a GPU instance. NVML's own name of it has its profile; where
an older library has no such name, it is put together from what else the library tells. Source:
nvml.h, "Multi Instance GPU Management".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pynvml

from gpuhook.vendors.nvidia.devices import mig_capabilities, mig_profile
from gpuhook.vendors.nvidia.devices.mig_profile import Profile
from gpuhook.vendors.nvidia.inventory.inventory import MigInstance

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    T = TypeVar("T")

    class Ask(Protocol):
        """Puts a question to NVML: the answer, None without one; raises for a lost GPU."""

        def __call__(self, call: Callable[..., T], *arguments: object) -> T | None: ...


_MIB = 1024**2
# What a profile's name ends in, by the profile's number, for libraries that tell no names:
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

    `uuid` and `memory_bytes` are those of the GPU. An index without a device is left out, as is a
    device that goes away between two questions, or that has no UUID. A library that knows no MIG
    has none.
    """
    most = ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, gpu) or 0
    found = []
    for index in range(most):
        handle = ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, index)
        if handle is not None:
            found.append(_instance(_Asked(gpu, handle, ask), index, uuid, memory_bytes))
    return tuple(one for one in found if one is not None)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A GPU and one MIG device of it, as NVML's handles, and how they are asked."""

    gpu: object
    device: object
    ask: Ask


def _instance(
    asked: _Asked, index: int, uuid: str | None, memory_bytes: int | None
) -> MigInstance | None:
    """Return the facts of one MIG device; None if it is there no longer, or nameless."""
    ask, device = asked.ask, asked.device
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
    memory = ask(pynvml.nvmlDeviceGetMemoryInfo, device)
    if memory is not None:
        found = replace(found, memory_bytes=int(memory.total))
    profile = mig_profile.parsed(ask(pynvml.nvmlDeviceGetName, device))
    if profile is None and attributes is not None and memory_bytes:
        profile = _computed(asked, found, attributes.memorySizeMB, memory_bytes)
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
    """Add what the device's attributes tell; slices and memory came with their second version."""
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


def _computed(
    asked: _Asked, instance: MigInstance, memory_mib: int, total_bytes: int
) -> Profile | None:
    """Return the profile of a MIG device that NVML has no name for, None if it tells too little."""
    if not memory_mib or instance.gpu_slices is None or instance.compute_slices is None:
        return None
    size = mig_profile.memory_gib(memory_mib, total_bytes)
    attributes = _attributes(asked, instance.gpu_instance)
    if attributes is None:
        return None
    return Profile(instance.compute_slices, instance.gpu_slices, size, attributes)


def _attributes(asked: _Asked, gpu_instance: int) -> str | None:
    """Return what stands behind the memory in the name of a GPU instance's profile.

    NVML tells the id of the profile, and the ids and, in newer libraries, the names of all
    profiles. None where it doesn't.
    """
    ask, gpu = asked.ask, asked.gpu
    handle = ask(pynvml.nvmlDeviceGetGpuInstanceById, gpu, gpu_instance)
    info = None if handle is None else ask(pynvml.nvmlGpuInstanceGetInfo, handle)
    if info is None:
        return None
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        profile = ask(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, gpu, number)
        if profile is None:
            profile = ask(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, gpu, number, 1)
        if profile is not None and profile.id == info.profileId:
            named = mig_profile.parsed(ask(getattr, profile, "name", None))
            return _ATTRIBUTES.get(number, "") if named is None else named.attributes
    return None
