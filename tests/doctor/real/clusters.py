# SPDX-License-Identifier: Apache-2.0
"""Nodes of self-managed clusters: kubeadm, GPU operator, k3s, rke2, CRI-O."""

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

    from tests.doctor.case import FaultCase

OPERATOR = "/usr/local/nvidia/toolkit"
DRIVER = "/run/nvidia/driver"
CRI_3 = "plugins.'io.containerd.cri.v1.runtime'"
# k3s and rke2 apply these, also if no engine has the handlers.
RANCHER_CLASSES = ("nvidia", "nvidia-experimental", "crun", "lunatic", "slight", "spin", "wws")
_OPERATORS = ("nvidia", "nvidia-cdi", "nvidia-legacy")


def containerd(case: FaultCase, text: str, version: str = "1.7.28") -> None:
    """Install containerd as a kubelet's engine."""
    install(case, "containerd-shim-runc-v2", containerd=version, runc="1.3.0")
    case.write("/etc/containerd/config.toml", text)
    process(case, "containerd", "/usr/bin/containerd")
    unit(case, "containerd.service")


def agent(case: FaultCase) -> None:
    """Add kubeadm's running kubelet."""
    kubelet(case)
    process(case, "kubelet", "/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml")
    unit(case, "kubelet.service")


def kubeadm(directory: Path) -> FaultCase:
    """Ubuntu, containerd 1.7 with NVIDIA's drop-in, the plugin with ids that are indices."""
    case = machines.with_gpu(directory, "h100x8", version="570.172.08", is_open=True)
    machines.debian(case)
    containerd(case, f"version = 2\n{IMPORTS}{RUNC}")
    case.write("/etc/containerd/conf.d/99-nvidia.toml", f"version = 2\n{RUNC}{NVIDIA}")
    toolkit(case)
    refresh(case)
    agent(case)
    process(case, "nvidia-device-plugin", "nvidia-device-plugin")
    ids = [f"{index}::{replica}" for index in range(8) for replica in range(2)]
    cluster(case, machines.registered(case, ids), "nvidia")
    return case


def _operator_runtimes() -> str:
    return "".join(
        f'\n[{CRI}.containerd.runtimes.{name}]\n  runtime_type = "io.containerd.runc.v2"\n'
        f"  privileged_without_host_devices = false\n  [{CRI}.containerd.runtimes.{name}.options]\n"
        f'    BinaryName = "{OPERATOR}/nvidia-container-runtime{name[6:].replace("-", ".")}"\n'
        "    SystemdCgroup = true\n"
        for name in _OPERATORS
    )


def _operator(case: FaultCase, *, mode: str = "auto", accepts: str = "") -> None:
    """Add the operator's files on a node: toolkit, plugin, specs."""
    names = ("nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-cli", "nvidia-container-runtime")
    more = [f"nvidia-container-runtime{end}" for end in (".cdi", ".legacy", "-hook")]
    for name in (*names, *more):
        install(case, name, f"{name}.real", into=OPERATOR)
    text = DEFAULTS.replace("[nvidia-ctk]\npath = \"nvidia-ctk\"",
                            f'[nvidia-ctk]\npath = "{OPERATOR}/nvidia-ctk"')  # fmt: skip
    text = text.replace('path = "nvidia-container-runtime-hook"',
                        f'path = "{OPERATOR}/nvidia-container-runtime-hook"')  # fmt: skip
    text = text.replace("@/sbin/ldconfig", f"@{DRIVER}/sbin/ldconfig.real")
    text = text.replace("[nvidia-container-cli]", f'[nvidia-container-cli]\nroot = "{DRIVER}"\n'
                        f'path = "{OPERATOR}/nvidia-container-cli"')  # fmt: skip
    text = text.replace('mode = "auto"', f'mode = "{mode}"')
    case.write(f"{OPERATOR}/.config/nvidia-container-runtime/config.toml", accepts + text)
    process(case, "nvidia-device-plugin", "nvidia-device-plugin")
    process(case, "nv-hostengine", "nv-hostengine", "-n")


def _driver_container(directory: Path) -> FaultCase:
    """Make a host whose driver is in a container: its nodes are in the host's /dev too."""
    case = machines.with_gpu(directory, layout="driver-container", is_open=True)
    case.path("/dev/x").parent.mkdir(exist_ok=True)
    shutil.rmtree(case.path("/dev/x").parent)
    machines.move(case, f"{DRIVER}/dev", "/dev")
    machines.move(case, f"{DRIVER}/lib/firmware", f"{DRIVER}/lib/fw")
    machines.move(case, f"{DRIVER}/lib/fw", f"{DRIVER}/lib/firmware")
    case.write("/sys/module/firmware_class/parameters/path", f"{DRIVER}/lib/firmware\n")
    return case


def operator(directory: Path) -> FaultCase:
    """GPU operator 25.10: driver and toolkit in containers, CDI on, no default runtime."""
    case = _driver_container(directory)
    machines.debian(case)
    containerd(case, f"version = 2\n{IMPORTS}[{CRI}]\n  enable_cdi = true\n{RUNC}")
    drop_in = f"version = 2\n[{CRI}]\n  enable_cdi = true\n{RUNC}{_operator_runtimes()}"
    case.write("/etc/containerd/conf.d/99-nvidia.toml", drop_in)
    _operator(case, mode="jit-cdi")
    hook = f"{OPERATOR}/nvidia-cdi-hook"
    spec(case, "/var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json", hook=hook)
    written = case.path("/var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json")
    text = written.read_text("utf-8").replace("nvidia.com/gpu", "k8s.device-plugin.nvidia.com/gpu")
    for place in ("run", "usr", "lib", "etc"):
        text = text.replace(f'"hostPath": "/{place}/', f'"hostPath": "{DRIVER}/{place}/')
    written.write_text(text, "utf-8")
    management = text.replace("k8s.device-plugin.nvidia.com/gpu", "management.nvidia.com/gpu")
    case.write("/var/run/cdi/management.nvidia.com-gpu.yaml", management)
    agent(case)
    labels = {"nvidia.com/gpu.count": "1", "nvidia.com/gpu.present": "true"}
    cluster(case, machines.registered(case), *_OPERATORS, **labels)
    return case


def operator_default(directory: Path) -> FaultCase:
    """An older GPU operator: NVIDIA's runtime is the default one, and there is no spec."""
    case = _driver_container(directory)
    machines.debian(case)
    default = f'[{CRI}.containerd]\n  default_runtime_name = "nvidia"\n'
    containerd(case, f"version = 2\n{default}{RUNC}{_operator_runtimes()}")
    _operator(case)
    agent(case)
    cluster(case, machines.registered(case), *_OPERATORS)
    return case


def _rancher(case: FaultCase, name: str, *, version: int) -> str:
    """Add k3s or rke2 with NVIDIA's runtime found; return the directory of its containerd."""
    place = f"/var/lib/rancher/{name}"
    bundled = f"{place}/data/0a1b2c3d4e/bin"
    install(case, "containerd", "containerd-shim-runc-v2", "runc", "ctr", into=bundled)
    if name == "k3s":
        case.path(f"{place}/data/current").symlink_to("0a1b2c3d4e")
    else:
        case.path(f"{place}/bin").symlink_to("data/0a1b2c3d4e/bin")
    programs(case)["runc"] = {"path": f"{bundled}/runc", "version": "1.3.3"}
    table = CRI if version == 2 else CRI_3
    text = f"# File generated by {name}. DO NOT EDIT.\nversion = {version}\n[{table}]\n"
    text += "  enable_selinux = false\n  enable_cdi = true\n  device_ownership = false\n"
    text += f'[{table}.containerd.runtimes.runc]\n  runtime_type = "io.containerd.runc.v2"\n'
    text += f"[{table}.containerd.runtimes.runc.options]\n  SystemdCgroup = true\n"
    text += f"[{table}.containerd.runtimes.'nvidia']\n  runtime_type = \"io.containerd.runc.v2\"\n"
    text += f"[{table}.containerd.runtimes.'nvidia'.options]\n  SystemdCgroup = true\n"
    text += '  BinaryName = "/usr/bin/nvidia-container-runtime"\n'
    config = f"{place}/agent/etc/containerd/config.toml"
    case.write(config, text)
    process(case, "containerd", "containerd", "-c", config, "-a", f"/run/{name}/containerd.sock")
    return place


def k3s(directory: Path) -> FaultCase:
    """k3s 1.34 on Debian without a runc package, the toolkit from packages."""
    case = machines.with_gpu(directory)
    machines.debian(case)
    place = _rancher(case, "k3s", version=3)
    toolkit(case)
    kubelet(case, has_config=False)
    process(case, "k3s-server", "/usr/local/bin/k3s server")
    unit(case, "k3s.service")
    classes = "".join(
        f"apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata:\n  name: {name}\n"
        f"handler: {name}\n---\n"
        for name in RANCHER_CLASSES
    )
    case.write(f"{place}/server/manifests/runtimes.yaml", classes)
    process(case, "nvidia-device-plugin", "nvidia-device-plugin")
    cluster(case, machines.registered(case), *RANCHER_CLASSES)
    return case


def rke2(directory: Path) -> FaultCase:
    """rke2's agent with MIG devices, its own containerd of version 2 files."""
    case = machines.with_gpu(directory, "a100-mig", version="550.163.01")
    machines.debian(case)
    _rancher(case, "rke2", version=2)
    toolkit(case)
    refresh(case)
    kubelet(case, has_config=False)
    process(case, "rke2", "/usr/local/bin/rke2 agent")
    process(case, "kubelet", "kubelet", "--containerd=/run/k3s/containerd/containerd.sock")
    unit(case, "rke2-agent.service")
    process(case, "nvidia-device-plugin", "nvidia-device-plugin")
    uuids = [one.uuid for gpu in case.node.node.gpus for one in gpu.instances]
    cluster(case, machines.registered(case, uuids), *RANCHER_CLASSES)
    return case


def openshift(directory: Path) -> FaultCase:
    """RHEL CoreOS with CRI-O, SELinux enforcing, the operator's driver container."""
    case = _driver_container(directory)
    shutil.move(case.path("/dev/x").parent, case.path(f"{DRIVER}/dev"))
    case.write("/etc/os-release", "ID=rhcos\n")
    install(case, "podman", crio="1.31.4", crun="1.17", runc="1.2.4")
    case.write("/sys/fs/selinux/enforce", "1")
    case.write("/sys/fs/selinux/booleans/container_use_devices", "0 0")
    text = '[crio.runtime]\nselinux = true\ndefault_runtime = "crun"\n'
    text += '[crio.runtime.runtimes.crun]\nruntime_path = "/usr/bin/crun"\n'
    case.write("/etc/crio/crio.conf.d/00-default", text)
    runtimes = "".join(
        f'[crio.runtime.runtimes.{name}]\nruntime_type = "oci"\nruntime_path = '
        f'"{OPERATOR}/nvidia-container-runtime{name[6:].replace("-", ".")}"\n'
        for name in _OPERATORS
    )
    case.write("/etc/crio/crio.conf.d/99-nvidia.conf", runtimes)
    process(case, "crio", "/usr/bin/crio")
    _operator(case, mode="jit-cdi")
    agent(case)
    unit(case, "crio.service")
    cluster(case, machines.registered(case), *_OPERATORS)
    return case


NODES = [
    RealNode("kubeadm", kubeadm),
    RealNode("gpu-operator", operator),
    RealNode("gpu-operator-default-runtime", operator_default, ("nvidia-toolkit.images",)),
    RealNode("k3s", k3s),
    RealNode("rke2-mig", rke2),
    RealNode("openshift", openshift),
]
