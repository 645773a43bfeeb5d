# SPDX-License-Identifier: Apache-2.0
"""Nodes of clusters that people run themselves: kubeadm, GPU operator, k3s, rke2, CRI-O."""

from __future__ import annotations

import shutil

from tests.doctor.parts.engines import CRI, DEFAULTS, IMPORTS, NVIDIA, RUNC
from tests.doctor.real import machines
from tests.doctor.real.machines import (
    RealNode,
    cluster,
    install,
    kubelet,
    process,
    programs,
    spec,
    unit,
)
from tests.doctor.real.workstations import refresh, toolkit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from tests.doctor.scene import Scene

OPERATOR = "/usr/local/nvidia/toolkit"
DRIVER = "/run/nvidia/driver"
CRI_3 = "plugins.'io.containerd.cri.v1.runtime'"
# k3s and rke2 apply these by themselves, whether an engine has the handlers or not.
RANCHER_CLASSES = ("nvidia", "nvidia-experimental", "crun", "lunatic", "slight", "spin", "wws")
_OPERATORS = ("nvidia", "nvidia-cdi", "nvidia-legacy")


def containerd(scene: Scene, text: str, version: str = "1.7.28") -> None:
    """Install containerd as a kubelet's engine."""
    install(scene, "containerd-shim-runc-v2", containerd=version, runc="1.3.0")
    scene.write("/etc/containerd/config.toml", text)
    process(scene, "containerd", "/usr/bin/containerd")
    unit(scene, "containerd.service")


def agent(scene: Scene) -> None:
    """Have kubeadm's kubelet run."""
    kubelet(scene)
    process(scene, "kubelet", "/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml")
    unit(scene, "kubelet.service")


def kubeadm(directory: Path) -> Scene:
    """Ubuntu, containerd 1.7 with NVIDIA's drop-in, the plugin with ids that are indices."""
    scene = machines.with_gpu(directory, "h100x8", version="570.172.08", is_open=True)
    machines.debian(scene)
    containerd(scene, f"version = 2\n{IMPORTS}{RUNC}")
    scene.write("/etc/containerd/conf.d/99-nvidia.toml", f"version = 2\n{RUNC}{NVIDIA}")
    toolkit(scene)
    refresh(scene)
    agent(scene)
    process(scene, "nvidia-device-plugin", "nvidia-device-plugin")
    ids = [f"{index}::{replica}" for index in range(8) for replica in range(2)]
    cluster(scene, machines.registered(scene, ids), "nvidia")
    return scene


def _operator_runtimes() -> str:
    return "".join(
        f'\n[{CRI}.containerd.runtimes.{name}]\n  runtime_type = "io.containerd.runc.v2"\n'
        f"  privileged_without_host_devices = false\n  [{CRI}.containerd.runtimes.{name}.options]\n"
        f'    BinaryName = "{OPERATOR}/nvidia-container-runtime{name[6:].replace("-", ".")}"\n'
        "    SystemdCgroup = true\n"
        for name in _OPERATORS
    )


def _operator(scene: Scene, *, mode: str = "auto", accepts: str = "") -> None:
    """Add what the operator's containers leave on a node: toolkit, plugin, specs."""
    names = ("nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-cli", "nvidia-container-runtime")
    more = [f"nvidia-container-runtime{end}" for end in (".cdi", ".legacy", "-hook")]
    for name in (*names, *more):
        install(scene, name, f"{name}.real", into=OPERATOR)
    text = DEFAULTS.replace("[nvidia-ctk]\npath = \"nvidia-ctk\"",
                            f'[nvidia-ctk]\npath = "{OPERATOR}/nvidia-ctk"')  # fmt: skip
    text = text.replace('path = "nvidia-container-runtime-hook"',
                        f'path = "{OPERATOR}/nvidia-container-runtime-hook"')  # fmt: skip
    text = text.replace("@/sbin/ldconfig", f"@{DRIVER}/sbin/ldconfig.real")
    text = text.replace("[nvidia-container-cli]", f'[nvidia-container-cli]\nroot = "{DRIVER}"\n'
                        f'path = "{OPERATOR}/nvidia-container-cli"')  # fmt: skip
    text = text.replace('mode = "auto"', f'mode = "{mode}"')
    scene.write(f"{OPERATOR}/.config/nvidia-container-runtime/config.toml", accepts + text)
    process(scene, "nvidia-device-plugin", "nvidia-device-plugin")
    process(scene, "nv-hostengine", "nv-hostengine", "-n")


def _driver_container(directory: Path) -> Scene:
    """Make a host whose driver is in a container: its nodes are in the host's /dev too."""
    scene = machines.with_gpu(directory, layout="driver-container", is_open=True)
    scene.path("/dev/x").parent.mkdir(exist_ok=True)
    shutil.rmtree(scene.path("/dev/x").parent)
    machines.move(scene, f"{DRIVER}/dev", "/dev")
    machines.move(scene, f"{DRIVER}/lib/firmware", f"{DRIVER}/lib/fw")
    machines.move(scene, f"{DRIVER}/lib/fw", f"{DRIVER}/lib/firmware")
    scene.write("/sys/module/firmware_class/parameters/path", f"{DRIVER}/lib/firmware\n")
    return scene


def operator(directory: Path) -> Scene:
    """GPU operator 25.10: driver and toolkit in containers, CDI on, no default runtime."""
    scene = _driver_container(directory)
    machines.debian(scene)
    containerd(scene, f"version = 2\n{IMPORTS}[{CRI}]\n  enable_cdi = true\n{RUNC}")
    drop_in = f"version = 2\n[{CRI}]\n  enable_cdi = true\n{RUNC}{_operator_runtimes()}"
    scene.write("/etc/containerd/conf.d/99-nvidia.toml", drop_in)
    _operator(scene, mode="jit-cdi")
    hook = f"{OPERATOR}/nvidia-cdi-hook"
    spec(scene, "/var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json", hook=hook)
    written = scene.path("/var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json")
    text = written.read_text("utf-8").replace("nvidia.com/gpu", "k8s.device-plugin.nvidia.com/gpu")
    for place in ("run", "usr", "lib", "etc"):
        text = text.replace(f'"hostPath": "/{place}/', f'"hostPath": "{DRIVER}/{place}/')
    written.write_text(text, "utf-8")
    management = text.replace("k8s.device-plugin.nvidia.com/gpu", "management.nvidia.com/gpu")
    scene.write("/var/run/cdi/management.nvidia.com-gpu.yaml", management)
    agent(scene)
    labels = {"nvidia.com/gpu.count": "1", "nvidia.com/gpu.present": "true"}
    cluster(scene, machines.registered(scene), *_OPERATORS, **labels)
    return scene


def operator_default(directory: Path) -> Scene:
    """GPU operator of before: NVIDIA's runtime is the default one, and no spec is there."""
    scene = _driver_container(directory)
    machines.debian(scene)
    default = f'[{CRI}.containerd]\n  default_runtime_name = "nvidia"\n'
    containerd(scene, f"version = 2\n{default}{RUNC}{_operator_runtimes()}")
    _operator(scene)
    agent(scene)
    cluster(scene, machines.registered(scene), *_OPERATORS)
    return scene


def _rancher(scene: Scene, name: str, *, version: int) -> str:
    """Add k3s or rke2 with NVIDIA's runtime found; return the directory of its containerd."""
    place = f"/var/lib/rancher/{name}"
    bundled = f"{place}/data/0a1b2c3d4e/bin"
    install(scene, "containerd", "containerd-shim-runc-v2", "runc", "ctr", into=bundled)
    if name == "k3s":
        scene.path(f"{place}/data/current").symlink_to("0a1b2c3d4e")
    else:
        scene.path(f"{place}/bin").symlink_to("data/0a1b2c3d4e/bin")
    programs(scene)["runc"] = {"path": f"{bundled}/runc", "version": "1.3.3"}
    table = CRI if version == 2 else CRI_3
    text = f"# File generated by {name}. DO NOT EDIT.\nversion = {version}\n[{table}]\n"
    text += "  enable_selinux = false\n  enable_cdi = true\n  device_ownership = false\n"
    text += f'[{table}.containerd.runtimes.runc]\n  runtime_type = "io.containerd.runc.v2"\n'
    text += f"[{table}.containerd.runtimes.runc.options]\n  SystemdCgroup = true\n"
    text += f"[{table}.containerd.runtimes.'nvidia']\n  runtime_type = \"io.containerd.runc.v2\"\n"
    text += f"[{table}.containerd.runtimes.'nvidia'.options]\n  SystemdCgroup = true\n"
    text += '  BinaryName = "/usr/bin/nvidia-container-runtime"\n'
    config = f"{place}/agent/etc/containerd/config.toml"
    scene.write(config, text)
    process(scene, "containerd", "containerd", "-c", config, "-a", f"/run/{name}/containerd.sock")
    return place


def k3s(directory: Path) -> Scene:
    """k3s 1.34 on Debian without a runc of the system's, the toolkit from packages."""
    scene = machines.with_gpu(directory)
    machines.debian(scene)
    place = _rancher(scene, "k3s", version=3)
    toolkit(scene)
    kubelet(scene, has_config=False)
    process(scene, "k3s-server", "/usr/local/bin/k3s server")
    unit(scene, "k3s.service")
    classes = "".join(
        f"apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata:\n  name: {name}\n"
        f"handler: {name}\n---\n"
        for name in RANCHER_CLASSES
    )
    scene.write(f"{place}/server/manifests/runtimes.yaml", classes)
    process(scene, "nvidia-device-plugin", "nvidia-device-plugin")
    cluster(scene, machines.registered(scene), *RANCHER_CLASSES)
    return scene


def rke2(directory: Path) -> Scene:
    """rke2's agent with MIG devices, its own containerd of version 2 files."""
    scene = machines.with_gpu(directory, "a100-mig", version="550.163.01")
    machines.debian(scene)
    _rancher(scene, "rke2", version=2)
    toolkit(scene)
    refresh(scene)
    kubelet(scene, has_config=False)
    process(scene, "rke2", "/usr/local/bin/rke2 agent")
    process(scene, "kubelet", "kubelet", "--containerd=/run/k3s/containerd/containerd.sock")
    unit(scene, "rke2-agent.service")
    process(scene, "nvidia-device-plugin", "nvidia-device-plugin")
    uuids = [one.uuid for gpu in scene.node.node.gpus for one in gpu.instances]
    cluster(scene, machines.registered(scene, uuids), *RANCHER_CLASSES)
    return scene


def openshift(directory: Path) -> Scene:
    """RHEL CoreOS with CRI-O, SELinux enforcing, the operator's driver container."""
    scene = _driver_container(directory)
    shutil.move(scene.path("/dev/x").parent, scene.path(f"{DRIVER}/dev"))
    scene.write("/etc/os-release", "ID=rhcos\n")
    install(scene, "podman", crio="1.31.4", crun="1.17", runc="1.2.4")
    scene.write("/sys/fs/selinux/enforce", "1")
    scene.write("/sys/fs/selinux/booleans/container_use_devices", "0 0")
    text = '[crio.runtime]\nselinux = true\ndefault_runtime = "crun"\n'
    text += '[crio.runtime.runtimes.crun]\nruntime_path = "/usr/bin/crun"\n'
    scene.write("/etc/crio/crio.conf.d/00-default", text)
    runtimes = "".join(
        f'[crio.runtime.runtimes.{name}]\nruntime_type = "oci"\nruntime_path = '
        f'"{OPERATOR}/nvidia-container-runtime{name[6:].replace("-", ".")}"\n'
        for name in _OPERATORS
    )
    scene.write("/etc/crio/crio.conf.d/99-nvidia.conf", runtimes)
    process(scene, "crio", "/usr/bin/crio")
    _operator(scene, mode="jit-cdi")
    agent(scene)
    unit(scene, "crio.service")
    cluster(scene, machines.registered(scene), *_OPERATORS)
    return scene


NODES = [
    RealNode("kubeadm", kubeadm),
    RealNode("gpu-operator", operator),
    RealNode("gpu-operator-default-runtime", operator_default, ("nvidia-toolkit.images",)),
    RealNode("k3s", k3s),
    RealNode("rke2-mig", rke2),
    RealNode("openshift", openshift),
]
