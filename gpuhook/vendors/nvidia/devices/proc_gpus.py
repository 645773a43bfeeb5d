# SPDX-License-Identifier: Apache-2.0
"""The GPUs and MIG instances of a node by the kernel's files: no library is loaded.

No GPU is initialised. Indices are NVML's: GPUs in the order of their PCI bus ids, without excluded
ones; instances of a GPU in the order of their GPU and compute instances.
"""

from __future__ import annotations

import os

from gpuhook.vendors.nvidia.devices import driver_nodes
from gpuhook.vendors.nvidia.hot import mig_capabilities
from gpuhook.vendors.nvidia.hot.host_fingerprint import mig_state, module_version
from gpuhook.vendors.nvidia.inventory.inventory import Driver, DriverAnswer, Gpu, MigInstance

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.devices.driver_nodes import ProcGpu
    from gpuhook.vendors.nvidia.discover import Roots

_BY_INDEX = (
    "MIG instances are named only by index, in the order of their GPU and compute instances: "
    "only NVML knows their UUIDs"
)
_NO_UUID = "MIG-unknown"
_NO_GPU_UUID = "the UUID of its GPU is unknown"
_EXCLUDED = "GPU {bus} is omitted from the spec: the driver excludes it (NVreg_ExcludedGpus)"

# The CUDA version of each driver branch. Source: CUDA Toolkit Release Notes, "CUDA Toolkit and
# Corresponding Driver Versions": a toolkit is released together with a driver, whose branch has a
# libcuda of that version. A branch without a toolkit (565), or a newer one, has no entry.
_CUDA_VERSIONS = {
    384: "9.0",
    387: "9.1",
    390: "9.1",
    396: "9.2",
    410: "10.0",
    418: "10.1",
    440: "10.2",
    450: "11.0",
    455: "11.1",
    460: "11.2",
    465: "11.3",
    470: "11.4",
    495: "11.5",
    510: "11.6",
    515: "11.7",
    520: "11.8",
    525: "12.0",
    530: "12.1",
    535: "12.2",
    545: "12.3",
    550: "12.4",
    555: "12.5",
    560: "12.6",
    570: "12.8",
    575: "12.9",
    580: "13.0",
    590: "13.1",
}


def read_proc(where: Roots) -> DriverAnswer:
    """Return the driver and the GPUs of the node at `where`; unknown facts are None.

    Without a loaded kernel module there are neither GPUs nor a version.
    """
    version = module_version(where.host) or None
    # Before the GPUs: a change meanwhile makes the spec stale, not wrong.
    state = mig_state(where.host)
    known = sorted(driver_nodes.proc_gpus(where.host), key=lambda one: one.pci_bus_id)
    listed = [one for one in known if not one.is_excluded]
    gpus = tuple(_gpu(where.host, index, one) for index, one in enumerate(listed))
    return DriverAnswer(
        driver=Driver(version=version, module_version=version, cuda=cuda_version(version)),
        gpus=gpus,
        mig_state=state,
        warnings=(*driver_nodes.doubts(where.host), *_warnings(known, gpus)),
    )


def _warnings(known: list[ProcGpu], gpus: tuple[Gpu, ...]) -> tuple[str, ...]:
    found = [_EXCLUDED.format(bus=one.pci_bus_id) for one in known if one.is_excluded]
    if any(gpu.instances for gpu in gpus):
        found.append(_BY_INDEX)
    return tuple(found)


def _gpu(host_root: str, index: int, known: ProcGpu) -> Gpu:
    """Return a GPU; one with GPU instances is in MIG mode, of others the mode is unknown."""
    places = _places(host_root, known.minor)
    instances = [place for place in places or () if place[1] >= 0]
    return Gpu(
        index=index,
        uuid=known.uuid,
        minor=known.minor,
        pci_bus_id=known.pci_bus_id,
        name=known.model,
        mig_mode="enabled" if places else None,
        instances=tuple(
            _instance(position, known.uuid, place) for position, place in enumerate(instances)
        ),
    )


def _instance(index: int, gpu_uuid: str | None, place: tuple[int, int]) -> MigInstance:
    """Return an instance; for old drivers only, its UUID is known: it derives from the GPU's.

    Source: MIG User Guide, "Device Enumeration": MIG-GPU-<uuid>/<gi>/<ci> before driver 470.
    """
    return MigInstance(
        index=index,
        uuid=mig_capabilities.old_uuid(gpu_uuid, *place) if gpu_uuid else _NO_UUID,
        gpu_instance=place[0],
        compute_instance=place[1],
        trouble=None if gpu_uuid else _NO_GPU_UUID,
    )


def _places(host_root: str, minor: int | None) -> list[tuple[int, int]]:
    """Return (GPU instance, compute instance) of a GPU in order; -1 without a compute instance."""
    if minor is None:
        return []
    directory = f"{host_root.rstrip('/')}{mig_capabilities.CAPABILITIES}/gpu{minor}/mig"
    found = []
    for gpu_instance in _numbers(directory, "gi"):
        below = _numbers(f"{directory}/gi{gpu_instance}", "ci")
        found += [(gpu_instance, one) for one in below or (-1,)]
    return found


def _numbers(directory: str, prefix: str) -> list[int]:
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    rests = (name[len(prefix) :] for name in names if name.startswith(prefix))
    return sorted(int(rest) for rest in rests if rest.isascii() and rest.isdigit())


def cuda_version(version: str | None) -> str | None:
    """Return the CUDA version of the driver `version` ("580.95.05"), None if unknown."""
    branch = (version or "").partition(".")[0]
    return _CUDA_VERSIONS.get(int(branch)) if branch.isascii() and branch.isdigit() else None
