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
from gpuhook.node import node_readings
from gpuhook.vendors.nvidia.inventory import dump_file
from tests.doctor.parts import driver, kubernetes
from tests.doctor.scene import Scene
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
    """A healthy node: `make` makes it in a directory; `warned` are checks that warn, rightly."""

    name: str
    make: Callable[[Path], Scene]
    warned: tuple[str, ...] = ()


def without_gpu(directory: Path) -> Scene:
    """Make a host with systemd, cgroups of version 2, and nothing of NVIDIA's."""
    facts = replace(dump_file.load("t4"), gpus=(), files=(), links=(), device_nodes=())
    root = str(directory)
    scene = Scene(directory, SimulatedNode(root, root, root, facts, "", ""))
    _host(scene)
    return scene


def with_gpu(
    directory: Path,
    profile: str = "t4",
    *,
    layout: Layout = "flat",
    version: str = VERSION,
    is_open: bool = False,
    persistenced: bool = True,
) -> Scene:
    """Make a host with a driver of that version, its GPUs on the bus, and no /dev/char links."""
    path = os.path.join(dump_file.PROFILES, f"{profile}.yaml")
    with open(path, "rb") as stream:
        content = stream.read().replace(VERSION.encode(), version.encode())
    made = make_node(directory, dump_file.parse(content, path), layout=layout)
    scene = Scene(directory, made)
    kind = "UNIX Open Kernel Module for x86_64" if is_open else "UNIX x86_64 Kernel Module"
    scene.write(
        "/proc/driver/nvidia/version",
        f"NVRM version: NVIDIA {kind}  {version}  Release Build  (dvs-builder@U22)\n",
    )
    driver.add_pci(scene)
    for file in made.node.files:
        if file.host_path.endswith(".json"):
            _write_manifest(file.host_path)
    if driver.has_switches(scene):
        process(scene, "nv-fabricmanager", "/usr/bin/nv-fabricmanager")
    if persistenced:
        process(scene, "nvidia-persistenced", "/usr/bin/nvidia-persistenced", "--persistence-mode")
    _host(scene)
    return scene


def _write_manifest(path: str) -> None:
    """Write a manifest of Vulkan or EGL that names the driver's library for it."""
    library = "libGLX_nvidia.so.0"
    if "egl_vendor" in path:
        library = "libEGL_nvidia.so.0"
    elif "external_platform" in path:
        library = f"libnvidia-egl-{path.removesuffix('.json').rpartition('_')[2]}.so.1"
    with open(path, "w", encoding="utf-8") as stream:
        json.dump({"ICD": {"library_path": library}}, stream)


def _host(scene: Scene) -> None:
    scene.write("/sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n")
    scene.path("/run/systemd/system/x").parent.mkdir(exist_ok=True)
    scene.write("/proc/sys/kernel/osrelease", f"{driver.RELEASE}\n")
    units(scene)
    processes(scene)
    programs(scene)
    scene.readings[node_readings.CONTAINERS] = {"looked_at": 2, "containers": [], "trouble": []}
    scene.readings[node_readings.SELF] = {
        "version": gpuhook.__version__,
        "python": "3.12.3",
        "executable": "/opt/venv/bin/python",
        "package": "/opt/venv/lib/python3.12/site-packages/gpuhook",
    }


def units(scene: Scene) -> dict[str, Any]:
    """Return the units, to be changed."""
    found: dict[str, Any] = scene.readings.setdefault(node_readings.UNITS, {})
    return found


def processes(scene: Scene) -> list[dict[str, Any]]:
    """Return the processes, to be changed."""
    found: list[dict[str, Any]] = scene.readings.setdefault(node_readings.PROCESSES, [])
    return found


def programs(scene: Scene) -> dict[str, Any]:
    """Return what programs tell of themselves, to be changed."""
    found: dict[str, Any] = scene.readings.setdefault(node_readings.PROGRAMS, {})
    return found


def process(scene: Scene, name: str, *argv: str) -> None:
    """Have a daemon run, since a moment before now, as one that has just read what it reads."""
    listed = processes(scene)
    words = argv or (f"/usr/bin/{name}",)
    listed.append({
        "pid": 700 + len(listed),
        "name": name,
        "argv": list(words),
        "started": round(time.time() + 60, 2),
        "exe": words[0],
    })  # fmt: skip


def install(scene: Scene, *names: str, into: str = "/usr/bin", **versions: str) -> None:
    """Put programs into a directory; `versions` are what they say of themselves."""
    for name in names:
        scene.write(f"{into}/{name}", "#!/bin/sh\nexit 0\n", 0o755)
    for name, version in versions.items():
        name = name.replace("_", "-")
        if name not in names:
            scene.write(f"{into}/{name}", "#!/bin/sh\nexit 0\n", 0o755)
        programs(scene)[name] = {"path": f"{into}/{name}", "version": version}


def unit(scene: Scene, *names: str) -> None:
    """Have systemd know units that run."""
    units(scene).update({name: driver.unit() for name in names})


def move(scene: Scene, old: str, new: str) -> None:
    """Move a directory of the node."""
    scene.path(old).rename(scene.path(new))


def debian(scene: Scene) -> None:
    """Have the packages be Debian's or Ubuntu's."""
    scene.write("/etc/debian_version", "trixie/sid\n")
    install(scene, "apt-get", "dpkg")


def kubelet(scene: Scene, root: str = kubernetes.KUBELET, *, has_config: bool = True) -> None:
    """Add a kubelet's directory and its sockets."""
    socket(scene, f"{root}/device-plugins/kubelet.sock")
    socket(scene, f"{root}/pod-resources/kubelet.sock")
    scene.path(f"{root}/pods/x").parent.mkdir(exist_ok=True)
    if has_config:
        text = "kind: KubeletConfiguration\ncgroupDriver: systemd\n"
        scene.write(f"{root}/config.yaml", text)


def socket(scene: Scene, path: str) -> None:
    """Make a socket that nobody listens on."""
    os.mknod(scene.path(path), stat.S_IFSOCK | 0o755)


def registered(
    scene: Scene, ids: list[str] | None = None, root: str = kubernetes.KUBELET
) -> dict[str, list[str]]:
    """Have a plugin's socket there and its GPUs registered; by UUID if no ids are given."""
    known = [gpu.uuid or "" for gpu in scene.node.node.gpus] if ids is None else ids
    resources = {"nvidia.com/gpu": known}
    socket(scene, f"{root}/device-plugins/nvidia-gpu.sock")
    text = '{"Data": {"PodDeviceEntries": null, "RegisteredDevices": %s}, "Checksum": 1}'
    listed = str(resources).replace("'", '"')
    scene.write(f"{root}/device-plugins/kubelet_internal_checkpoint", text % listed, 0o600)
    return resources


def cluster(scene: Scene, resources: dict[str, list[str]], *classes: str, **labels: str) -> None:
    """Have the API server tell of the node, of what it offers, and of RuntimeClasses."""
    counts = {name: str(len(ids)) for name, ids in resources.items()}
    scene.readings[node_readings.API] = {
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
    scene: Scene, path: str, *, hook: str = "/usr/bin/nvidia-cdi-hook", prefix: str = ""
) -> None:
    """Write the spec of nvidia-ctk 1.18; with `prefix`, as from a driver that lies below it."""
    document = driver.toolkit_spec(scene)
    text = json.dumps(document).replace("/usr/bin/nvidia-cdi-hook", hook)
    if hook != "/usr/bin/nvidia-cdi-hook":
        scene.remove("/usr/bin/nvidia-cdi-hook")
        scene.write(hook, "#!/bin/sh\nexit 0\n", 0o755)
    if prefix:
        text = text.replace('"hostPath": "/', f'"hostPath": "{prefix}/')
    scene.write(path, text)
