# SPDX-License-Identifier: Apache-2.0
"""Healthy nodes with AMD GPUs, alone and in addition to NVIDIA's."""

from __future__ import annotations

import json
import os
import stat
from functools import partial
from pathlib import Path
from typing import Any

from gpuhook.cdi import spec_notes
from gpuhook.containers.hot import ledger
from gpuhook.vendors.amd.spec import amd_spec
from gpuhook.vendors.spec.spec_choices import SpecChoices
from tests.doctor import case as cases
from tests.doctor.parts import kubernetes
from tests.simulated import amd_tree
from tests.simulated.amd_profiles import RENDER_GROUP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
    from tests.doctor.case import FaultCase

SPEC, TOOLS_SPEC = "/var/run/cdi/amd.yaml", "/etc/cdi/amd.json"
DAEMON = "/etc/docker/daemon.json"
ENTRY = "/run/gpuhook/containers/00000000-trainer.json"
SOCKET = f"{kubernetes.PLUGINS}/amd.com_gpu"
BOUND = "/sys/module/amdgpu/drivers/pci:amdgpu"
HOME = "/home/amir"
RUNTIME = {"runtimes": {"amd": {"path": "amd-container-runtime", "runtimeArgs": []}}}
MODE = stat.S_IFCHR


def add(case: FaultCase, profile: str) -> AmdNode:
    """Add the AMD GPUs of a profile, a spec of gpuhook, and a container with the first device."""
    node = amd_tree.build(case.root, profile, real_nodes=True).node
    case.write(SPEC, json.dumps(spec(node)))
    first = next(device for _, device in node.devices())
    held = {
        "schema": ledger.SCHEMA, "id": "trainer", "root": "/run/runc", "since": 1.0,
        "devices": [f"amd.com/gpu={first.id}"], "nodes": ["/dev/kfd", first.render_path],
    }  # fmt: skip
    case.write(ENTRY, json.dumps(held))
    case.write("/run/runc/trainer/state.json", "{}")
    return node


def spec(node: AmdNode) -> dict[str, Any]:
    """Return the spec that `gpuhook refresh` writes."""
    found = amd_spec.describe(node, SpecChoices())
    return dict(spec_notes.noted(found.spec, found.token, (), SpecChoices().newest))


def tools_spec(case: FaultCase) -> dict[str, Any]:
    """Return the spec that amd-ctk writes: card, render node and /dev/kfd with their numbers."""

    def numbered(path: str) -> dict[str, Any]:
        found = case.path(path).stat()
        return {
            "path": path, "type": "c", "major": os.major(found.st_rdev),
            "minor": os.minor(found.st_rdev), "fileMode": 432, "permissions": "rwm", "uid": 0,
            "gid": found.st_gid,
        }  # fmt: skip

    numbers = [
        int(path.name.removeprefix("renderD")) for path in case.path("/dev/dri/x").parent.iterdir()
        if path.name.startswith("renderD")
    ]  # fmt: skip
    devices = [
        {
            "name": str(index),
            "containerEdits": {
                "deviceNodes": [numbered(f"/dev/dri/renderD{minor}"), numbered("/dev/kfd")]
            },
        }
        for index, minor in enumerate(sorted(numbers))
    ]
    return {"cdiVersion": "0.6.0", "kind": "amd.com/gpu", "devices": devices}


def add_stack(case: FaultCase, node: AmdNode) -> None:
    """Add Docker with AMD's runtime, AMD's tool, a rootless user, and a kubelet with a plugin."""
    for name in ("amd-container-runtime", "dockerd", "runc"):
        case.write(f"/usr/bin/{name}", "#!/bin/sh\nexit 0\n", 0o755)
    case.write("/usr/local/bin/amd-ctk", "#!/bin/sh\nexit 0\n", 0o755)
    case.write("/var/lib/dpkg/info/amd-container-toolkit.prerm", "#!/bin/sh\n", 0o755)
    case.write(DAEMON, json.dumps(RUNTIME))
    case.write("/etc/passwd", f"amir:x:1000:1000:Amir:{HOME}:/bin/bash\n")
    case.write("/etc/group", f"render:x:{RENDER_GROUP}:amir\n")
    for name in ("subuid", "subgid"):
        case.write(f"/etc/{name}", "amir:100000:65536\n")
    for name in ("newuidmap", "newgidmap"):
        case.write(f"/usr/bin/{name}", "", 0o755)
        case.path(f"/usr/bin/{name}").chmod(0o4755)
    case.path(f"{HOME}/.local/share/containers/x").parent.mkdir(exist_ok=True)
    case.write("/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/"
               "cgroup.controllers", "cpu memory pids\n")  # fmt: skip
    regions = [f"drm/{gpu.pci_address}/vram {gpu.vram_bytes}" for gpu in node.gpus]
    case.write("/sys/fs/cgroup/dmem.capacity", "\n".join(regions) + "\n")
    add_kubelet(case, {"amd.com/gpu": [device.id for _, device in node.devices()]})


def add_kubelet(case: FaultCase, resources: dict[str, list[str]]) -> None:
    """Add a kubelet with AMD's device plugin."""
    kubernetes.add_socket(case, f"{kubernetes.PLUGINS}/kubelet.sock")
    kubernetes.add_socket(case, f"{kubernetes.KUBELET}/pod-resources/kubelet.sock")
    kubernetes.add_socket(case, SOCKET)
    case.write(f"{kubernetes.KUBELET}/config.yaml", "kind: KubeletConfiguration\n")
    kubernetes.write_checkpoint(case, resources)
    argv = ("/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml")
    kubernetes.processes(case).append(kubernetes.process(900, "kubelet", *argv))
    kubernetes.units(case)["kubelet.service"] = {
        "load": "loaded", "active": "active", "result": "success", "enabled": "enabled",
    }  # fmt: skip


def _alone(directory: Path, profile: str) -> FaultCase:
    from tests.doctor.real import machines

    case = machines.without_gpu(directory)
    add_stack(case, add(case, profile))
    return case


def _mixed(directory: Path) -> FaultCase:
    case = cases.make(directory, "t4")
    add(case, "mi300x-cpx")
    return case


cases.MAKERS |= {
    "mi300x8": partial(_alone, profile="mi300x8"),
    "mi300x-cpx": partial(_alone, profile="mi300x-cpx"),
    "t4-and-mi300x": _mixed,
}
