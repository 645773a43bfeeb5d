# SPDX-License-Identifier: Apache-2.0
"""Hosts without containers: one without a GPU, and one with NVIDIA's driver."""

from __future__ import annotations

import json
import os
import stat
import time
from dataclasses import dataclass, replace
from typing import Any

import gpuhook
from gpuhook.node_facts.sources import node_readings
from gpuhook.vendors import inventory_file
from gpuhook.vendors.nvidia.inventory import dump_file
from tests.doctor.case import FaultCase
from tests.doctor.parts import driver, kubernetes
from tests.simulated.node import SimulatedNode, make_node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.simulated.layouts import Layout

VERSION = "580.95.05"  # of the profiles
PERSISTENCED = "nvidia-persistenced.service"


@dataclass(frozen=True)
class RealNode:
    """A healthy node: `make` makes it in a directory; `warned` are its correct warnings."""

    name: str
    make: Callable[[Path], FaultCase]
    warned: tuple[str, ...] = ()


def without_gpu(directory: Path) -> FaultCase:
    """Make a host with systemd and cgroup v2, without NVIDIA software."""
    facts = replace(dump_file.load("t4"), gpus=(), files=(), links=(), device_nodes=())
    root = str(directory)
    case = FaultCase(directory, SimulatedNode(root, root, root, facts, "", ""))
    _host(case)
    return case


def with_gpu(
    directory: Path,
    profile: str = "t4",
    *,
    layout: Layout = "flat",
    version: str = VERSION,
    is_open: bool = False,
    persistenced: bool = True,
) -> FaultCase:
    """Make a host with a driver of that version, its GPUs on the bus, and no /dev/char links."""
    path = os.path.join(inventory_file.PROFILES, f"{profile}.yaml")
    with open(path, "rb") as stream:
        content = stream.read().replace(VERSION.encode(), version.encode())
    made = make_node(directory, dump_file.parse(content, path), layout=layout)
    case = FaultCase(directory, made)
    kind = "UNIX Open Kernel Module for x86_64" if is_open else "UNIX x86_64 Kernel Module"
    case.write(
        "/proc/driver/nvidia/version",
        f"NVRM version: NVIDIA {kind}  {version}  Release Build  (dvs-builder@U22)\n",
    )
    driver.add_pci(case)
    for file in made.node.files:
        if file.host_path.endswith(".json"):
            _write_manifest(file.host_path)
    if driver.has_switches(case):
        process(case, "nv-fabricmanager", "/usr/bin/nv-fabricmanager")
    if persistenced:
        process(case, "nvidia-persistenced", "/usr/bin/nvidia-persistenced", "--persistence-mode")
    _host(case)
    return case


def _write_manifest(path: str) -> None:
    """Write a manifest of Vulkan or EGL that names the driver's library for it."""
    library = "libGLX_nvidia.so.0"
    if "egl_vendor" in path:
        library = "libEGL_nvidia.so.0"
    elif "external_platform" in path:
        library = f"libnvidia-egl-{path.removesuffix('.json').rpartition('_')[2]}.so.1"
    with open(path, "w", encoding="utf-8") as stream:
        json.dump({"ICD": {"library_path": library}}, stream)


def _host(case: FaultCase) -> None:
    case.write("/sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n")
    case.path("/run/systemd/system/x").parent.mkdir(exist_ok=True)
    case.write("/proc/sys/kernel/osrelease", f"{driver.RELEASE}\n")
    units(case)
    processes(case)
    programs(case)
    case.readings[node_readings.CONTAINERS] = {"looked_at": 2, "containers": [], "trouble": []}
    case.readings[node_readings.SELF] = {
        "version": gpuhook.__version__,
        "python": "3.12.3",
        "executable": "/opt/venv/bin/python",
        "package": "/opt/venv/lib/python3.12/site-packages/gpuhook",
    }


def units(case: FaultCase) -> dict[str, Any]:
    """Return the units; the caller may change them."""
    found: dict[str, Any] = case.readings.setdefault(node_readings.UNITS, {})
    return found


def processes(case: FaultCase) -> list[dict[str, Any]]:
    """Return the processes; the caller may change them."""
    found: list[dict[str, Any]] = case.readings.setdefault(node_readings.PROCESSES, [])
    return found


def programs(case: FaultCase) -> dict[str, Any]:
    """Return the versions of programs; the caller may change them."""
    found: dict[str, Any] = case.readings.setdefault(node_readings.PROGRAMS, {})
    return found


def process(case: FaultCase, name: str, *argv: str) -> None:
    """Add a running daemon that has just started."""
    listed = processes(case)
    words = argv or (f"/usr/bin/{name}",)
    listed.append({
        "pid": 700 + len(listed),
        "name": name,
        "argv": list(words),
        "started": round(time.time() + 60, 2),
        "exe": words[0],
    })  # fmt: skip


def install(case: FaultCase, *names: str, into: str = "/usr/bin", **versions: str) -> None:
    """Add programs with their versions to a directory."""
    for name in names:
        case.write(f"{into}/{name}", "#!/bin/sh\nexit 0\n", 0o755)
    for name, version in versions.items():
        name = name.replace("_", "-")
        if name not in names:
            case.write(f"{into}/{name}", "#!/bin/sh\nexit 0\n", 0o755)
        programs(case)[name] = {"path": f"{into}/{name}", "version": version}


def unit(case: FaultCase, *names: str) -> None:
    """Add running units."""
    units(case).update({name: driver.unit() for name in names})


def move(case: FaultCase, old: str, new: str) -> None:
    """Move a directory of the node."""
    case.path(old).rename(case.path(new))


def debian(case: FaultCase) -> None:
    """Make the node a Debian or Ubuntu system."""
    case.write("/etc/debian_version", "trixie/sid\n")
    install(case, "apt-get", "dpkg")


def kubelet(case: FaultCase, root: str = kubernetes.KUBELET, *, has_config: bool = True) -> None:
    """Add a kubelet's directory and its sockets."""
    socket(case, f"{root}/device-plugins/kubelet.sock")
    socket(case, f"{root}/pod-resources/kubelet.sock")
    case.path(f"{root}/pods/x").parent.mkdir(exist_ok=True)
    if has_config:
        text = "kind: KubeletConfiguration\ncgroupDriver: systemd\n"
        case.write(f"{root}/config.yaml", text)


def socket(case: FaultCase, path: str) -> None:
    """Make a socket without a listener."""
    os.mknod(case.path(path), stat.S_IFSOCK | 0o755)


def registered(
    case: FaultCase, ids: list[str] | None = None, root: str = kubernetes.KUBELET
) -> dict[str, list[str]]:
    """Add a plugin's socket and its registered GPUs; the default ids are UUIDs."""
    known = [gpu.uuid or "" for gpu in case.node.node.gpus] if ids is None else ids
    resources = {"nvidia.com/gpu": known}
    socket(case, f"{root}/device-plugins/nvidia-gpu.sock")
    text = '{"Data": {"PodDeviceEntries": null, "RegisteredDevices": %s}, "Checksum": 1}'
    listed = str(resources).replace("'", '"')
    case.write(f"{root}/device-plugins/kubelet_internal_checkpoint", text % listed, 0o600)
    return resources


def cluster(case: FaultCase, resources: dict[str, list[str]], *classes: str, **labels: str) -> None:
    """Add the API server's node object and its RuntimeClasses."""
    counts = {name: str(len(ids)) for name, ids in resources.items()}
    case.readings[node_readings.API] = {
        "source": "kubectl",
        "node": {
            "name": "node-1",
            "labels": labels,
            "capacity": {"cpu": "8", **counts},
            "allocatable": {"cpu": "8", **counts},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "unschedulable": False,
        },
        "runtimeClasses": [{"name": name, "handler": name} for name in classes],
        "daemonSets": [],
        "refused": {},
    }


def spec(
    case: FaultCase, path: str, *, hook: str = "/usr/bin/nvidia-cdi-hook", prefix: str = ""
) -> None:
    """Write the spec of nvidia-ctk 1.18, for a driver below `prefix`."""
    document = driver.toolkit_spec(case)
    text = json.dumps(document).replace("/usr/bin/nvidia-cdi-hook", hook)
    if hook != "/usr/bin/nvidia-cdi-hook":
        case.remove("/usr/bin/nvidia-cdi-hook")
        case.write(hook, "#!/bin/sh\nexit 0\n", 0o755)
    if prefix:
        text = text.replace('"hostPath": "/', f'"hostPath": "{prefix}/')
    case.write(path, text)
