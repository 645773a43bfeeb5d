# SPDX-License-Identifier: Apache-2.0
"""The driver of a healthy node, in addition to that of every simulated node."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

from gpuhook.cdi import spec_file
from gpuhook.node_facts.sources import node_readings
from gpuhook.vendors.nvidia.spec.generate_options import Choices
from gpuhook.vendors.nvidia.spec.gpu_spec import describe
from gpuhook.vendors.spec_choices import DEFAULT_HOOK_PATH
from tests.doctor.case import FaultCase, part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import Node

RELEASE = "6.8.0-45-generic"
SPEC = "/etc/cdi/nvidia.yaml"
_ICDS = {
    "/etc/vulkan/icd.d/nvidia_icd.json": {"ICD": {"library_path": "libGLX_nvidia.so.0"}},
    "/etc/vulkan/implicit_layer.d/nvidia_layers.json": {
        "layers": [{"name": "VK_LAYER_NV_optimus", "library_path": "libGLX_nvidia.so.0"}]
    },
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json": {"ICD": {"library_path": "libEGL_nvidia.so.0"}},
}
_PLATFORMS = "/usr/share/egl/egl_external_platform.d"


@part
def add_pci(case: FaultCase) -> None:
    """Put the GPUs on the PCI bus, with NVSwitches if there are eight."""
    for gpu in case.node.node.gpus:
        add_pci_device(case, (gpu.pci_bus_id or "")[4:].lower(), "0x030200", "nvidia")
    if has_switches(case):
        add_pci_device(case, "0000:05:00.0", "0x068000", "nvidia-nvswitch")
        case.write("/proc/driver/nvidia-nvswitch/devices/0000:05:00.0/information", "NVSwitch\n")


def add_pci_device(case: FaultCase, bus_id: str, device_class: str, driver: str) -> None:
    """Put an NVIDIA device on the PCI bus, bound to a driver."""
    directory = f"/sys/bus/pci/devices/{bus_id}"
    case.write(f"{directory}/vendor", "0x10de\n")
    case.write(f"{directory}/class", f"{device_class}\n")
    bind(case, bus_id, driver)


def bind(case: FaultCase, bus_id: str, driver: str) -> None:
    """Bind a device of the PCI bus to a driver."""
    case.path(f"/sys/bus/pci/drivers/{driver}/{bus_id}").touch()
    link = case.path(f"/sys/bus/pci/devices/{bus_id}/driver")
    link.unlink(missing_ok=True)
    link.symlink_to(f"../../../../bus/pci/drivers/{driver}")


def has_switches(case: FaultCase) -> bool:
    """Return whether the machine has NVSwitches."""
    return len(case.node.node.gpus) == 8


@part
def add_kernel(case: FaultCase) -> None:
    """Add the kernel's release, the module among its modules, and a distribution."""
    case.write("/etc/debian_version", "12.5\n")
    case.write("/proc/sys/kernel/osrelease", f"{RELEASE}\n")
    case.write(f"/lib/modules/{RELEASE}/modules.dep", "updates/dkms/nvidia.ko.zst:\n")
    case.path("/run/systemd/system/x").parent.mkdir(exist_ok=True)


@part
def add_links(case: FaultCase) -> None:
    """Add the links by which systemd finds device nodes."""
    case.write("/sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n")
    for device in case.node.node.device_nodes:
        link = case.path(f"/dev/char/{device.major}:{device.minor}")
        link.symlink_to(os.path.relpath(device.path, "/dev/char"))


@part
def add_daemons(case: FaultCase) -> None:
    """Add the driver's running daemons."""
    units = case.readings.setdefault(node_readings.UNITS, {})
    units["nvidia-persistenced.service"] = unit()
    if has_switches(case):
        units["nvidia-fabricmanager.service"] = unit()


def unit(active: str = "active", enabled: str = "enabled", result: str = "success") -> Any:
    """Return the state of a unit."""
    return {"load": "loaded", "active": active, "result": result, "enabled": enabled}


@part
def add_manifests(case: FaultCase) -> None:
    """Write the driver's manifests of Vulkan and EGL."""
    manifests: dict[str, Any] = dict(_ICDS)
    for name in case.path(f"{_PLATFORMS}/x").parent.iterdir():
        platform = name.name.removesuffix(".json").rpartition("_")[2]
        library = f"libnvidia-egl-{platform}.so.1"
        manifests[f"{_PLATFORMS}/{name.name}"] = {"ICD": {"library_path": library}}
    for path, manifest in manifests.items():
        case.write(path, json.dumps({"file_format_version": "1.0.0", **manifest}))


@part
def add_spec(case: FaultCase) -> None:
    """Write a CDI spec of gpuhook, and its hook."""
    if not case.path(DEFAULT_HOOK_PATH).exists():
        case.write(DEFAULT_HOOK_PATH, "#!/bin/sh\nexit 0\n", mode=0o755)
    write_spec(case)


def write_spec(case: FaultCase, path: str = SPEC) -> None:
    """Write the spec that generate-cdi writes on this node."""
    document = describe(own(case), Choices()).spec
    case.write(path, spec_file.document(document, "json" if path.endswith(".json") else "yaml"))


def own(case: FaultCase) -> Node:
    """Return the facts of the node with its own paths, not those of this machine."""
    facts = case.node.node
    return replace(
        facts,
        files=tuple(replace(file, host_path=file.container_path) for file in facts.files),
        device_nodes=tuple(replace(node, host_path=node.path) for node in facts.device_nodes),
        driver_root="/",
        dev_root="/",
    )


def toolkit_spec(case: FaultCase, *, version: str | None = None) -> dict[str, Any]:
    """Return the spec that nvidia-ctk writes, as far as checks read it.

    Device nodes have their numbers, and hooks are NVIDIA's.
    """
    facts = own(case)
    made = describe(facts, Choices(hooks="none")).spec
    numbers = {device.path: device for device in facts.device_nodes}
    document: dict[str, Any] = json.loads(json.dumps(made))
    for part_of in (document, *document["devices"]):
        for node in part_of["containerEdits"].get("deviceNodes") or ():
            number = numbers[node["path"]]
            node |= {"major": number.major, "minor": number.minor}
    hook = "/usr/bin/nvidia-cdi-hook"
    case.write(hook, "#!/bin/sh\nexit 0\n", mode=0o755)
    commands = [
        ["update-ldcache", "--folder", "/usr/lib/x86_64-linux-gnu"],
        ["enable-cuda-compat", f"--host-driver-version={version or facts.driver.version}"],
        ["disable-device-node-modification"],
    ]
    document["containerEdits"]["hooks"] = [
        {
            "hookName": "createContainer",
            "path": hook,
            "args": ["nvidia-cdi-hook", *words],
            "env": ["NVIDIA_CTK_DEBUG=false"],
        }
        for words in commands
    ]
    return document


def write_toolkit_spec(case: FaultCase) -> None:
    """Replace gpuhook's spec and hook by nvidia-ctk's spec."""
    case.write(SPEC, json.dumps(toolkit_spec(case)))
    case.remove(DEFAULT_HOOK_PATH)
