# SPDX-License-Identifier: Apache-2.0
"""The profile of the NVML stub for a node, in the stub's own format (see nvml_stub.c)."""

from __future__ import annotations

from dataclasses import replace

from gpuhook.vendors.nvidia.devices import mig_profile
from gpuhook.vendors.nvidia.inventory.inventory import Gpu, fact_rules
from gpuhook.vendors.nvidia.nvml.nvml_inventory import QUESTIONS
from tests.simulated import watch_profile
from tests.simulated.mig_node import PROFILE_NUMBERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import MigInstance, Node

GPU_IS_LOST, NOT_SUPPORTED = 15, 3
_RULES = fact_rules(Gpu)


def with_settings(gpu: Gpu) -> Gpu:
    """Return the GPU with the driver's default, number 0, for each setting that it lacks."""
    if gpu.lost is not None:
        return gpu
    defaults = {
        name: rule.words[0]
        for name, rule in _RULES.items()
        if rule.words and rule.is_optional and getattr(gpu, name) is None
    }
    return replace(gpu, **defaults)  # type: ignore[arg-type] # texts, of the fields with words


def text(node: Node) -> str:
    """Return the profile of `node`; a lost GPU answers GPU_IS_LOST to each question."""
    lines = [f"driver {node.driver.version}"]
    if node.driver.cuda is not None:
        major, minor = node.driver.cuda.split(".")
        lines.append(f"cuda {int(major) * 1000 + int(minor) * 10}")
    for gpu in node.gpus:
        lines += _gpu(node, gpu)
    return "\n".join(lines) + "\n"


def _gpu(node: Node, gpu: Gpu) -> list[str]:
    lines = ["gpu"]
    if gpu.lost is not None:
        lines.append(f"fail handle {GPU_IS_LOST}")
    for name in QUESTIONS:
        value = _answer(name, getattr(with_settings(gpu), name))
        lines.append(f"fail {name} {NOT_SUPPORTED}" if value is None else f"{name} {value}")
    lines += watch_profile.lines(node, gpu)
    for instance in gpu.instances:
        lines += _instance(gpu, instance)
    return lines


def _answer(name: str, value: object) -> object:
    """Return a fact as NVML reports it: a number for a word."""
    words = _RULES[name].words
    if words is None:
        return value
    return next((number for number, word in words.items() if word == value), None)


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
    assert instance.profile_id == identity
    return [
        f"instance {instance.index}",
        f"uuid {instance.uuid}",
        f"name {gpu.name} MIG {profile}",
        f"memory_bytes {memory}",
        f"ids {instance.gpu_instance} {instance.compute_instance}",
        f"attributes {' '.join(map(str, attributes))}",
        f"profile {number} {identity} MIG {whole}",
        f"placement {instance.memory_start} {instance.memory_slices}",
    ]
