# SPDX-License-Identifier: Apache-2.0
"""The ways in which Docker, CRI-O, podman and what the host has to give engines are broken."""

from __future__ import annotations

import json

from tests.doctor.broken.engines import spec
from tests.doctor.parts.engines import DEFAULTS, TOOLKIT, install, programs, run
from tests.doctor.scene import Broken, Scene

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


def docker(scene: Scene, **members: object) -> None:
    """Add Docker, with its daemon.json."""
    install(scene, "dockerd", "docker")
    programs(scene)["dockerd"] = {"path": "/usr/bin/dockerd", "version": "27.5.1"}
    run(scene, "dockerd")
    scene.write(DAEMON, json.dumps({"runtimes": RUNTIMES, **members}, indent=2))


def crio(scene: Scene, text: str = CRIO_RUNTIMES) -> None:
    """Add CRI-O."""
    install(scene, "crio")
    scene.write(CRIO, text)


def podman(scene: Scene) -> None:
    """Add podman."""
    install(scene, "podman", "crun")
    spec(scene)


def hook(scene: Scene, name: str, path: str) -> None:
    """Have podman run a hook."""
    document = {
        "version": "1.0.0",
        "hook": {"path": path, "args": [path, "prestart"]},
        "when": {"always": True, "commands": [".*"]},
        "stages": ["prestart"],
    }
    scene.write(f"{HOOKS}/{name}.json", json.dumps(document))


def _no_json(scene: Scene) -> None:
    docker(scene)
    scene.write(DAEMON, '{\n  "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}},\n}\n')


def _runtimes_list(scene: Scene) -> None:
    docker(scene, runtimes=[])


def _default(scene: Scene) -> None:
    docker(scene, runtimes={}, **{"default-runtime": "nvidia"})


def _no_binary(scene: Scene) -> None:
    path = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
    docker(scene, runtimes={"nvidia": {"path": path}})


def _no_hook(scene: Scene) -> None:
    docker(scene)
    scene.remove("/usr/bin/nvidia-container-runtime-hook")


def _mode_cdi(scene: Scene) -> None:
    docker(scene)
    scene.write(TOOLKIT, DEFAULTS.replace('mode = "auto"', 'mode = "cdi"'))


def _not_restarted(scene: Scene) -> None:
    docker(scene)
    run(scene, "dockerd", started=1.0e9)


def _snap(scene: Scene) -> None:
    scene.write("/var/snap/docker/current/config/daemon.json", '{"log-level": "error"}\n')
    scene.write(DAEMON, json.dumps({"runtimes": RUNTIMES}))


def _crio_no_toml(scene: Scene) -> None:
    crio(scene, f"{CRIO_RUNTIMES}[crio.runtime.runtimes\n")


def _crio_no_binary(scene: Scene) -> None:
    crio(scene, CRIO_RUNTIMES.replace("/usr/bin/nvidia", "/opt/bin/nvidia"))


def _crio_default(scene: Scene) -> None:
    crio(scene)
    name = "/etc/crio/crio.conf.d/99-z.conf"
    scene.write(name, '[crio.runtime]\ndefault_runtime = "nvidia-legacy"\n')


def _crio_cdi_dirs(scene: Scene) -> None:
    spec(scene)
    crio(scene, f"{CRIO_RUNTIMES}[crio]\n[crio.runtime.workloads]\n")
    name = "/etc/crio/crio.conf.d/10-cdi.conf"
    scene.write(name, '[crio.runtime]\ncdi_spec_dirs = ["/opt/cdi"]\n')


def _podman_no_toml(scene: Scene) -> None:
    podman(scene)
    scene.write("/etc/containers/containers.conf", "[engine]\nruntime = crun\n")


def _podman_cdi_dirs(scene: Scene) -> None:
    podman(scene)
    text = '[engine]\ncdi_spec_dirs = ["/usr/share/cdi"]\n'
    scene.write("/etc/containers/containers.conf.d/10-cdi.conf", text)


def _podman_no_runtime(scene: Scene) -> None:
    podman(scene)
    text = '[engine]\nruntime = "nvidia"\n[engine.runtimes]\nnvidia = ["/opt/nvidia-runtime"]\n'
    scene.write("/etc/containers/containers.conf", text)


def _hook_of_nothing(scene: Scene) -> None:
    podman(scene)
    hook(scene, "oci-nvidia-hook", "/usr/bin/nvidia-container-toolkit")


def _two_hooks(scene: Scene) -> None:
    podman(scene)
    hook(scene, "oci-nvidia-hook", "/usr/bin/nvidia-container-runtime-hook")
    scene.write("/usr/local/bin/gpuhook-prestart", "#!/bin/sh\n", 0o755)
    hook(scene, "gpuhook-prestart", "/usr/local/bin/gpuhook-prestart")


def _selinux(scene: Scene) -> None:
    podman(scene)
    scene.write("/sys/fs/selinux/enforce", "1")
    for name in ("container_use_devices", "container_use_xserver_devices"):
        scene.write(f"/sys/fs/selinux/booleans/{name}", "0 0")


def _user(scene: Scene) -> None:
    podman(scene)
    scene.write("/home/ada/.local/share/containers/storage/db.sql", "")


def _no_subids(scene: Scene) -> None:
    _user(scene)
    install(scene, "newuidmap", "newgidmap")
    scene.write("/etc/subuid", "bob:100000:65536\n")
    scene.write("/etc/subgid", "ada:100000:65536\n")


def _no_delegation(scene: Scene) -> None:
    _user(scene)
    install(scene, "newuidmap", "newgidmap")
    scene.write("/etc/passwd", "ada:x:1000:1000::/home/ada:/bin/sh\n")
    for path in ("/etc/subuid", "/etc/subgid"):
        scene.write(path, "ada:100000:65536\n")
    scene.write(MANAGER, "pids\n")


def _apparmor(scene: Scene) -> None:
    _user(scene)
    install(scene, "newuidmap", "newgidmap")
    for path in ("/etc/subuid", "/etc/subgid"):
        scene.write(path, "ada:100000:65536\n")
    scene.write("/sys/module/apparmor/parameters/enabled", "Y\n")
    scene.write("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n")


def _rootless_docker(scene: Scene) -> None:
    """A user's Docker below a toolkit that sets device rules, which users may not."""
    docker(scene)
    install(scene, "newuidmap", "newgidmap")
    for path in ("/etc/subuid", "/etc/subgid"):
        scene.write(path, "ada:100000:65536\n")
    scene.write("/home/ada/.config/docker/daemon.json", json.dumps({"runtimes": RUNTIMES}))
    scene.write(TOOLKIT, DEFAULTS.replace('mode = "auto"', 'mode = "legacy"'))


BROKEN = [
    Broken("docker-no-json", "docker.config", _no_json),
    Broken("docker-runtimes-a-list", "docker.config", _runtimes_list),
    Broken("docker-default-not-registered", "docker.default", _default),
    Broken("docker-runtime-not-installed", "docker.binary", _no_binary),
    Broken("docker-gpus-without-hook", "docker.gpus", _no_hook),
    Broken("docker-gpus-in-mode-cdi", "nvidia-toolkit.gpus-flag", _mode_cdi),
    Broken("docker-not-restarted", "docker.restarted", _not_restarted, is_warning=True),
    Broken("docker-of-a-snap", "docker.snap", _snap),
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
