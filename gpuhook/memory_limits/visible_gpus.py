# SPDX-License-Identifier: Apache-2.0
"""The GPUs of the node that a running container can use, and the selection of some by name."""

from __future__ import annotations

import os
import stat

from gpuhook.errors import fault
from gpuhook.host.hot import state
from gpuhook.memory_limits import nvml_worker
from gpuhook.request import replicas
from gpuhook.vendors.nvidia.hot import host_fingerprint
from gpuhook.vendors.nvidia.nvml import nvml_inventory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gpuhook.errors import GpuhookError
    from gpuhook.target.running_container import Target
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu

_BEGINNING = len("GPU-12345678")  # the shortest beginning of a UUID


def visible_gpus(target: Target, library: str, noted: Collection[str] = ()) -> list[Gpu]:
    """Return the GPUs of a container, as the NVML at `library` describes them.

    They are those of its grant, those whose nodes it has and may open, whichever tool injected
    them, and those whose UUIDs are `noted`. Raises GH1202 to GH1206, GH1256, GH1257.
    """
    known = nvml_worker.answered(lambda: _of_node(library))
    granted = {node["path"] for node in target.granted.get("deviceNodes") or ()}
    return [
        gpu for gpu in known if gpu.uuid and (gpu.uuid in noted or _is_held(target, gpu, granted))
    ]


def _of_node(library: str) -> tuple[Gpu, ...]:
    with nvml_inventory.opened(
        library, host_fingerprint.module_version(state.host_root())
    ) as driver:
        return tuple(driver.gpus())


def chosen(container: str, gpus: Sequence[Gpu], names: Sequence[str]) -> list[Gpu]:
    """Return those of a container's GPUs that `names` mean, all of them without a name.

    A name is a UUID or the beginning of one, an index, or the id of a replica. Raises GH1780
    without GPUs, GH1781 for an unknown name, GH1783 for MIG: the driver limits whole GPUs.
    """
    if not gpus:
        raise fault("GH1780", container=container)
    found = [_named(container, gpus, name) for name in names] or list(gpus)
    for gpu in found:
        if gpu.mig_mode == "enabled":
            raise fault("GH1783", gpu=gpu.uuid, container=container)
    return list({gpu.uuid: gpu for gpu in found}.values())


def _named(container: str, gpus: Sequence[Gpu], name: str) -> Gpu:
    device = replicas.device_of(name) or name
    for gpu in gpus:
        if any(device in (one.uuid, f"{gpu.index}:{one.index}") for one in gpu.instances):
            raise fault("GH1783", gpu=device, container=container)
    meant = [gpu for gpu in gpus if _is_meant(gpu, device)]
    if len(meant) != 1:
        raise _unknown(container, gpus, name)
    return meant[0]


def _unknown(container: str, gpus: Sequence[Gpu], name: str) -> GpuhookError:
    known = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus)
    return fault("GH1781", name=name, container=container, gpus=known)


def _is_meant(gpu: Gpu, device: str) -> bool:
    is_beginning = len(device) >= _BEGINNING and str(gpu.uuid).startswith(device)
    return is_beginning or device in (gpu.uuid, str(gpu.index))


def _is_held(target: Target, gpu: Gpu, granted: set[str]) -> bool:
    path = f"/dev/nvidia{gpu.minor}"
    if path in granted:
        return True
    found = target.held.root.status(path, follow=False)
    if found is None or not stat.S_ISCHR(found.st_mode):
        return False
    rules = target.held.rules
    major, minor = os.major(found.st_rdev), os.minor(found.st_rdev)
    return rules.version == "none" or rules.verdict("c", major, minor, "rw")[0]
