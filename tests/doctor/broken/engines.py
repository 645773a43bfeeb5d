# SPDX-License-Identifier: Apache-2.0
"""Broken configurations of containerd and of NVIDIA's toolkit."""

from __future__ import annotations

from tests.doctor.case import Broken, FaultCase
from tests.doctor.parts.engines import (
    CONFIG,
    CRI,
    DEFAULTS,
    DROP_IN,
    IMPORTS,
    NVIDIA,
    RUNC,
    TOOLKIT,
    programs,
    run,
)

NEW_CRI = 'plugins."io.containerd.cri.v1.runtime"'
KUBELET = "/var/lib/kubelet/config.yaml"
K3S = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
MICROK8S = "/var/snap/microk8s/current/args"


def _no_toml(case: FaultCase) -> None:
    case.write(DROP_IN, f"version = 2\n{RUNC}{NVIDIA}[plugins\n")


def _import_of_nothing(case: FaultCase) -> None:
    imports = IMPORTS.replace('"]', '", "/etc/containerd/certs.toml"]')
    case.write(CONFIG, f"version = 2\n{imports}{RUNC}")


def _version_in_quotes(case: FaultCase) -> None:
    case.write(CONFIG, f'version = "2"\n{IMPORTS}{RUNC}')


def _later_drop_in(case: FaultCase) -> None:
    """Write a drop-in with the version of the engine, below a file with an older version."""
    programs(case)["containerd"]["version"] = "2.3.1"
    new = f"{RUNC}{NVIDIA}".replace(CRI, NEW_CRI)
    case.write(DROP_IN, f"version = 4\n{new}")


def _no_cri(case: FaultCase) -> None:
    case.write(CONFIG, f'version = 2\ndisabled_plugins = ["cri"]\n{IMPORTS}{RUNC}')
    if not case.path(KUBELET).exists():
        case.write(KUBELET, "kind: KubeletConfiguration\n")


def _new_key(case: FaultCase) -> None:
    case.write(DROP_IN, f"version = 2\n{NVIDIA.replace(CRI, NEW_CRI)}")


def _old_key(case: FaultCase) -> None:
    programs(case)["containerd"]["version"] = "2.1.3"
    case.write(CONFIG, f"version = 3\n{IMPORTS}{RUNC.replace(CRI, NEW_CRI)}")
    case.write(DROP_IN, f"version = 3\n{NVIDIA}")


def _replaced(case: FaultCase) -> None:
    case.write("/etc/containerd/conf.d/99-z-mirrors.toml", f"version = 2\n{RUNC}")


def _not_imported(case: FaultCase) -> None:
    case.write(CONFIG, f"version = 2\n{RUNC}")


def _reads_another(case: FaultCase) -> None:
    case.write(K3S, f"version = 2\n{RUNC}")
    run(case, "containerd", "-c", K3S)


def _template(case: FaultCase) -> None:
    case.write(f"{MICROK8S}/containerd.toml", f"version = 2\n{RUNC}")
    case.write(f"{MICROK8S}/containerd-template.toml", f"version = 2\n{RUNC}{NVIDIA}")


def _not_registered(case: FaultCase) -> None:
    case.write(DROP_IN, f"version = 2\n{RUNC}")


def _no_type(case: FaultCase) -> None:
    case.write(DROP_IN, f"version = 2\n{RUNC}{NVIDIA.replace('runtime_type', '#runtime_type')}")


def _no_binary(case: FaultCase) -> None:
    case.remove("/usr/bin/nvidia-container-runtime")


def _binary_mode(case: FaultCase) -> None:
    case.path("/usr/bin/nvidia-container-runtime").chmod(0o644)


def _default(case: FaultCase) -> None:
    table = f'[{CRI}.containerd]\n  default_runtime_name = "nvidia-cdi"\n'
    case.write(DROP_IN, f"version = 2\n{table}{RUNC}{NVIDIA}")


def _no_runc(case: FaultCase) -> None:
    """containerd 1.x drops its default runc if another runtime is registered."""
    case.write(CONFIG, f"version = 2\n{IMPORTS}")
    case.write(DROP_IN, f"version = 2\n{NVIDIA}")


def _no_shim(case: FaultCase) -> None:
    case.remove("/usr/bin/containerd-shim-runc-v2")


def _pod_annotations(case: FaultCase) -> None:
    open_to_pods = 'runtime_type = "io.containerd.runc.v2"\n  pod_annotations = ["cdi.k8s.io/*"]'
    handler = NVIDIA.replace('runtime_type = "io.containerd.runc.v2"', open_to_pods)
    case.write(DROP_IN, f"version = 2\n{RUNC}{handler}")


def spec(case: FaultCase) -> None:
    """Write a CDI spec of GPUs if there is none."""
    if not any(case.path("/etc/cdi/x").parent.iterdir()):
        text = "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ndevices: []\n"
        case.write("/etc/cdi/nvidia.yaml", text)


def _cdi_dirs(case: FaultCase) -> None:
    spec(case)
    table = f'[{CRI}]\n  enable_cdi = true\n  cdi_spec_dirs = ["/opt/cdi"]\n'
    case.write(DROP_IN, f"version = 2\n{table}{RUNC}{NVIDIA}")


def _cdi_of_old(case: FaultCase) -> None:
    programs(case)["containerd"]["version"] = "1.6.20~ds1"
    case.write(DROP_IN, f"version = 2\n[{CRI}]\n  enable_cdi = true\n{RUNC}{NVIDIA}")


def _not_restarted(case: FaultCase) -> None:
    run(case, "containerd", started=1.0e9)


def _driver_systemd(case: FaultCase) -> None:
    case.write(KUBELET, "kind: KubeletConfiguration\ncgroupDriver: cgroupfs\n")


def _driver_cgroupfs(case: FaultCase) -> None:
    case.write(KUBELET, "kind: KubeletConfiguration\ncgroupDriver: systemd\n")
    case.write(DROP_IN, f"version = 2\n{RUNC}{NVIDIA.replace('SystemdCgroup', '#SystemdCgroup')}")


def _settings(case: FaultCase, old: str, new: str) -> None:
    assert old in DEFAULTS
    case.write(TOOLKIT, DEFAULTS.replace(old, new))


def _no_settings(case: FaultCase) -> None:
    case.write(TOOLKIT, f"{DEFAULTS}[nvidia-container-cli\n")


def _mode(case: FaultCase) -> None:
    _settings(case, 'mode = "auto"', 'mode = "jit"')


def _type(case: FaultCase) -> None:
    _settings(case, "load-kmods = true", 'load-kmods = "true"')


def _ldconfig(case: FaultCase) -> None:
    _settings(case, '"@/sbin/ldconfig"', '"/sbin/ldconfig"')


def _typo(case: FaultCase) -> None:
    _settings(case, "load-kmods = true", "load-kmods = true\nno-cgroup = true")


def _no_low_level(case: FaultCase) -> None:
    _settings(case, '["runc", "crun"]', '["docker-runc", "/usr/local/sbin/runc"]')


def _no_hook(case: FaultCase) -> None:
    path = "/usr/local/nvidia/toolkit/nvidia-container-runtime-hook"
    _settings(case, '"nvidia-container-runtime-hook"', f'"{path}"')


def _no_root(case: FaultCase) -> None:
    _settings(case, "environment = []", 'root = "/run/nvidia/driver"')


def _no_cgroups(case: FaultCase) -> None:
    text = DEFAULTS.replace('mode = "auto"', 'mode = "legacy"')
    case.write(TOOLKIT, text.replace("load-kmods = true", "no-cgroups = true"))


def _runtimes_in_a_row(case: FaultCase) -> None:
    path = "/srv/gpuhook-runtime"
    case.write(path, "#!/bin/sh\n", 0o755)
    _settings(case, '["runc", "crun"]', f'["{path}"]')


def _default_of_all(case: FaultCase) -> None:
    if not case.path(KUBELET).exists():
        case.write(KUBELET, "kind: KubeletConfiguration\n")
    table = f'[{CRI}.containerd]\n  default_runtime_name = "nvidia"\n'
    case.write(DROP_IN, f"version = 2\n{table}{RUNC}{NVIDIA}")


def _legacy(case: FaultCase) -> None:
    programs(case)["nvidia-ctk"]["version"] = "1.17.8"


BROKEN = [
    Broken("drop-in-no-toml", "containerd.config", _no_toml),
    Broken("import-not-there", "containerd.config", _import_of_nothing),
    Broken("version-in-quotes", "containerd.config", _version_in_quotes),
    Broken("drop-in-of-later-version", "containerd.config", _later_drop_in),
    Broken("cri-disabled", "containerd.cri", _no_cri),
    Broken("key-of-version-3-on-1.7", "containerd.plugin-key", _new_key),
    Broken("key-of-version-2-in-version-3", "containerd.plugin-key", _old_key),
    Broken("drop-in-replaced-by-later", "containerd.replaced", _replaced),
    Broken("drop-in-not-imported", "containerd.drop-in", _not_imported),
    Broken("k3s-reads-another-file", "containerd.wrong-file", _reads_another),
    Broken("microk8s-template-not-rendered", "containerd.template", _template),
    Broken("containerd-not-configured", "containerd.runtime", _not_registered),
    Broken("runtime-type-missing", "containerd.runtime-type", _no_type),
    Broken("runtime-not-installed", "containerd.binary", _no_binary),
    Broken("runtime-not-executable", "containerd.binary", _binary_mode),
    Broken("default-runtime-not-registered", "containerd.default", _default),
    Broken("runc-forgotten", "containerd.default", _no_runc),
    Broken("shim-not-installed", "containerd.shim", _no_shim),
    Broken("pods-annotate", "containerd.pod-annotations", _pod_annotations, is_warning=True),
    Broken("cdi-dirs-elsewhere", "containerd.cdi-dirs", _cdi_dirs),
    Broken("containerd-1.6-has-no-cdi", "containerd.cdi", _cdi_of_old, is_warning=True),
    Broken("containerd-not-restarted", "containerd.restarted", _not_restarted),
    Broken("cgroup-driver-systemd-alone", "containerd.cgroup-driver", _driver_systemd),
    Broken("cgroup-driver-left-out", "containerd.cgroup-driver", _driver_cgroupfs, is_warning=True),
    Broken("toolkit-no-toml", "nvidia-toolkit.config", _no_settings),
    Broken("toolkit-invalid-mode", "nvidia-toolkit.values", _mode),
    Broken("toolkit-value-of-wrong-type", "nvidia-toolkit.values", _type),
    Broken("toolkit-ldconfig-of-container", "nvidia-toolkit.values", _ldconfig),
    Broken("toolkit-key-misspelt", "nvidia-toolkit.keys", _typo, is_warning=True),
    Broken("toolkit-no-low-level-runtime", "nvidia-toolkit.low-level", _no_low_level),
    Broken("toolkit-hook-not-there", "nvidia-toolkit.programs", _no_hook),
    Broken("toolkit-root-not-there", "nvidia-toolkit.programs", _no_root),
    Broken("toolkit-no-cgroups", "nvidia-toolkit.no-cgroups", _no_cgroups),
    Broken("runtimes-in-a-row", "nvidia-toolkit.two-stacks", _runtimes_in_a_row, is_warning=True),
    Broken("images-take-all-gpus", "nvidia-toolkit.images", _default_of_all, is_warning=True),
    Broken("legacy-mode-with-systemd", "host.daemon-reload", _legacy, is_warning=True),
]
