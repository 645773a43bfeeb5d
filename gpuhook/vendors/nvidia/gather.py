# SPDX-License-Identifier: Apache-2.0
"""A whole node, asked for its driver, its GPUs, its device nodes and the driver's files."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from gpuhook.errors import GpuhookError, fault
from gpuhook.vendors.nvidia import mig_nodes, nodes, nvml, nvml_library
from gpuhook.vendors.nvidia.freshness import fingerprint, mig_state, module_version
from gpuhook.vendors.nvidia.inventory import Driver, Gpu, Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.files import Found


@dataclass(frozen=True, slots=True)
class Roots:
    """Where the parts of a node are: its driver's user space, its /dev, its /proc and /sys."""

    driver: str = "/"
    dev: str = "/"
    host: str = "/"


@dataclass(frozen=True, slots=True)
class Told:
    """What NVML, or /proc alone, tells of a node.

    `mig_state` is what freshness.mig_state() said before the GPUs were looked at, so that these
    cannot be older.
    """

    driver: Driver
    gpus: tuple[Gpu, ...]
    mig_state: str
    warnings: tuple[str, ...] = ()


def roots(driver_root: str = "/", dev_root: str | None = None, host_root: str = "/") -> Roots:
    """Return absolute roots; without a dev root, the driver root if it has a /dev/nvidiactl."""
    driver, host = os.path.abspath(driver_root), os.path.abspath(host_root)
    if dev_root is not None:
        return Roots(driver, os.path.abspath(dev_root), host)
    has_nodes = os.path.exists(os.path.join(driver, "dev/nvidiactl"))
    return Roots(driver, driver if has_nodes else host, host)


def node(
    where: Roots,
    *,
    nvml_library_path: str | None = None,
    library_search_paths: tuple[str, ...] = (),
    config_search_paths: tuple[str, ...] = (),
    require_nodes: bool = True,
    require_files: bool = True,
    create_nodes: bool = False,
) -> Node:
    """Return all that the node has. Raises GH1200 to GH1212, and what the driver's files raise.

    Without `require_nodes`, missing and wrong device nodes are warnings: enough for looking at a
    node, too little for giving its GPUs away. Without `require_files`, a driver whose files are
    incomplete is a node without files and with its `files_trouble`. With `create_nodes`, capability
    nodes that MIG instances lack are made; without, or where that fails, such an instance has a
    trouble.
    """
    told = _ask_nvml(where, nvml_library_path, library_search_paths)
    return assembled(
        where,
        told,
        library_search_paths=library_search_paths,
        config_search_paths=config_search_paths,
        require_nodes=require_nodes,
        require_files=require_files,
        create_nodes=create_nodes,
    )


def assembled(
    where: Roots,
    told: Told,
    *,
    library_search_paths: tuple[str, ...] = (),
    config_search_paths: tuple[str, ...] = (),
    require_nodes: bool = True,
    require_files: bool = True,
    create_nodes: bool = False,
) -> Node:
    """Return the node of which `told` is known, with its device nodes and the driver's files.

    As node(), but for the faults of NVML.
    """
    driver = told.driver
    gpus, warnings = _completed(told.gpus, where.host)
    search_paths = (library_search_paths, config_search_paths)
    found, trouble = _files(where, driver.version, search_paths)
    if trouble is not None and require_files:
        raise trouble
    numbers = nodes.majors(where.host)
    devices = nodes.find(where.dev, numbers, gpus, require=require_nodes)
    mig = mig_nodes.find(where.host, where.dev, numbers, gpus, create=create_nodes)
    return Node(
        driver=replace(driver, version=found.version or driver.version),
        gpus=mig.gpus,
        device_nodes=devices.nodes + mig.nodes,
        files=found.files,
        links=found.links,
        library_dirs=found.library_dirs,
        majors=numbers,
        driver_root=where.driver,
        dev_root=where.dev,
        masks_params=nodes.masks_params(where.host),
        fingerprint=fingerprint(where.host, found.libcuda, told.mig_state),
        files_trouble=trouble.message if trouble else "",
        warnings=(*told.warnings, *warnings, *found.warnings, *devices.warnings),
    )


def _files(
    where: Roots, version: str | None, search_paths: tuple[tuple[str, ...], tuple[str, ...]]
) -> tuple[Found, GpuhookError | None]:
    """Return the driver's files, or none of them and what is wrong with them.

    `search_paths` are those of libraries and those of configuration files.
    """
    from gpuhook.vendors.nvidia import files

    try:
        found = files.find(
            where.driver,
            version,
            library_search_paths=search_paths[0],
            config_search_paths=search_paths[1],
            host_root=where.host,
        )
        if version is not None and found.version != version:
            raise fault("GH1207", nvml=version, root=where.driver, tree=found.version)
    except GpuhookError as trouble:
        return files.Found(files=(), links=(), library_dirs=(), libcuda="", version=""), trouble
    return found, None


def _ask_nvml(where: Roots, library: str | None, search_paths: tuple[str, ...]) -> Told:
    path = nvml_library.find(where.driver, library=library, search_paths=search_paths)
    loaded = module_version(where.host) or None
    with nvml.opened(path, loaded) as answering:
        # Before the GPUs: what changes meanwhile makes the description stale, not wrong.
        state = mig_state(where.host)
        driver = Driver(
            version=answering.driver_version() or nvml_library.version_of(path),
            module_version=loaded,
            cuda=answering.cuda_version(),
            nvml=path,
        )
        return Told(driver, answering.gpus(), state)


def _completed(gpus: tuple[Gpu, ...], host_root: str) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """Add what only the kernel tells: minors that an old NVML has no name for, and NUMA nodes."""
    by_bus = {gpu.pci_bus_id: gpu for gpu in nodes.proc_gpus(host_root)}
    unseen = [known for bus, known in by_bus.items() if bus not in {g.pci_bus_id for g in gpus}]
    nameless = [gpu for gpu in gpus if gpu.pci_bus_id is None]
    whole = []
    for gpu in gpus:
        known = by_bus.get(gpu.pci_bus_id or "")
        if known is None and len(nameless) == len(unseen) == 1 and gpu is nameless[0]:
            known = unseen[0]  # the one GPU that NVML has no handle for is the one it didn't name
        if known is not None:
            gpu = replace(
                gpu,
                pci_bus_id=known.pci_bus_id,
                minor=known.minor if gpu.minor is None else gpu.minor,
                uuid=gpu.uuid or known.uuid,
                name=gpu.name or known.model,
            )
        whole.append(replace(gpu, numa_node=nodes.numa_node(host_root, gpu.pci_bus_id)))
    warnings = tuple(gpu.loss for gpu in whole if gpu.loss)
    return tuple(whole), warnings
