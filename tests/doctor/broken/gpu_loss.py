# SPDX-License-Identifier: Apache-2.0
"""GPUs that fell off the PCI bus, with the resulting states of the driver."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuhook.errors import fault
from gpuhook.node_facts.sources import node_readings
from gpuhook.vendors.nvidia.inventory import dump
from tests.doctor.broken.containers import reading_of, running
from tests.doctor.case import Broken, FaultCase
from tests.doctor.parts.driver import SPEC
from tests.simulated import nvml_profile

VERSIONS = ("/sys/module/nvidia/version", "/proc/driver/nvidia/version")


def bus_id(case: FaultCase, index: int) -> str:
    """Return the PCI bus id of a GPU in the kernel's form."""
    return (case.node.node.gpus[index].pci_bus_id or "")[4:].lower()


def fall(case: FaultCase, *indices: int, is_kept_by_driver: bool = False) -> None:
    """Remove GPUs from the PCI bus and from the answers of the driver."""
    for index in indices:
        shutil.rmtree(case.path(f"/sys/bus/pci/devices/{bus_id(case, index)}"))
        if not is_kept_by_driver:
            shutil.rmtree(case.path(f"/proc/driver/nvidia/gpus/{bus_id(case, index)}"))
    rest = [gpu for gpu in case.node.node.gpus if gpu.index not in indices]
    gpus = tuple(replace(gpu, index=number) for number, gpu in enumerate(rest))
    answers = nvml_profile.text(replace(case.node.node, gpus=gpus))
    Path(case.node.nvml_profile).write_text(answers, encoding="utf-8")


def note_node(case: FaultCase) -> None:
    """Write the record of generate-cdi: UUIDs, minors and PCI addresses."""
    facts: dict[str, Any] = dump.as_dict(case.node.node)
    case.write("/run/gpuhook/node.json", json.dumps(facts))


def hold(case: FaultCase, *indices: int, **facts: Any) -> None:
    """Add a running container with the nodes of these GPUs."""
    minors = [case.node.node.gpus[index].minor for index in indices]
    nodes = ["/dev/nvidiactl", *(f"/dev/nvidia{minor}" for minor in minors)]
    running(case, nodes=nodes, **facts)


def every(case: FaultCase) -> None:
    """Remove every GPU; the driver answers that it has none."""
    fall(case, *range(len(case.node.node.gpus)))


def _every_without_nvml(case: FaultCase) -> None:
    every(case)
    with Path(case.node.nvml_profile).open("a", encoding="utf-8") as profile:
        profile.write("init 9\n")


def every_unloaded(case: FaultCase) -> None:
    """Remove every GPU and the kernel module."""
    every(case)
    for path in VERSIONS:
        case.remove(path)
    shutil.rmtree(case.path("/proc/driver/nvidia"))
    for gpu in case.node.node.gpus:
        case.remove(f"/dev/nvidia{gpu.minor}")


def _without_spec(case: FaultCase) -> None:
    every_unloaded(case)
    case.remove(SPEC)
    case.readings[node_readings.CONTAINERS]["containers"].clear()
    hold(case, 0, injected_by=["nvidia-legacy"])


def _with_its_node(case: FaultCase) -> None:
    fall(case, 3)
    path = f"/dev/nvidia{case.node.node.gpus[3].minor}"
    case.remove(path)
    hold(case, 3, findings=[reading_of(fault("GH1123", container="broken", nodes=path))])


BROKEN = [
    Broken("every GPU off the bus", "driver.gpu", every, "h100x8"),
    Broken("the only GPU off the bus", "driver.gpu", every),
    Broken("every GPU off the bus, NVML fails", "driver.gpu", _every_without_nvml, "h100x8"),
    Broken("every GPU off the bus, no module", "driver.gpu", every_unloaded, "h100x8"),
    Broken("a container alone has the GPU", "driver.gpu", _without_spec, "h100x8"),
    Broken("every divided GPU off the bus", "driver.gpu", every_unloaded, "a100-mig"),
    Broken("one GPU off the bus", "driver.bus", lambda case: fall(case, 3), "h100x8"),
    Broken("one GPU off the bus, with its node", "driver.bus", _with_its_node, "h100x8"),
    Broken(
        "one GPU off the bus that the driver keeps",
        "driver.bus",
        lambda case: fall(case, 3, is_kept_by_driver=True),
        "h100x8",
    ),
]
