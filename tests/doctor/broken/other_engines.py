# SPDX-License-Identifier: Apache-2.0
"""Broken configurations of Docker, CRI-O, podman and of the host."""

from __future__ import annotations

import json
import shutil

from gpuhook.node_facts.sources import node_readings
from tests.doctor.broken.engines import spec
from tests.doctor.case import Broken, FaultCase
from tests.doctor.parts.driver import SPEC
from tests.doctor.parts.engines import CONFIG, DEFAULTS, DROP_IN, TOOLKIT, install, programs, run

DAEMON = "/etc/docker/daemon.json"
CRIO = "/etc/crio/crio.conf.d/99-nvidia.conf"
MANAGER = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/cgroup.controllers"
HOOKS = "/usr/share/containers/oci/hooks.d"
RUNTIMES = {"nvidia": {"path": "nvidia-container-runtime", "args": []}}
CRIO_RUNTIMES = """
[crio.runtime]
  default_runtime = "runc"
[crio.runtime.runtimes.runc]
  runtime_path = "/usr/bin/runc"
[crio.runtime.runtimes.nvidia]
  runtime_path = "/usr/bin/nvidia-container-runtime"
"""


def docker(case: FaultCase, **members: object) -> None:
    """Add Docker, with its daemon.json."""
    install(case, "dockerd", "docker")
    programs(case)["dockerd"] = {"path": "/usr/bin/dockerd", "version": "27.5.1"}
    run(case, "dockerd")
    case.write(DAEMON, json.dumps({"runtimes": RUNTIMES, **members}, indent=2))


def crio(case: FaultCase, text: str = CRIO_RUNTIMES) -> None:
    """Add CRI-O."""
    install(case, "crio")
    case.write(CRIO, text)


def podman(case: FaultCase) -> None:
    """Add podman."""
    install(case, "podman", "crun")
    spec(case)


def hook(case: FaultCase, name: str, path: str) -> None:
    """Add a hook to podman."""
    document = {
        "version": "1.0.0",
        "hook": {"path": path, "args": [path, "prestart"]},
        "when": {"always": True, "commands": [".*"]},
        "stages": ["prestart"],
    }
    case.write(f"{HOOKS}/{name}.json", json.dumps(document))


def _remove_containerd(case: FaultCase) -> None:
    """Remove containerd; the node keeps the programs of NVIDIA's toolkit."""
    for path in (CONFIG, DROP_IN, "/usr/bin/containerd", "/usr/bin/containerd-shim-runc-v2"):
        case.remove(path)
    del programs(case)["containerd"]
    listed = case.readings[node_readings.PROCESSES]
    listed[:] = [one for one in listed if one["name"] != "containerd"]


def _docker_alone(case: FaultCase) -> None:
    """Make Docker, which has no GPU runtime and no CDI, the only engine of a node."""
    _remove_containerd(case)
    shutil.rmtree(case.path("/var/lib/kubelet"))
    docker(case, runtimes={})


def _docker_without_cdi(case: FaultCase) -> None:
    docker(case, runtimes={}, features={"cdi": False})


def _crio_alone(case: FaultCase) -> None:
    """Make CRI-O, which has neither a GPU runtime nor a CDI spec, the engine of the kubelet."""
    _remove_containerd(case)
    case.remove(SPEC)
    crio(case, CRIO_RUNTIMES.partition("[crio.runtime.runtimes.nvidia]")[0])
    case.readings[node_readings.API]["runtimeClasses"] = []


def _crio_not_restarted(case: FaultCase) -> None:
    crio(case)
    run(case, "crio", started=1.0e9)


def _no_json(case: FaultCase) -> None:
    docker(case)
    case.write(DAEMON, '{\n  "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}},\n}\n')


def _runtimes_list(case: FaultCase) -> None:
    docker(case, runtimes=[])


def _default(case: FaultCase) -> None:
    docker(case, runtimes={}, **{"default-runtime": "nvidia"})


def _no_binary(case: FaultCase) -> None:
    path = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
    docker(case, runtimes={"nvidia": {"path": path}})


def _no_hook(case: FaultCase) -> None:
    docker(case)
    case.remove("/usr/bin/nvidia-container-runtime-hook")


def _mode_cdi(case: FaultCase) -> None:
    docker(case)
    case.write(TOOLKIT, DEFAULTS.replace('mode = "auto"', 'mode = "cdi"'))


def _not_restarted(case: FaultCase) -> None:
    docker(case)
    run(case, "dockerd", started=1.0e9)


def _snap(case: FaultCase) -> None:
    case.write("/var/snap/docker/current/config/daemon.json", '{"log-level": "error"}\n')
    case.write(DAEMON, json.dumps({"runtimes": RUNTIMES}))


def _crio_no_toml(case: FaultCase) -> None:
    crio(case, f"{CRIO_RUNTIMES}[crio.runtime.runtimes\n")


def _crio_no_binary(case: FaultCase) -> None:
    crio(case, CRIO_RUNTIMES.replace("/usr/bin/nvidia", "/opt/bin/nvidia"))


def _crio_default(case: FaultCase) -> None:
    crio(case)
    name = "/etc/crio/crio.conf.d/99-z.conf"
    case.write(name, '[crio.runtime]\ndefault_runtime = "nvidia-legacy"\n')


def _crio_cdi_dirs(case: FaultCase) -> None:
    spec(case)
    crio(case, f"{CRIO_RUNTIMES}[crio]\n[crio.runtime.workloads]\n")
    name = "/etc/crio/crio.conf.d/10-cdi.conf"
    case.write(name, '[crio.runtime]\ncdi_spec_dirs = ["/opt/cdi"]\n')


def _podman_no_toml(case: FaultCase) -> None:
    podman(case)
    case.write("/etc/containers/containers.conf", "[engine]\nruntime = crun\n")


def _podman_cdi_dirs(case: FaultCase) -> None:
    podman(case)
    text = '[engine]\ncdi_spec_dirs = ["/usr/share/cdi"]\n'
    case.write("/etc/containers/containers.conf.d/10-cdi.conf", text)


def _podman_no_runtime(case: FaultCase) -> None:
    podman(case)
    text = '[engine]\nruntime = "nvidia"\n[engine.runtimes]\nnvidia = ["/opt/nvidia-runtime"]\n'
    case.write("/etc/containers/containers.conf", text)


def _hook_of_nothing(case: FaultCase) -> None:
    podman(case)
    hook(case, "oci-nvidia-hook", "/usr/bin/nvidia-container-toolkit")


def _two_hooks(case: FaultCase) -> None:
    podman(case)
    hook(case, "oci-nvidia-hook", "/usr/bin/nvidia-container-runtime-hook")
    case.write("/usr/local/bin/gpuhook-prestart", "#!/bin/sh\n", 0o755)
    hook(case, "gpuhook-prestart", "/usr/local/bin/gpuhook-prestart")


def _selinux(case: FaultCase) -> None:
    podman(case)
    case.write("/sys/fs/selinux/enforce", "1")
    for name in ("container_use_devices", "container_use_xserver_devices"):
        case.write(f"/sys/fs/selinux/booleans/{name}", "0 0")


def _user(case: FaultCase) -> None:
    podman(case)
    case.write("/home/ada/.local/share/containers/storage/db.sql", "")


def _no_subids(case: FaultCase) -> None:
    _user(case)
    install(case, "newuidmap", "newgidmap")
    case.write("/etc/subuid", "bob:100000:65536\n")
    case.write("/etc/subgid", "ada:100000:65536\n")


def _no_delegation(case: FaultCase) -> None:
    _user(case)
    install(case, "newuidmap", "newgidmap")
    case.write("/etc/passwd", "ada:x:1000:1000::/home/ada:/bin/sh\n")
    for path in ("/etc/subuid", "/etc/subgid"):
        case.write(path, "ada:100000:65536\n")
    case.write(MANAGER, "pids\n")


def _apparmor(case: FaultCase) -> None:
    _user(case)
    install(case, "newuidmap", "newgidmap")
    for path in ("/etc/subuid", "/etc/subgid"):
        case.write(path, "ada:100000:65536\n")
    case.write("/sys/module/apparmor/parameters/enabled", "Y\n")
    case.write("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n")


def _rootless_docker(case: FaultCase) -> None:
    """Add a rootless Docker and a toolkit that sets device rules, which a user cannot."""
    docker(case)
    install(case, "newuidmap", "newgidmap")
    for path in ("/etc/subuid", "/etc/subgid"):
        case.write(path, "ada:100000:65536\n")
    case.write("/home/ada/.config/docker/daemon.json", json.dumps({"runtimes": RUNTIMES}))
    case.write(TOOLKIT, DEFAULTS.replace('mode = "auto"', 'mode = "legacy"'))


BROKEN = [
    Broken("docker-no-json", "docker.config", _no_json),
    Broken("docker-runtimes-a-list", "docker.config", _runtimes_list),
    Broken("docker-default-not-registered", "docker.default", _default),
    Broken("docker-not-configured", "docker.runtime", _docker_alone),
    Broken("docker-cdi-off", "docker.cdi", _docker_without_cdi, is_warning=True),
    Broken("docker-runtime-not-installed", "docker.binary", _no_binary),
    Broken("docker-gpus-without-hook", "docker.gpus", _no_hook, is_warning=True),
    Broken("docker-gpus-in-mode-cdi", "nvidia-toolkit.gpus-flag", _mode_cdi),
    Broken("docker-not-restarted", "docker.restarted", _not_restarted, is_warning=True),
    Broken("docker-of-a-snap", "docker.snap", _snap),
    Broken("crio-not-configured", "crio.runtime", _crio_alone),
    Broken("crio-not-restarted", "crio.restarted", _crio_not_restarted, is_warning=True),
    Broken("crio-no-toml", "crio.config", _crio_no_toml),
    Broken("crio-runtime-not-installed", "crio.binary", _crio_no_binary),
    Broken("crio-default-not-registered", "crio.default", _crio_default),
    Broken("crio-cdi-dirs-elsewhere", "crio.cdi-dirs", _crio_cdi_dirs),
    Broken("podman-no-toml", "podman.config", _podman_no_toml),
    Broken("podman-cdi-dirs-elsewhere", "podman.cdi", _podman_cdi_dirs),
    Broken("podman-runtime-not-there", "podman.binary", _podman_no_runtime),
    Broken("oci-hook-of-nothing", "oci-hooks.program", _hook_of_nothing),
    Broken("two-oci-hooks", "oci-hooks.two-stacks", _two_hooks),
    Broken("selinux-keeps-devices", "host.selinux", _selinux),
    Broken("user-without-subordinate-ids", "host.subordinate-ids", _no_subids),
    Broken("user-without-memory-controller", "host.delegation", _no_delegation, is_warning=True),
    Broken("newuidmap-not-installed", "host.id-mapping", _user),
    Broken("apparmor-keeps-namespaces", "host.apparmor", _apparmor, is_warning=True),
    Broken(
        "rootless-docker-sets-rules", "nvidia-toolkit.no-cgroups", _rootless_docker, is_warning=True
    ),
]
