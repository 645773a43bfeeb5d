# SPDX-License-Identifier: Apache-2.0
"""The GPUs of the node that a running container can use, and the selection of some by name."""

from __future__ import annotations

import os
import stat
from functools import partial

from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import state
from gpuhook.memory_limits import limit_worker
from gpuhook.request import replicas
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from gpuhook.target.running_container import Target
    from gpuhook.vendors.usage.limit_device import LimitDevice

_BEGINNING = len("GPU-12345678")  # the shortest beginning of an id


def visible_gpus(
    target: Target, library: Callable[[], str], noted: Collection[str] = ()
) -> list[LimitDevice]:
    """Return the GPUs of a container, as their drivers describe them.

    They are those of its grant, those whose nodes it has and may open, whichever tool injected
    them, and those whose ids are `noted`. A vendor whose driver fails has no GPUs here: raises its
    fault, GH1200 to GH1206, GH1256 or GH1257, if no other vendor has a GPU on this node.
    """
    known: list[LimitDevice] = []
    first: GpuhookError | None = None
    for vendor in vendors():
        work = partial(vendor.limit_devices, library, state.host_root())
        try:
            known += limit_worker.answered(work)
        except GpuhookError as error:
            first = first or error
    if first is not None and not known:
        raise first
    granted = {node["path"] for node in target.granted.get("deviceNodes") or ()}
    return [gpu for gpu in known if gpu.id in noted or _is_held(target, gpu, granted)]


def chosen(container: str, gpus: Sequence[LimitDevice], names: Sequence[str]) -> list[LimitDevice]:
    """Return those of a container's GPUs that `names` mean, all of them without a name.

    A name is an id or the beginning of one, an index, or the id of a replica. Raises GH1780 without
    GPUs, GH1781 for an unknown name, GH1783 for instances and partitions: limits are for whole
    GPUs.
    """
    if not gpus:
        raise fault("GH1780", container=container)
    found = [_named(container, gpus, name) for name in names] or list(gpus)
    for gpu in found:
        if gpu.is_divided:
            raise fault("GH1783", gpu=gpu.id, container=container)
    return list({gpu.id: gpu for gpu in found}.values())


def _named(container: str, gpus: Sequence[LimitDevice], name: str) -> LimitDevice:
    device = replicas.device_of(name) or name
    if any(device in gpu.parts for gpu in gpus):
        raise fault("GH1783", gpu=device, container=container)
    meant = [gpu for gpu in gpus if _is_meant(gpu, device)]
    if len(meant) != 1:
        raise _unknown(container, gpus, name)
    return meant[0]


def _unknown(container: str, gpus: Sequence[LimitDevice], name: str) -> GpuhookError:
    known = ", ".join(f"{gpu.index} ({gpu.id})" for gpu in gpus)
    return fault("GH1781", name=name, container=container, gpus=known)


def _is_meant(gpu: LimitDevice, device: str) -> bool:
    is_beginning = len(device) >= _BEGINNING and gpu.id.startswith(device)
    return is_beginning or device in (gpu.id, str(gpu.index), *gpu.names)


def _is_held(target: Target, gpu: LimitDevice, granted: set[str]) -> bool:
    if gpu.path in granted:
        return True
    found = target.held.root.status(gpu.path, follow=False)
    if found is None or not stat.S_ISCHR(found.st_mode):
        return False
    rules = target.held.rules
    major, minor = os.major(found.st_rdev), os.minor(found.st_rdev)
    return rules.version == "none" or rules.verdict("c", major, minor, "rw")[0]
