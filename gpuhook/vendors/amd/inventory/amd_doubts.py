# SPDX-License-Identifier: Apache-2.0
"""Warnings of an inventory: what KFD hides from the reader, and what does not fit together."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from gpuhook.vendors.amd.inventory.amd_inventory import AmdGpu
    from gpuhook.vendors.amd.inventory.kfd_topology import KfdTopology

_DENIED = (
    "KFD does not let this process read {count} of its nodes: the device cgroup of the reader must "
    "allow rw of their render nodes (226:*), as that of a privileged container does"
)
_UNIDENTIFIED = (
    "GPU {address} is in mode {mode}: its partitions but the first are left out, since only KFD "
    "can identify them"
)
_SAME_ID = "GPU {address}: {count} GPUs have the unique id {id}, which is ignored"
_NO_TWIN = "KFD node {number} is left out: no DRM device has its render node renderD{minor}"
_SHORT = (
    "GPU {address} has {count} partitions and others of its kind have {most}: the kernel had no "
    "DRM node left"
)


def doubts(
    topology: KfdTopology, render_minors: Collection[int], gpus: Sequence[AmdGpu]
) -> Iterator[str]:
    """Yield the warnings; `render_minors` are those of all DRM devices of the driver."""
    yield from _hidden(topology, gpus)
    for node in topology.nodes:
        if node.render_minor not in render_minors:
            yield _NO_TWIN.format(number=node.number, minor=node.render_minor or "")
    yield from _short(gpus)
    for unique_id, count in _shared(gpus).items():
        for gpu in gpus:
            if gpu.unique_id == unique_id:
                yield _SAME_ID.format(address=gpu.pci_address, count=count, id=unique_id)


def without_shared_ids(gpus: Sequence[AmdGpu]) -> tuple[AmdGpu, ...]:
    """Return the GPUs; a unique id that several have is None: it would name the wrong ones."""
    shared = _shared(gpus)
    return tuple(replace(gpu, unique_id=None) if gpu.unique_id in shared else gpu for gpu in gpus)


def _shared(gpus: Sequence[AmdGpu]) -> dict[str, int]:
    """Return the unique ids of more than one GPU, and of how many."""
    counts = Counter(gpu.unique_id for gpu in gpus if gpu.unique_id is not None)
    return {unique_id: count for unique_id, count in counts.items() if count > 1}


def _hidden(topology: KfdTopology, gpus: Sequence[AmdGpu]) -> Iterator[str]:
    if not topology.denied:
        return
    yield _DENIED.format(count=topology.denied)
    for gpu in gpus:
        if gpu.is_divided and not gpu.is_partitioned:
            yield _UNIDENTIFIED.format(address=gpu.pci_address, mode=gpu.compute_mode)


def _short(gpus: Sequence[AmdGpu]) -> Iterator[str]:
    """Yield a warning for each GPU with fewer partitions than another of its kind and mode.

    DRM of some kernels has 64 nodes, and one of them may be that of a management controller.
    """
    most: Counter[tuple[str | None, str | None]] = Counter()
    for gpu in gpus:
        kind = (gpu.device_id, gpu.compute_mode)
        most[kind] = max(most[kind], len(gpu.devices))
    for gpu in gpus:
        expected = most[gpu.device_id, gpu.compute_mode]
        if gpu.is_partitioned and len(gpu.devices) < expected:
            yield _SHORT.format(address=gpu.pci_address, count=len(gpu.devices), most=expected)
