# SPDX-License-Identifier: Apache-2.0
"""Checks of engines, on nodes with one engine and on file trees."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpuhook.doctor.checks.engine import (
    containerd,
    containerd_runtimes,
    crio,
    docker,
    gpu_access,
    nvidia_toolkit,
    podman,
    rootless,
)
from gpuhook.doctor.checks.host import cgroups, security
from gpuhook.doctor.examination import Examination, examine
from gpuhook.engines.read import docker_config
from gpuhook.node_facts.check import ExaminedNode
from gpuhook.node_facts.sources.node_readings import Readings
from gpuhook.node_facts.sources.node_tree import DirectoryTree

CHECKS = (
    *cgroups.CHECKS,
    *security.CHECKS,
    *rootless.CHECKS,
    *nvidia_toolkit.CHECKS,
    *containerd.CHECKS,
    *containerd_runtimes.CHECKS,
    *gpu_access.CHECKS,
    *docker.CHECKS,
    *crio.CHECKS,
    *podman.CHECKS,
)
DAEMON = "/etc/docker/daemon.json"
KUBELET = "/var/lib/kubelet/config.yaml"
MAIN = "/etc/containerd/config.toml"
SPEC = "kind: nvidia.com/gpu\n"
NVIDIA = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}
CRI = 'plugins."io.containerd.grpc.v1.cri".containerd'
PLAIN = f'version = 2\n[{CRI}.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'


class Trial:
    """A node with a driver and the files that a test writes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.readings: dict[str, Any] = {}
        self.write("/sys/module/nvidia/version", "580.95.05\n")

    def write(self, path: str, text: str = "") -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def programs(self, *names: str) -> None:
        for name in names:
            self.write(f"/usr/bin/{name}", "#!/bin/sh\n")
            (self.root / "usr/bin" / name).chmod(0o755)

    def version(self, name: str, version: str) -> None:
        self.readings.setdefault("programs", {})[name] = {"path": "", "version": version}

    def examine(self, *chosen: str) -> Examination:
        collectors = {name: partial(self.readings.get, name) for name in self.readings}
        node = ExaminedNode(DirectoryTree(str(self.root)), Readings(collectors))
        return examine(node, CHECKS, chosen or None)

    def failed(self) -> list[str]:
        return [one.check.id for one in self.examine().of("failed")]

    def status(self, check: str) -> str:
        return self.examine(check).results[-1].finding.status


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


def test_empty_tree_has_only_inapplicable_checks(trial: Trial) -> None:
    results = trial.examine().results
    assert {one.finding.status for one in results} == {"not-applicable"}
    assert {one.check.id for one in results} == {check.id for check in CHECKS}


def test_ids_are_unique_and_needed_checks_exist() -> None:
    ids = [check.id for check in CHECKS]
    assert len(ids) == len(set(ids))
    assert {need for check in CHECKS for need in check.needs} <= set(ids)


def test_docker_without_a_gpu_runtime_fails(trial: Trial) -> None:
    trial.programs("dockerd")
    assert trial.failed() == ["docker.runtime"]
    trial.write("/etc/cdi/nvidia.yaml", SPEC)  # Docker 28 and later inject CDI devices
    trial.version("dockerd", "27.5.1")
    assert trial.failed() == ["docker.runtime"]
    trial.version("dockerd", "28.3.0")
    assert trial.failed() == []


def test_docker_in_a_cluster_with_containerd_is_not_required(trial: Trial) -> None:
    trial.programs("dockerd", "containerd")
    trial.write(KUBELET, 'containerRuntimeEndpoint: "unix:///run/containerd/containerd.sock"\n')
    trial.write(MAIN, PLAIN)
    assert trial.failed() == ["containerd.runtime"]
    assert trial.status("docker.runtime") == "not-applicable"


def test_containerd_of_docker_is_not_required(trial: Trial) -> None:
    trial.programs("dockerd", "nvidia-container-runtime", "nvidia-container-runtime-hook", "runc")
    trial.write(DAEMON, json.dumps(NVIDIA))
    trial.write(MAIN, 'disabled_plugins = ["cri"]\n')
    assert trial.failed() == []


def test_nvidia_cdi_hook_is_enough_since_docker_29(trial: Trial) -> None:
    trial.programs("dockerd", "nvidia-container-runtime", "nvidia-cdi-hook", "runc")
    trial.write(DAEMON, json.dumps(NVIDIA))
    trial.version("dockerd", "28.5.0")
    assert trial.failed() == []
    assert trial.status("docker.gpus") == "warning"
    trial.version("dockerd", "29.0.1")
    assert trial.status("docker.gpus") == "ok"


def test_docker_with_gpuhooks_runtime_needs_no_hook(trial: Trial) -> None:
    """Only `docker run --gpus` needs it, and the fix replaces the runtime: no finding."""
    trial.programs("dockerd", "gpuhook-runtime", "runc")
    runtime = {"path": "/usr/bin/gpuhook-runtime"}
    trial.write(DAEMON, json.dumps({"runtimes": {"nvidia": runtime}}))
    assert trial.failed() == []
    (result,) = [one for one in trial.examine().results if one.check.id == "docker.gpus"]
    assert result.finding.status == "not-applicable"
    assert "gpuhook configure docker --route hook" in result.finding.message


def test_disabled_cdi_is_a_warning_without_a_gpu_runtime(trial: Trial) -> None:
    trial.programs("dockerd", "podman")
    trial.write(DAEMON, '{"features": {"cdi": false}}')
    assert trial.status("docker.cdi") == "warning"
    trial.write(DAEMON, json.dumps({**NVIDIA, "features": {"cdi": False}}))
    assert trial.status("docker.cdi") == "ok"


def test_crio_without_a_gpu_runtime_fails(trial: Trial) -> None:
    trial.write("/etc/crio/crio.conf", '[crio.runtime]\ndefault_runtime = "crun"\n')
    assert trial.failed() == ["crio.runtime"]
    trial.write("/etc/cdi/nvidia.yaml", SPEC)
    assert trial.failed() == []


@pytest.mark.parametrize(
    ("flag", "failed"),
    [
        ("--container-runtime-endpoint=unix:///var/run/crio/crio.sock", "crio.runtime"),
        (
            "--container-runtime-endpoint=unix:///run/containerd/containerd.sock",
            "containerd.runtime",
        ),
    ],
)
def test_engine_of_the_kubelet_without_a_gpu_runtime_fails(
    trial: Trial, flag: str, failed: str
) -> None:
    trial.write("/var/lib/kubelet/kubeadm-flags.env", f'KUBELET_KUBEADM_ARGS="{flag}"\n')
    trial.write("/etc/crio/crio.conf", "")
    trial.write(MAIN, PLAIN)
    assert trial.failed() == [failed]


def test_base_spec_with_a_hook_is_a_gpu_runtime(trial: Trial) -> None:
    spec = "/etc/containerd/gpuhook-base.json"
    handler = f'[{CRI}.runtimes.nvidia]\nbase_runtime_spec = "{spec}"\n'
    trial.write(MAIN, f'{PLAIN}{handler}runtime_type = "io.containerd.runc.v2"\n')
    trial.programs("containerd-shim-runc-v2")
    trial.write(spec, "{}")
    assert trial.failed() == ["containerd.runtime"]
    trial.write(spec, '{"hooks": {"prestart": [{"path": "/usr/local/bin/gpuhook-prestart"}]}}')
    assert trial.failed() == []


@pytest.mark.parametrize(
    ("version", "plugin"),
    [
        (1, "plugins.cri"),
        (2, 'plugins."io.containerd.grpc.v1.cri"'),
        (3, 'plugins."io.containerd.cri.v1.runtime"'),
    ],
)
@pytest.mark.parametrize(
    ("patterns", "words"),
    [
        ([], []),
        (["example.com/*", "cdi.k8s.io", "io.kubernetes.cri-o.userns-mode"], []),
        (["example.com/*", "cdi.k8s.io/*"], ["any CDI device"]),
        (["*/*"], ["any CDI device"]),
        (["cdi.k8s.i?/x-[a-z]"], ["any CDI device"]),
        (["[^x]di.k8s.io/*"], ["any CDI device", "CRI-O container"]),
        (["cdi\\.k8s\\.io/*"], ["any CDI device"]),
        (["io.kubernetes.*"], ["CRI-O container"]),
        (["*", "*/*"], ["any CDI device", "CRI-O container"]),
        (["[bad", "*/*]["], []),
        (["[]*/*", "[^]*/*", "[a-]*/*", "*/*\\"], []),
    ],
)
def test_gpu_annotations_that_pods_may_write_are_reported(
    patterns: list[str], words: list[str], version: int, plugin: str, trial: Trial
) -> None:
    """For each version of the file; container_annotations only copies those of the kubelet."""
    trial.programs("containerd", "gpuhook-runtime", "containerd-shim-runc-v2")
    if version == 3:
        trial.version("containerd", "2.1.9")
    trial.write(
        MAIN,
        f"""version = {version}
[{plugin}.containerd.runtimes.gpus]
runtime_type = "io.containerd.runc.v2"
pod_annotations = {json.dumps(patterns)}
container_annotations = ["cdi.k8s.io/*"]
[{plugin}.containerd.runtimes.gpus.options]
BinaryName = "/usr/bin/gpuhook-runtime"
[{plugin}.containerd.runtimes.kata]
runtime_type = "io.containerd.kata.v2"
pod_annotations = ["*/*"]
""",
    )
    (result,) = [
        one
        for one in trial.examine("containerd.pod-annotations").results
        if one.check.id == "containerd.pod-annotations"
    ]
    assert result.finding.status == ("warning" if words else "ok")
    assert [word for word in words if word not in result.finding.meaning] == []
    assert len(result.finding.meaning.split("; ")) == max(len(words), 1)


def test_containerd_1_in_the_path_does_not_read_version_3(trial: Trial) -> None:
    """A containerd 2 in another directory reads the file, by the key of version 3."""
    trial.programs("containerd", "gpuhook-runtime", "runc", "containerd-shim-runc-v2")
    trial.version("containerd", "1.6.20")
    key = 'plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia'
    handler = f'[{key}]\nruntime_type = "io.containerd.runc.v2"\n'
    options = f'[{key}.options]\nBinaryName = "/usr/bin/gpuhook-runtime"\n'
    trial.write(MAIN, f"version = 3\n{handler}{options}")
    assert trial.failed() == []


def test_containerd_with_another_file_is_found_by_its_process(trial: Trial) -> None:
    argv = ["/usr/bin/containerd", "--config=/opt/containerd.toml"]
    process = {"pid": 1, "name": "containerd", "argv": argv, "started": 4e9, "exe": argv[0]}
    trial.readings["processes"] = [process]
    trial.write("/opt/containerd.toml", PLAIN)
    runtime = f'[{CRI}.runtimes.nvidia]\nruntime_type = "io.containerd.runc.v2"\n'
    options = f'[{CRI}.runtimes.nvidia.options]\nBinaryName = "/usr/bin/nvidia-container-runtime"\n'
    trial.write(MAIN, f"{PLAIN}{runtime}{options}")
    trial.programs("nvidia-container-runtime", "runc", "containerd-shim-runc-v2")
    assert trial.failed() == ["containerd.wrong-file"]
    finding = trial.examine("containerd.wrong-file").of("failed")[0].finding
    assert "--config=/opt/containerd.toml" in finding.command


TOOLKIT = "/etc/nvidia-container-runtime/config.toml"


@pytest.mark.parametrize(
    ("path", "check"),
    [
        (MAIN, "containerd.config"),
        ("/etc/crio/crio.conf", "crio.config"),
        ("/etc/containers/containers.conf", "podman.config"),
        (TOOLKIT, "nvidia-toolkit.config"),
    ],
)
@pytest.mark.parametrize("text", ["a" + ".a" * 149 + " = 1\n", f"x = {'[' * 5000}{']' * 5000}\n"])
def test_toml_beyond_a_limit_of_gpuhook_does_not_stop_the_engine(
    trial: Trial, path: str, check: str, text: str
) -> None:
    """Go has no such limit: the file is valid, and the command must not move it."""
    trial.programs("containerd", "crio", "podman", "nvidia-container-runtime")
    trial.write(path, text)
    finding = trial.examine(check).of("failed")[0].finding
    assert "is not read by gpuhook: " in finding.message
    assert "start" not in finding.meaning
    assert "mv " not in finding.command


def test_k3s_without_a_runtime_is_the_only_failure(trial: Trial) -> None:
    trial.write("/var/lib/rancher/k3s/agent/etc/containerd/config.toml", PLAIN)
    trial.write(MAIN, PLAIN)
    failed = trial.examine().of("failed")
    assert [(one.check.id, one.finding.subject) for one in failed] == [
        ("containerd.runtime", "k3s")
    ]


def test_selinux_boolean_permits_devices(trial: Trial) -> None:
    trial.programs("podman", "crun")
    trial.write("/sys/fs/selinux/enforce", "1")
    assert trial.failed() == ["host.selinux"]
    trial.write("/sys/fs/selinux/booleans/container_use_xserver_devices", "1 1")
    assert trial.failed() == []
    trial.write("/sys/fs/selinux/booleans/container_use_xserver_devices", "0 1")
    assert trial.failed() == ["host.selinux"]
    trial.write("/sys/fs/selinux/enforce", "0")
    assert trial.failed() == []


def test_engine_without_labels_is_not_subject_to_selinux(trial: Trial) -> None:
    trial.write("/sys/fs/selinux/enforce", "1")
    trial.programs("dockerd", "nvidia-container-runtime", "nvidia-container-runtime-hook", "runc")
    trial.write(DAEMON, json.dumps(NVIDIA))
    assert trial.failed() == []
    trial.write(DAEMON, json.dumps({**NVIDIA, "selinux-enabled": True}))
    assert trial.failed() == ["host.selinux"]


_NOT = "systemd does not delegate"


@pytest.mark.parametrize("entry", ["ada:100000:65536", "1000:100000:65536"])
def test_subordinate_ids_by_name_or_number(trial: Trial, entry: str) -> None:
    trial.programs("newuidmap", "newgidmap")
    trial.write("/etc/passwd", "ada:x:1000:1000::/home/ada:/bin/sh\n")
    trial.write("/home/ada/.local/share/containers/storage/x")
    trial.write("/etc/subuid", "bob:100000:65536\n")
    trial.write("/etc/subgid", f"{entry}\n")
    failed = trial.examine().of("failed")
    assert [one.check.id for one in failed] == ["host.subordinate-ids"]
    assert "165536-231071" in failed[0].finding.command
    trial.write("/etc/subuid", f"{entry}\n")
    assert trial.failed() == []


def test_rootless_limits_require_delegation_by_systemd(trial: Trial) -> None:
    """The delegation is visible only with cgroup v2, while the user is logged in."""
    manager = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/cgroup.controllers"
    found = []
    trial.programs("newuidmap", "newgidmap")
    trial.write("/etc/passwd", "ada:x:1000:1000::/home/ada:/bin/sh\n")
    for path in ("/etc/subuid", "/etc/subgid"):
        trial.write(path, "ada:100000:65536\n")
    for path, content in (
        ("/home/ada/.local/share/containers/storage/x", ""),
        ("/sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n"),
        (manager, "memory pids\n"),
        (manager, "memory\n"),
        (manager, "\n"),
    ):
        trial.write(path, content)
        (one,) = [o for o in trial.examine().results if o.check.id == "host.delegation"]
        found.append((one.finding.status, one.finding.message))
    assert found == [
        ("not-applicable", "only cgroup v2 is delegated to users"),
        (
            "not-applicable",
            "ada is not logged in; delegated controllers are visible only in a session",
        ),
        ("ok", "systemd delegates memory, pids to ada"),
        ("warning", f"{_NOT} pids to ada, a user of rootless containers"),
        ("warning", f"{_NOT} memory and pids to ada, a user of rootless containers"),
    ]


def test_settings_of_the_toolkit_container_are_checked(trial: Trial) -> None:
    path = "/usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml"
    trial.programs("runc")
    trial.write(path, '[nvidia-container-runtime]\nmode = "cdi-jit"\n')
    assert trial.failed() == ["nvidia-toolkit.values"]
    finding = trial.examine("nvidia-toolkit.values").of("failed")[0].finding
    assert f"{path}:2" in finding.message


def test_ldconfig_of_the_container_requires_its_feature(trial: Trial) -> None:
    path = "/etc/nvidia-container-runtime/config.toml"
    trial.programs("runc")
    text = '[nvidia-container-cli]\nldconfig = "/sbin/ldconfig"\n'
    trial.write(path, text)
    assert trial.failed() == ["nvidia-toolkit.values"]
    trial.write(path, f"{text}[features]\nallow-ldconfig-from-container = true\n")
    assert trial.failed() == []


def test_commands_use_the_package_manager_of_the_node(trial: Trial) -> None:
    trial.programs("dockerd", "dnf")
    trial.write(DAEMON, json.dumps(NVIDIA))
    found = trial.examine("docker.binary").of("failed")[0].finding
    assert found.command.startswith("dnf install -y nvidia-container-toolkit && ")


def test_low_level_runtime_is_shown_with_its_version(trial: Trial) -> None:
    trial.programs("runc", "nvidia-container-runtime")
    trial.version("runc", "1.2.5")
    (one,) = trial.examine("nvidia-toolkit.low-level").of("ok")
    assert one.finding.message == "NVIDIA's runtime starts /usr/bin/runc, version 1.2.5"


def test_docker_older_than_its_hook_has_a_warning(trial: Trial) -> None:
    process = {"pid": 1, "name": "dockerd", "argv": ["dockerd"], "started": 1.0, "exe": ""}
    trial.readings["processes"] = [process]
    trial.write(DAEMON, json.dumps(NVIDIA))
    trial.programs("dockerd", "nvidia-container-runtime", "nvidia-container-runtime-hook", "runc")
    found = [one.finding for one in trial.examine("docker.restarted").of("warning")]
    assert [one.subject for one in found] == ["", "docker"]
    assert "nvidia-container-runtime-hook" in found[1].message


def test_a_changed_file_of_dockers_snap_is_a_warning(trial: Trial) -> None:
    process = {"pid": 1, "name": "dockerd", "argv": ["dockerd"], "started": 1.0, "exe": ""}
    trial.readings["processes"] = [process]
    trial.write(docker_config.SNAP_PATH, json.dumps(NVIDIA))
    trial.programs("nvidia-container-runtime-hook")
    found = trial.examine("docker.restarted").of("warning")
    assert {one.finding.command for one in found} == {"snap restart docker"}
