# SPDX-License-Identifier: Apache-2.0
"""What requests of containers for NVIDIA GPUs mean (request_interface.py)."""

from __future__ import annotations

from gpuhook.request import parse
from gpuhook.vendors.container_requests import RequestingImages
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.requests import requirement_verdicts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from typing import Any

    from gpuhook.vendors.interface import VendorNode
    from gpuhook.vendors.nvidia.inventory.inventory import Node

RUNTIME_CLASSES = ("nvidia", "nvidia-cdi", "nvidia-legacy", "nvidia-experimental")
REQUESTING_IMAGES = RequestingImages("CUDA", r"cuda|nvidia|nvcr\.io|pytorch|tensorflow|triton|vllm")
PROCESS_LIST = "nvidia-smi"
judged_requirements = requirement_verdicts.judged_requirements


def lacking_capabilities(path: str, capabilities: frozenset[str]) -> frozenset[str]:
    """Return the capabilities of a file's name; a 32-bit file needs compat32 first."""
    if vocabulary.is_32_bit(path) and "compat32" not in capabilities:
        return frozenset(("compat32",))
    return vocabulary.capabilities_of(path)


def notes(
    spec: dict[str, Any],
    node: VendorNode,
    inventory: Node | None,
    refused: Collection[str],
    *,
    has_devices: bool,
) -> list[str]:
    """Return notes on requested GPUs in MIG mode, and on NVIDIA_REQUIRE_JETPACK."""
    return [
        *_in_mig_mode(refused, inventory),
        *_jetpack_notes(spec, node, has_devices=has_devices),
    ]


def _in_mig_mode(refused: Collection[str], node: Node | None) -> Iterator[str]:
    divided = [gpu for gpu in node.gpus if gpu.instances] if node else []
    for name in refused:
        plain = name.rpartition("=")[2].partition("::")[0]
        for gpu in divided:
            if plain in (str(gpu.index), gpu.uuid):
                names = ", ".join(f"{gpu.index}:{part.index}" for part in gpu.instances)
                yield (
                    f"GPU {gpu.index} is in MIG mode: only its instances can be requested, {names}"
                )


def _jetpack_notes(spec: dict[str, Any], node: VendorNode, *, has_devices: bool) -> Iterator[str]:
    variable, known = vocabulary.CSV_MOUNTS
    value = parse.environment(spec).get(variable)
    if value is None:
        return
    found = node.further_names(spec)
    effect = "adds nothing: no spec on this node contains the additional files of a Tegra"
    if value != known:
        effect = f"requests nothing: only {known} has an effect"
    elif not has_devices:
        effect = "adds nothing to a container without a GPU"
    elif found:
        effect = f"adds {found[0]}: the entries of all CSV files of this Tegra, not only of three"
    yield f"{variable}={value} {effect}"
