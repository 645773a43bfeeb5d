# SPDX-License-Identifier: Apache-2.0
"""What the NVML stub is to answer for a node, in the stub's own format (see nvml_stub.c)."""

from __future__ import annotations

from gpuhook.vendors.nvidia.devices import mig_profile
from gpuhook.vendors.nvidia.warm.nvml_constants import ARCHITECTURES, BRANDS
from tests.simulated import watch_profile
from tests.simulated.mig_node import PROFILE_NUMBERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu, MigInstance, Node

GPU_IS_LOST, NOT_SUPPORTED = 15, 3
_MIG_MODES = {"unsupported": "-1", "disabled": "0", "enabled": "1"}


def text(node: Node) -> str:
    """Return the profile of `node`; a lost GPU answers GPU_IS_LOST from the first question on."""
    lines = [f"driver {node.driver.version}"]
    if node.driver.cuda is not None:
        major, minor = node.driver.cuda.split(".")
        lines.append(f"cuda {int(major) * 1000 + int(minor) * 10}")
    for gpu in node.gpus:
        lines += _gpu(node, gpu)
    return "\n".join(lines) + "\n"


def _gpu(node: Node, gpu: Gpu) -> list[str]:
    capability = gpu.compute_capability
    answers: dict[str, tuple[str, object]] = {
        "uuid": ("uuid", gpu.uuid),
        "name": ("name", gpu.name),
        "minor": ("minor", gpu.minor),
        "pci": ("bus", gpu.pci_bus_id),
        "brand": ("brand", _number(BRANDS, gpu.brand)),
        "arch": ("arch", _number(ARCHITECTURES, gpu.architecture)),
        "cc": ("cc", capability.replace(".", " ") if capability else None),
        "memory": ("memory", gpu.memory_bytes),
        "mig": ("mig", _MIG_MODES.get(gpu.mig_mode or "")),
    }
    lines = ["gpu"]
    if gpu.lost is not None:
        lines.append(f"fail handle {GPU_IS_LOST}")
    for question, (key, value) in answers.items():
        unsupported = f"fail {question} {NOT_SUPPORTED}"
        lines.append(unsupported if value is None else f"{key} {value}")
    lines += watch_profile.lines(node, gpu)
    for instance in gpu.instances:
        lines += _instance(gpu, instance)
    return lines


def _instance(gpu: Gpu, instance: MigInstance) -> list[str]:
    profile = mig_profile.parsed(instance.profile)
    assert profile is not None, instance
    memory = instance.memory_bytes or 0
    attributes = (
        instance.multiprocessors,
        instance.copy_engines,
        instance.decoders,
        instance.encoders,
        instance.jpegs,
        instance.ofas,
        instance.gpu_slices,
        instance.compute_slices,
        memory // 1024**2,
    )
    whole = mig_profile.Profile(
        profile.gpu_slices, profile.gpu_slices, profile.memory_gib, profile.attributes
    )
    number, identity = PROFILE_NUMBERS[profile.gpu_slices, profile.attributes]
    return [
        f"instance {instance.index}",
        f"uuid {instance.uuid}",
        f"name {gpu.name} MIG {profile}",
        f"memory {memory}",
        f"ids {instance.gpu_instance} {instance.compute_instance}",
        f"attributes {' '.join(map(str, attributes))}",
        f"profile {number} {identity} MIG {whole}",
    ]


def _number(words: dict[int | None, str], word: str | None) -> int | None:
    return next((number for number, known in words.items() if known == word), None)
