# SPDX-License-Identifier: Apache-2.0
"""The labels of AMD's node labeller, with its names, values and counters. Pure.

Most kinds count the devices with each value: beta.amd.com/gpu.vram.192G=8, and if all have the same
value also beta.amd.com/gpu.vram=192G and amd.com/gpu.vram=192G; else amd.com/gpu.vram.192G=8, too.
Memory and compute units are those of a partition, and each partition counts; other values are those
of a GPU. Source: cmd/k8s-node-labeller of AMD's device plugin.

Unlike AMD's labeller, it changes or omits a value that Kubernetes refuses, instead of losing all
labels.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from gpuhook.vendors.amd.hot.amd_words import KIND
from gpuhook.vendors.amd.inventory.amd_inventory import AmdDriver
from gpuhook.vendors.labels.label_text import MAX_LENGTH, VALID
from gpuhook.vendors.labels.vendor_labels import VendorLabels

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from gpuhook.vendors.amd.inventory.amd_inventory import AmdDevice, AmdGpu, AmdNode

STABLE, BETA = f"{KIND}.", f"beta.{KIND}."
# The kinds of labels: the options of AMD's labeller. The default ones are those of AMD's operator.
DEFAULT_KINDS = (
    "vram", "cu-count", "simd-count", "device-id", "family", "product-name", "driver-version",
)  # fmt: skip
KINDS = (
    *DEFAULT_KINDS, "driver-src-version", "compute-memory-partition",
    "compute-partitioning-supported", "memory-partitioning-supported", "firmware",
)  # fmt: skip
OWNED = rf"(?:beta\.)?{re.escape(KIND)}\.(?:{'|'.join(KINDS)})(?:\..+)?"
FIRMWARE = re.escape(BETA) + r"firmware\..+"

_MIB = 1 << 20
_REPLACED = str.maketrans({" ": "_", "/": "_"})


def usable(node: AmdNode, lost: Collection[str], trouble: str) -> AmdNode:
    """Return a node with the GPUs and partitions that containers can get.

    Those with the ids `lost` are left out, and all GPUs if the driver has `trouble`.
    """
    left = (
        replace(gpu, devices=tuple(one for one in gpu.devices if one.id not in lost))
        for gpu in node.gpus
        if not gpu.trouble and not trouble
    )
    return replace(node, gpus=tuple(gpu for gpu in left if gpu.devices))


def labels(
    node: AmdNode,
    kinds: Collection[str] = DEFAULT_KINDS,
    firmware: Iterable[Mapping[str, int]] = (),
) -> VendorLabels:
    """Return the labels of `kinds` for a node of usable().

    `firmware` has the versions of each GPU by name, "MEC".
    """
    gpus = list(node.gpus)
    if not gpus:
        return VendorLabels(names=OWNED, is_owner=True)
    values: dict[str, str] = {}
    warnings: list[str] = []
    for kind in (kind for kind in KINDS if kind in kinds):
        if kind in _OF_DEVICE:
            counts = Counter(map(_OF_DEVICE[kind], (d for gpu in gpus for d in gpu.devices)))
            values |= _counted(kind, counts, warnings)
        elif kind in _OF_GPU:
            values |= _counted(kind, Counter(map(_OF_GPU[kind], gpus)), warnings)
        elif kind == "firmware":
            values |= _firmware(firmware)
        else:
            text = _of_node(kind, node, gpus)
            values |= {} if text is None else {STABLE + kind: _value(text, MAX_LENGTH)}
    return VendorLabels(values, OWNED, is_owner=True, warnings=tuple(warnings))


def _gibibytes(device: AmdDevice) -> str | None:
    """Return the size in GiB: whole MiB, rounded half up, as AMD's labeller does."""
    if device.memory_bytes is None:
        return None
    return f"{(device.memory_bytes // _MIB + 512) // 1024}G"


_OF_DEVICE: dict[str, Callable[[AmdDevice], object]] = {
    "vram": _gibibytes,
    "cu-count": lambda device: device.cu_count,
    "simd-count": lambda device: device.simd_count,
}
_OF_GPU: dict[str, Callable[[AmdGpu], object]] = {
    "device-id": lambda gpu: gpu.device_id,
    "family": lambda gpu: gpu.family,
    "product-name": lambda gpu: gpu.name,
}


def _counted(kind: str, counts: Mapping[object, int], warnings: list[str]) -> dict[str, str]:
    """Return the labels of a kind by the number of devices with each value."""
    fitting: Counter[str] = Counter()
    for own, count in counts.items():
        if own is None:
            continue
        text = _value(str(own), MAX_LENGTH)
        if text:
            fitting[text] += count
        else:
            warnings.append(f"the label {STABLE}{kind} is omitted: {own!a} has no valid character")
    counters: Counter[str] = Counter()
    for text, count in fitting.items():
        counters[f"{kind}.{_value(text, MAX_LENGTH - len(f'gpu.{kind}.'))}"] += count
    shown = {name: str(count) for name, count in counters.items()}
    only = {kind: next(iter(fitting))} if len(fitting) == 1 else {}
    return _named(BETA, shown | only) | _named(STABLE, only or shown)


def _named(prefix: str, values: Mapping[str, str]) -> dict[str, str]:
    return {prefix + name: value for name, value in values.items()}


def _value(text: str, limit: int) -> str:
    """Return `text` as a label's value, "" if it has no valid character.

    >>> _value("AMD Instinct MI250X / MI250 (MCM)", 63)
    'AMD_Instinct_MI250X___MI250_MCM'
    """
    kept = "".join(c for c in text.strip().translate(_REPLACED) if c in VALID)
    return kept.strip("-_.")[:limit].rstrip("-_.")


def _firmware(versions: Iterable[Mapping[str, int]]) -> dict[str, str]:
    counts = Counter(f"firmware.{n}.fw.{version}" for of in versions for n, version in of.items())
    return {BETA + name: str(count) for name, count in counts.items()}


def _of_node(kind: str, node: AmdNode, gpus: list[AmdGpu]) -> str | None:
    """Return the value of a label of the whole node; the driver's are empty if it has none."""
    if kind.startswith("driver-"):
        driver = node.driver or AmdDriver()
        return (driver.version if kind == "driver-version" else driver.srcversion) or ""
    if kind == "compute-memory-partition":
        modes = {(gpu.compute_mode, gpu.memory_mode) for gpu in gpus}
        compute, memory = modes.pop()
        return f"{compute}_{memory}".lower() if compute and memory and not modes else None
    modes_of = gpus[0].compute_modes if kind.startswith("compute-") else gpus[0].memory_modes
    return "true" if modes_of else "false"
