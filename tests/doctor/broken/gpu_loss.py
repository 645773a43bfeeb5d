# SPDX-License-Identifier: Apache-2.0
"""GPUs that fell off the PCI bus, in the states that the driver is in then."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuhook.errors import fault
from gpuhook.node import node_readings
from gpuhook.vendors.nvidia.inventory import dump
from tests.doctor.broken.containers import running, told
from tests.doctor.parts.driver import SPEC
from tests.doctor.scene import Broken, Scene
from tests.simulated import nvml_profile

VERSIONS = ("/sys/module/nvidia/version", "/proc/driver/nvidia/version")


def bus_id(scene: Scene, index: int) -> str:
    """Return the PCI bus id of a GPU in the kernel's form."""
    return (scene.node.node.gpus[index].pci_bus_id or "")[4:].lower()


def fall(scene: Scene, *indices: int, is_kept_by_driver: bool = False) -> None:
    """Remove GPUs from the PCI bus, and from what the driver answers."""
    for index in indices:
        shutil.rmtree(scene.path(f"/sys/bus/pci/devices/{bus_id(scene, index)}"))
        if not is_kept_by_driver:
            shutil.rmtree(scene.path(f"/proc/driver/nvidia/gpus/{bus_id(scene, index)}"))
    rest = [gpu for gpu in scene.node.node.gpus if gpu.index not in indices]
    gpus = tuple(replace(gpu, index=number) for number, gpu in enumerate(rest))
    answers = nvml_profile.text(replace(scene.node.node, gpus=gpus))
    Path(scene.node.nvml_profile).write_text(answers, encoding="utf-8")


def note_node(scene: Scene) -> None:
    """Write what generate-cdi notes of the node: UUIDs, minors and PCI addresses."""
    facts: dict[str, Any] = dump.as_dict(scene.node.node)
    scene.write("/run/gpuhook/node.json", json.dumps(facts))


def hold(scene: Scene, *indices: int, **facts: Any) -> None:
    """Have a container run that has the nodes of these GPUs."""
    minors = [scene.node.node.gpus[index].minor for index in indices]
    nodes = ["/dev/nvidiactl", *(f"/dev/nvidia{minor}" for minor in minors)]
    running(scene, nodes=nodes, **facts)


def every(scene: Scene) -> None:
    """Remove every GPU; the driver answers, and has none."""
    fall(scene, *range(len(scene.node.node.gpus)))


def _every_without_nvml(scene: Scene) -> None:
    every(scene)
    with Path(scene.node.nvml_profile).open("a", encoding="utf-8") as profile:
        profile.write("init 9\n")


def every_unloaded(scene: Scene) -> None:
    """Remove every GPU and the kernel module."""
    every(scene)
    for path in VERSIONS:
        scene.remove(path)
    shutil.rmtree(scene.path("/proc/driver/nvidia"))
    for gpu in scene.node.node.gpus:
        scene.remove(f"/dev/nvidia{gpu.minor}")


def _without_spec(scene: Scene) -> None:
    every_unloaded(scene)
    scene.remove(SPEC)
    scene.readings[node_readings.CONTAINERS]["containers"].clear()
    hold(scene, 0, injected_by=["nvidia-legacy"])


def _with_its_node(scene: Scene) -> None:
    fall(scene, 3)
    path = f"/dev/nvidia{scene.node.node.gpus[3].minor}"
    scene.remove(path)
    hold(scene, 3, findings=[told(fault("GH1123", container="broken", nodes=path))])


BROKEN = [
    Broken("every GPU off the bus", "driver.gpu", every, "h100x8"),
    Broken("the only GPU off the bus", "driver.gpu", every),
    Broken("every GPU off the bus, NVML fails", "driver.gpu", _every_without_nvml, "h100x8"),
    Broken("every GPU off the bus, no module", "driver.gpu", every_unloaded, "h100x8"),
    Broken("a container alone has the GPU", "driver.gpu", _without_spec, "h100x8"),
    Broken("every divided GPU off the bus", "driver.gpu", every_unloaded, "a100-mig"),
    Broken("one GPU off the bus", "driver.bus", lambda scene: fall(scene, 3), "h100x8"),
    Broken("one GPU off the bus, with its node", "driver.bus", _with_its_node, "h100x8"),
    Broken(
        "one GPU off the bus that the driver keeps",
        "driver.bus",
        lambda scene: fall(scene, 3, is_kept_by_driver=True),
        "h100x8",
    ),
]
