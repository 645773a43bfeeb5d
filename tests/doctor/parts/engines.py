# SPDX-License-Identifier: Apache-2.0
"""The engine of a healthy node: containerd 1.7 with NVIDIA's runtime in a drop-in."""

from __future__ import annotations

import time
from typing import Any

from gpuhook.node_facts.sources import node_readings
from tests.doctor.case import FaultCase, part

CONFIG = "/etc/containerd/config.toml"
DROP_IN = "/etc/containerd/conf.d/99-nvidia.toml"
TOOLKIT = "/etc/nvidia-container-runtime/config.toml"
CRI = 'plugins."io.containerd.grpc.v1.cri"'
IMPORTS = 'imports = ["/etc/containerd/conf.d/*.toml"]\n'
RUNC = f"""
[{CRI}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [{CRI}.containerd.runtimes.runc.options]
    SystemdCgroup = true
"""
NVIDIA = f"""
[{CRI}.containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
  [{CRI}.containerd.runtimes.nvidia.options]
    BinaryName = "/usr/bin/nvidia-container-runtime"
    SystemdCgroup = true
"""
PROGRAMS = (
    "containerd",
    "containerd-shim-runc-v2",
    "runc",
    "nvidia-container-runtime",
    "nvidia-container-runtime-hook",
    "nvidia-container-cli",
    "nvidia-ctk",
    "nvidia-cdi-hook",
)
DEFAULTS = """\
disable-require = false
supported-driver-capabilities = "compat32,compute,display,graphics,ngx,utility,video"
#accept-nvidia-visible-devices-envvar-when-unprivileged = true

[nvidia-container-cli]
environment = []
ldconfig = "@/sbin/ldconfig"
load-kmods = true

[nvidia-container-runtime]
log-level = "info"
mode = "auto"
runtimes = ["runc", "crun"]

[nvidia-container-runtime.modes.cdi]
annotation-prefixes = ["cdi.k8s.io/"]
default-kind = "nvidia.com/gpu"
spec-dirs = ["/etc/cdi", "/var/run/cdi"]

[nvidia-container-runtime.modes.legacy]
cuda-compat-mode = "ldconfig"

[nvidia-container-runtime-hook]
path = "nvidia-container-runtime-hook"
skip-mode-detection = false

[nvidia-ctk]
path = "nvidia-ctk"
"""


def programs(case: FaultCase) -> dict[str, Any]:
    """Return the versions of programs; the caller may change them."""
    found: dict[str, Any] = case.readings.setdefault(node_readings.PROGRAMS, {})
    return found


def run(case: FaultCase, name: str, *argv: str, started: float | None = None) -> None:
    """Add a running process, by default started after all files were written."""
    found: list[dict[str, Any]] = case.readings.setdefault(node_readings.PROCESSES, [])
    since = time.time() + 86400 if started is None else started
    found[:] = [one for one in found if one["name"] != name]
    exe = f"/usr/bin/{name}"
    found.append({"pid": 700, "name": name, "argv": [exe, *argv], "started": since, "exe": exe})


def install(case: FaultCase, *names: str) -> None:
    """Add programs."""
    for name in names:
        case.write(f"/usr/bin/{name}", "#!/bin/sh\nexit 0\n", 0o755)


@part
def engine(case: FaultCase) -> None:
    """Add containerd and NVIDIA's toolkit in the form of their packages."""
    install(case, *PROGRAMS)
    case.write(CONFIG, f"version = 2\n{IMPORTS}{RUNC}")
    case.write(DROP_IN, f"version = 2\n{RUNC}{NVIDIA}")
    case.write(TOOLKIT, DEFAULTS)
    for name, version in (("containerd", "1.7.25"), ("nvidia-ctk", "1.20.0"), ("runc", "1.2.5")):
        programs(case)[name] = {"path": f"/usr/bin/{name}", "version": version}
    run(case, "containerd")
