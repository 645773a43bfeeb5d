# SPDX-License-Identifier: Apache-2.0
"""The inventory of a node: its driver, its GPUs, its device nodes and the driver's files."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

from gpuhook.errors import GpuhookError, fault
from gpuhook.vendors.nvidia.devices import driver_nodes, drm, mig_nodes
from gpuhook.vendors.nvidia.driver import site_rules
from gpuhook.vendors.nvidia.hot.host_fingerprint import fingerprint, mig_state, module_version
from gpuhook.vendors.nvidia.inventory.inventory import Driver, DriverAnswer, Gpu, Node
from gpuhook.vendors.nvidia.nvml import nvml_inventory
from gpuhook.vendors.nvidia.warm import nvml_library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.driver.driver_files import DriverFileFacts


@dataclass(frozen=True, slots=True)
class Roots:
    """The roots of a node's driver files, of its /dev, and of its /proc and /sys.

    Search paths are directories inside the driver root; they are searched first. `files_dir` has
    the site's rules for the driver's files.
    """

    driver: str = "/"
    dev: str = "/"
    host: str = "/"
    nvml_library: str | None = None
    library_search_paths: tuple[str, ...] = ()
    config_search_paths: tuple[str, ...] = ()
    files_dir: str = site_rules.DIRECTORY


def roots(
    driver_root: str = "/", dev_root: str | None = None, host_root: str = "/", **others: Any
) -> Roots:
    """Return absolute roots, and the other fields of Roots.

    Without a dev root, it is the driver root if that has a /dev/nvidiactl.
    """
    driver, host = os.path.abspath(driver_root), os.path.abspath(host_root)
    if dev_root is None:
        dev = driver if holds_nodes(driver) else host
    else:
        dev = os.path.abspath(dev_root)
    return Roots(driver, dev, host, **others)


def holds_nodes(root: str) -> bool:
    """Return whether the driver's device nodes are below a directory."""
    return os.path.exists(os.path.join(root, "dev/nvidiactl"))


def node(
    where: Roots,
    answer: DriverAnswer | None = None,
    *,
    require_nodes: bool = True,
    require_files: bool = True,
    create_nodes: bool = False,
    explicit_libraries: bool = False,
) -> Node:
    """Return the inventory of the node: `answer`, by default NVML's, its device nodes and files.

    Without `require_nodes`, missing and wrong device nodes are warnings; without `require_files`,
    broken files of the driver are a `files_trouble`: enough for reports, not for containers.
    `create_nodes` makes missing MIG nodes. Raises GH1200 to GH1210, and faults of driver files.
    """
    answer = answer or _ask_nvml(where)
    gpus = _completed(answer.gpus, where.host)
    found, trouble = _files(
        where, answer.driver, require=require_files, explicit_libraries=explicit_libraries
    )
    losses = tuple(gpu.loss for gpu in gpus if gpu.loss)
    numbers = driver_nodes.majors(where.host)
    devices = driver_nodes.find(where.dev, numbers, gpus, require=require_nodes)
    mig = mig_nodes.find(where.host, where.dev, numbers, gpus, create=create_nodes)
    graphics = drm.find(where.host, where.dev, gpus)
    return Node(
        driver=replace(answer.driver, version=found.version or answer.driver.version),
        gpus=mig.gpus,
        device_nodes=devices.nodes + mig.nodes + graphics.nodes,
        files=found.files,
        links=found.links,
        library_dirs=found.library_dirs,
        majors=numbers,
        driver_root=where.driver,
        dev_root=where.dev,
        masks_params=driver_nodes.masks_params(where.host),
        fingerprint=fingerprint(where.host, found.libcuda, answer.mig_state),
        files_trouble=trouble,
        warnings=answer.warnings + losses + found.warnings + devices.warnings + graphics.warnings,
    )


def _files(
    where: Roots, driver: Driver, *, require: bool, explicit_libraries: bool
) -> tuple[DriverFileFacts, str]:
    """Return the driver's files and "", or, without `require`, no files and the fault's message."""
    from gpuhook.vendors.nvidia.driver import driver_files

    try:
        found = driver_files.find(where, driver.version, explicit_libraries=explicit_libraries)
        if driver.version is not None and found.version != driver.version:
            raise fault("GH1207", nvml=driver.version, root=where.driver, tree=found.version)
    except GpuhookError as trouble:
        if require:
            raise
        none = driver_files.DriverFileFacts((), (), (), libcuda="", version="")
        return none, trouble.message
    return found, ""


def _ask_nvml(where: Roots) -> DriverAnswer:
    path = nvml_library.find(
        where.driver, library=where.nvml_library, search_paths=where.library_search_paths
    )
    loaded = module_version(where.host) or None
    with nvml_inventory.opened(path, loaded) as answering:
        # Before the GPUs: a change meanwhile makes the spec stale, not wrong.
        state = mig_state(where.host)
        driver = Driver(
            version=answering.driver_version() or nvml_library.version_of(path),
            module_version=loaded,
            cuda=answering.cuda_version(),
            nvml=path,
        )
        return DriverAnswer(driver, answering.gpus(), state)


def _completed(gpus: tuple[Gpu, ...], host_root: str) -> tuple[Gpu, ...]:
    """Add the kernel's facts: NUMA nodes, DRM nodes, minors that an old NVML does not report."""
    by_bus = {gpu.pci_bus_id: gpu for gpu in driver_nodes.proc_gpus(host_root)}
    unseen = [known for bus, known in by_bus.items() if bus not in {g.pci_bus_id for g in gpus}]
    nameless = [gpu for gpu in gpus if gpu.pci_bus_id is None]
    whole = []
    for gpu in gpus:
        known = by_bus.get(gpu.pci_bus_id or "")
        if known is None and len(nameless) == len(unseen) == 1 and gpu is nameless[0]:
            known = unseen[0]  # the one GPU that NVML has no handle for is the one without a name
        if known is not None:
            gpu = replace(
                gpu,
                pci_bus_id=known.pci_bus_id,
                minor=known.minor if gpu.minor is None else gpu.minor,
                uuid=gpu.uuid or known.uuid,
                name=gpu.name or known.model,
            )
        bus = gpu.pci_bus_id
        numa_node, drm_names = driver_nodes.numa_node(host_root, bus), drm.names(host_root, bus)
        whole.append(replace(gpu, numa_node=numa_node, drm=drm_names))
    return tuple(whole)
