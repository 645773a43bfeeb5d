# SPDX-License-Identifier: Apache-2.0
"""Workstations: Docker, podman, WSL, NixOS."""

from __future__ import annotations

import json
import shutil

from tests.doctor.parts.engines import DEFAULTS, TOOLKIT
from tests.doctor.real import machines
from tests.doctor.real.machines import RealNode, install, process, spec, unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from tests.doctor.case import FaultCase

DAEMON = "/etc/docker/daemon.json"
TOOLS = (
    "nvidia-container-runtime",
    "nvidia-container-runtime-hook",
    "nvidia-container-cli",
    "nvidia-ctk",
    "nvidia-cdi-hook",
)
NVIDIA = {"nvidia": {"args": [], "path": "nvidia-container-runtime"}}
DISABLED = '#   Copyright 2018-2022 Docker Inc.\ndisabled_plugins = ["cri"]\n'


def docker(case: FaultCase, version: str = "28.5.1", **members: object) -> None:
    """Install Docker's own packages, with the members in daemon.json."""
    install(case, "docker", "containerd-shim-runc-v2", containerd="1.7.28", runc="1.3.0")
    install(case, dockerd=version)
    case.write("/etc/containerd/config.toml", DISABLED)
    if members:
        case.write(DAEMON, json.dumps(members, indent=4))
    process(case, "containerd", "/usr/bin/containerd")
    process(case, "dockerd", "/usr/bin/dockerd", "-H", "fd://")
    unit(case, "docker.service", "containerd.service")


def toolkit(case: FaultCase, version: str = "1.18.0", text: str = DEFAULTS) -> None:
    """Install NVIDIA's packages."""
    install(case, *TOOLS, nvidia_ctk=version, nvidia_container_cli=version)
    case.write(TOOLKIT, text.replace("@/sbin/ldconfig", "@/sbin/ldconfig.real"))


def refresh(case: FaultCase) -> None:
    """Add the unit of toolkit 1.18 that maintains a spec in /run."""
    case.write("/usr/lib/systemd/system/nvidia-cdi-refresh.service", "[Service]\n")
    unit(case, "nvidia-cdi-refresh.service", "nvidia-cdi-refresh.path")
    spec(case, "/var/run/cdi/nvidia.yaml")


def ubuntu_docker(directory: Path) -> FaultCase:
    """Ubuntu 24.04, Docker CE 28 with NVIDIA's runtime, toolkit 1.18 from deb packages."""
    case = machines.with_gpu(directory, is_open=True)
    machines.debian(case)
    docker(case, runtimes=NVIDIA)
    toolkit(case)
    refresh(case)
    return case


def ubuntu_docker_old(directory: Path) -> FaultCase:
    """Ubuntu 20.04: driver 470, Docker 20.10, toolkit 1.13, cgroup v1, no spec."""
    case = machines.with_gpu(directory, version="470.256.02", persistenced=False)
    machines.debian(case)
    docker(case, "20.10.24", runtimes=NVIDIA, **{"default-runtime": "nvidia"})
    toolkit(case, "1.13.5")
    install(case, runc="1.1.4", containerd="1.6.20")
    shutil.rmtree(case.path("/sys/fs/cgroup/x").parent)
    case.write("/sys/fs/cgroup/devices/devices.list", "a *:* rwm\n")
    return case


def distribution_docker(directory: Path) -> FaultCase:
    """Debian's docker.io and containerd, without a configuration of containerd."""
    case = machines.with_gpu(directory, layout="debian", version="535.247.01")
    machines.debian(case)
    docker(case, "26.1.5", runtimes=NVIDIA)
    case.remove("/etc/containerd/config.toml")
    toolkit(case)
    spec(case, "/etc/cdi/nvidia.yaml")
    return case


def docker_29(directory: Path) -> FaultCase:
    """Docker 29, whose --gpus uses CDI: no NVIDIA runtime, and mode cdi."""
    case = machines.with_gpu(directory)
    machines.debian(case)
    docker(case, "29.1.0")
    toolkit(case, "1.18.1", DEFAULTS.replace('mode = "auto"', 'mode = "cdi"'))
    refresh(case)
    return case


def without_systemd(directory: Path) -> FaultCase:
    """A host with OpenRC and a Docker that was started manually."""
    case = machines.with_gpu(directory, persistenced=False)
    docker(case, runtimes=NVIDIA)
    toolkit(case)
    spec(case, "/etc/cdi/nvidia.yaml")
    case.path("/run/systemd/system/x").parent.rmdir()
    del case.readings["units"]
    return case


def fedora_podman(directory: Path) -> FaultCase:
    """Fedora with podman and crun, SELinux enforcing, GPUs by CDI."""
    case = machines.with_gpu(directory, layout="lib64", is_open=True)
    case.write("/etc/fedora-release", "Fedora release 42 (Adams)\n")
    install(case, "dnf", "conmon", podman="5.5.2", crun="1.21")
    install(case, "newuidmap", "newgidmap", "nvidia-cdi-hook", nvidia_ctk="1.18.0")
    case.write(TOOLKIT, DEFAULTS)
    case.write("/usr/share/containers/containers.conf", '[engine]\n#runtime = "crun"\n')
    case.write("/sys/fs/selinux/enforce", "1")
    case.write("/sys/fs/selinux/booleans/container_use_devices", "0 0")
    case.write("/sys/fs/selinux/booleans/container_use_xserver_devices", "1 1")
    case.write("/etc/passwd", "anna:x:1000:1000::/home/anna:/bin/bash\n")
    case.write("/home/anna/.local/share/containers/cache/x", "")
    for path in ("/etc/subuid", "/etc/subgid"):
        case.write(path, "anna:524288:65536\n")
    spec(case, "/etc/cdi/nvidia.yaml")
    return case


def wsl(directory: Path) -> FaultCase:
    """Ubuntu on WSL2 with Docker, and Windows' driver and libraries."""
    case = machines.without_gpu(directory)
    machines.debian(case)
    case.write("/dev/dxg", "")
    windows = "/usr/lib/wsl/drivers/nv_dispi.inf_amd64_0a1b2c3d4e5f6071"
    names = ("libcuda.so.1.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1")
    for name in names:
        case.write(f"{windows}/{name}", "")
    for name in (
        "libcuda.so",
        "libcuda.so.1",
        "libcuda.so.1.1",
        "libdxcore.so",
        "libnvidia-ml.so.1",
    ):
        case.write(f"/usr/lib/wsl/lib/{name}", "")
        case.path(f"/usr/lib/x86_64-linux-gnu/{name}").symlink_to(f"/usr/lib/wsl/lib/{name}")
    case.write("/usr/lib/wsl/lib/nvidia-smi", "#!/bin/sh\n", 0o755)
    docker(case, runtimes=NVIDIA)
    toolkit(case)
    document = {
        "cdiVersion": "0.3.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/dxg"}]}}],
        "containerEdits": {
            "mounts": [
                {"hostPath": f"{windows}/{name}", "containerPath": f"{windows}/{name}"}
                for name in names
            ],
            "hooks": [{
                "hookName": "createContainer",
                "path": "/usr/bin/nvidia-cdi-hook",
                "args": ["nvidia-cdi-hook", "update-ldcache", "--folder", windows],
                "env": ["NVIDIA_CTK_DEBUG=false"],
            }],
        },
    }  # fmt: skip
    case.write("/var/run/cdi/nvidia.yaml", json.dumps(document))
    return case


def nixos(directory: Path) -> FaultCase:
    """NixOS: driver, Docker and toolkit are in unusual directories."""
    case = machines.with_gpu(directory, is_open=True, persistenced=False)
    store = f"/nix/store/0c4pk5xm-nvidia-x11-{machines.VERSION}/lib"
    machines.move(case, "/usr/lib/x86_64-linux-gnu", store)
    machines.move(case, "/usr/bin", "/run/current-system/sw/bin")
    machines.move(case, "/lib/firmware", "/run/current-system/firmware")
    case.write("/sys/module/firmware_class/parameters/path", "/run/current-system/firmware\n")
    shutil.rmtree(case.path("/usr/x").parent)
    shutil.rmtree(case.path("/lib/x").parent)
    case.path("/run/opengl-driver/lib").symlink_to(store)
    shutil.rmtree(case.path("/etc/x").parent)
    case.write("/etc/NIXOS", "")
    tools = "/run/current-system/sw/bin"
    install(case, "docker", "containerd-shim-runc-v2", into=tools, dockerd="28.5.1", runc="1.3.0")
    install(case, into=tools, containerd="1.7.28")
    daemon = "/nix/store/9s8d7f6g-daemon.json"
    case.write(daemon, json.dumps({"features": {"cdi": True}, "live-restore": True}))
    process(case, "dockerd", f"{tools}/dockerd", f"--config-file={daemon}")
    hook = "/nix/store/1a2b3c4d-nvidia-container-toolkit-1.18.0-tools/bin/nvidia-cdi-hook"
    document = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [
            {"name": name, "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}
            for name in ("0", "all")
        ],
        "containerEdits": {
            "deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}],
            "mounts": [
                {"hostPath": path, "containerPath": path}
                for path in (f"{store}/libcuda.so.{machines.VERSION}",)
            ],
            "hooks": [
                {
                    "hookName": "createContainer",
                    "path": hook,
                    "args": ["nvidia-cdi-hook", name],
                    "env": ["NVIDIA_CTK_DEBUG=false"],
                }
                for name in ("update-ldcache", "disable-device-node-modification")
            ],
        },
    }
    case.write(hook, "#!/bin/sh\n", 0o755)
    case.write("/var/run/cdi/nvidia-container-toolkit.json", json.dumps(document))
    return case


NODES = [
    RealNode("ubuntu-docker", ubuntu_docker),
    RealNode("ubuntu-20.04-docker", ubuntu_docker_old, ("gpus.persistence",)),
    RealNode("debian-docker.io", distribution_docker),
    RealNode("docker-29-by-cdi", docker_29),
    RealNode("docker-without-systemd", without_systemd, ("gpus.persistence",)),
    RealNode("fedora-podman", fedora_podman),
    RealNode("wsl2-docker", wsl),
    RealNode("nixos-docker", nixos, ("gpus.persistence",)),
]
