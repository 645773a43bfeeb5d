# SPDX-License-Identifier: Apache-2.0
"""MIG on a simulated node: its instances as facts, and the kernel's files about them."""

from __future__ import annotations

from gpuhook.vendors.nvidia.devices import mig_profile
from gpuhook.vendors.nvidia.hot import mig_capabilities, vocabulary
from gpuhook.vendors.nvidia.inventory.inventory import DeviceNode, Gpu, MigInstance, Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# The driver's numbers: config and monitor, then 15 GPU instances of 8 compute instances.
_FIRST_MINOR, _GPU_INSTANCES, _COMPUTE_INSTANCES = 3, 15, 8
_MODE = 0o444
_MIB = 1024**2

# On an A100 with 40 GB: MiB, multiprocessors, copy engines, decoders.
_SHARES = {"1g": (4864, 14, 1, 0), "2g": (9984, 28, 2, 1), "3g": (20096, 42, 3, 2)}
# NVML's number of a profile, and its id, by slices and attributes.
# The first memory slice of a GPU instance and their number, by its number and its slices: the
# driver places 1g from slice 0, and 3g in a half of the GPU.
_PLACES = {(2, 3): (4, 4), (3, 2): (0, 2), **{(7 + n, 1): (n, 1) for n in range(7)}}
PROFILE_NUMBERS = {(1, ""): (0, 19), (1, "+me"): (7, 20), (2, ""): (1, 14), (3, ""): (2, 9)}


def instance(
    gpu_minor: int, index: int, uuid: str, profile: str, gpu_instance: int, compute_instance: int
) -> MigInstance:
    """Return one MIG device of an A100 with 40 GB."""
    named = mig_profile.parsed(profile)
    assert named is not None, profile
    mib, multiprocessors, copies, decoders = _SHARES[f"{named.gpu_slices}g"]
    has_media = named.attributes == "+me"
    return MigInstance(
        index=index,
        uuid=uuid,
        gpu_instance=gpu_instance,
        compute_instance=compute_instance,
        profile=profile,
        memory_bytes=mib * _MIB,
        gpu_slices=named.gpu_slices,
        compute_slices=named.compute_slices,
        multiprocessors=multiprocessors * named.compute_slices // named.gpu_slices,
        copy_engines=copies,
        decoders=1 if has_media else decoders,
        encoders=0,
        jpegs=int(has_media),
        ofas=int(has_media),
        has_graphics=False,
        profile_id=PROFILE_NUMBERS[named.gpu_slices, named.attributes][1],
        memory_start=_PLACES[gpu_instance, named.gpu_slices][0],
        memory_slices=_PLACES[gpu_instance, named.gpu_slices][1],
        gpu_instance_minor=minor(gpu_minor, gpu_instance),
        compute_instance_minor=minor(gpu_minor, gpu_instance, compute_instance),
    )


def minor(gpu_minor: int, gpu_instance: int, compute_instance: int | None = None) -> int:
    """Return the driver's minor of an access capability."""
    number = gpu_minor * _GPU_INSTANCES + gpu_instance
    first = _FIRST_MINOR + number * (_COMPUTE_INSTANCES + 1)
    return first if compute_instance is None else first + 1 + compute_instance


def device_nodes(gpus: tuple[Gpu, ...], major: int) -> tuple[DeviceNode, ...]:
    """Return the capability nodes of all instances."""
    minors = [
        number
        for gpu in gpus
        for one in gpu.instances
        for number in (one.gpu_instance_minor, one.compute_instance_minor)
        if number is not None
    ]
    paths = {vocabulary.capability_node(number): number for number in sorted(set(minors))}
    return tuple(DeviceNode(path, path, major, n, _MODE) for path, n in paths.items())


def files(facts: Node) -> dict[str, str]:
    """Return the texts in /proc about the node's MIG instances, by path; {} without MIG mode."""
    if not any(gpu.mig_mode == "enabled" for gpu in facts.gpus):
        return {}
    texts = {
        mig_capabilities.MINORS: "".join(f"{name} {number}\n" for name, number in _minors(facts))
    }
    for number, name in enumerate(("config", "monitor"), 1):
        texts[f"{mig_capabilities.CAPABILITIES}/mig/{name}"] = _description(number)
    for gpu in facts.gpus:
        for one in gpu.instances:
            assert gpu.minor is not None
            ids = (one.gpu_instance, one.compute_instance)
            for some in (ids[:1], ids):
                name = mig_capabilities.name(gpu.minor, *some)
                texts[mig_capabilities.file(name)] = _description(minor(gpu.minor, *some))
    return texts


def _minors(facts: Node) -> Iterator[tuple[str, int]]:
    yield from (("config", 1), ("monitor", 2))
    for gpu in sorted(gpu.minor for gpu in facts.gpus if gpu.minor is not None):
        for first in range(_GPU_INSTANCES):
            yield mig_capabilities.name(gpu, first), minor(gpu, first)
            for second in range(_COMPUTE_INSTANCES):
                yield mig_capabilities.name(gpu, first, second), minor(gpu, first, second)


def _description(number: int) -> str:
    return f"DeviceFileMinor: {number}\nDeviceFileMode: {_MODE}\nDeviceFileModify: 1\n"
