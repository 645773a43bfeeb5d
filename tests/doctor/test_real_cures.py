# SPDX-License-Identifier: Apache-2.0
"""The command of a finding fits the node's distribution and the author of the file."""

from __future__ import annotations

import json

import pytest

from gpuhook.node_facts import package_commands
from gpuhook.node_facts.check import FAILED, OK, WARNING
from gpuhook.vendors.nvidia.doctor.facts import driver_packages
from tests.doctor.case import is_root
from tests.doctor.parts.driver import add_pci_device
from tests.doctor.parts.engines import TOOLKIT
from tests.doctor.parts.kubernetes import KUBELET, UID
from tests.doctor.real import clouds, clusters, machines, others, workstations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from gpuhook.node_facts.check import Finding
    from tests.doctor.case import FaultCase

pytestmark = pytest.mark.skipif(not is_root(), reason="device nodes need root")
BY_ENV = "accept-nvidia-visible-devices-envvar-when-unprivileged"
IMAGES = "nvidia-toolkit.images"


def failures(case: FaultCase) -> list[tuple[str, str]]:
    examination = case.examine()
    return [(r.check.id, r.finding.command) for r in examination.of(FAILED)]


def finding_of(case: FaultCase, check: str) -> Finding:
    [finding] = [r.finding for r in case.examine([check]).results if r.check.id == check]
    return finding


def with_plugin(case: FaultCase, configuration: str = "") -> None:
    """Add a pod of NVIDIA's device plugin with a configuration."""
    pod = f"{KUBELET}/pods/{UID}"
    case.path(f"{pod}/containers/nvidia-device-plugin-ctr/0").mkdir(parents=True)
    log = f"/var/log/pods/plugins_nvdp-x7k2p_{UID}/nvidia-device-plugin-ctr/0.log"
    case.write(log, "2026-11-01T10:00:00.1Z stderr F registered\n")
    if configuration:
        case.write(f"{pod}/volumes/kubernetes.io~configmap/configs/default", configuration)


def test_docker_without_a_runtime_is_the_only_failure(tmp_path: Path) -> None:
    case = workstations.distribution_docker(tmp_path)
    case.write(workstations.DAEMON, "{}")
    case.readings["programs"]["dockerd"]["version"] = "27.5.1"
    command = "nvidia-ctk runtime configure --runtime=docker && systemctl restart docker"
    assert failures(case) == [("docker.runtime", command)]


def test_configuration_file_of_dockers_command_line(tmp_path: Path) -> None:
    case = workstations.nixos(tmp_path)
    assert finding_of(case, "docker.runtime").looked_at == ("/nix/store/9s8d7f6g-daemon.json",)


def test_runc_of_k3s_is_the_low_level_runtime(tmp_path: Path) -> None:
    case = clusters.k3s(tmp_path)
    assert finding_of(case, "nvidia-toolkit.low-level").status == OK
    case.remove("/var/lib/rancher/k3s/data/0a1b2c3d4e/bin/runc")
    assert finding_of(case, "nvidia-toolkit.low-level").status == FAILED


def test_old_runc_needs_dev_char_links(tmp_path: Path) -> None:
    case = workstations.ubuntu_docker(tmp_path)
    for version, status in (("1.1.2", "not-applicable"), ("1.1.5", WARNING), ("1.1.7", None)):
        case.readings["programs"]["runc"]["version"] = version
        assert finding_of(case, "devices.links").status == (status or "not-applicable")
    case.write("/usr/lib/systemd/libsystemd-shared-239.so", "")
    finding = finding_of(case, "devices.links")
    assert finding.status == WARNING
    assert "runc 1.1.7 with systemd 239" in finding.message


def test_selinux_boolean_of_the_loaded_policy(tmp_path: Path) -> None:
    case = workstations.fedora_podman(tmp_path)
    case.remove("/sys/fs/selinux/booleans/container_use_xserver_devices")
    finding = finding_of(case, "host.selinux")
    assert finding.status == FAILED
    assert finding.command.startswith("setsebool -P container_use_devices on")


def test_operator_is_configured_by_its_cluster_policy(tmp_path: Path) -> None:
    finding = finding_of(clusters.operator_default(tmp_path), IMAGES)
    start, patch = finding.command.split(" -p ")
    assert start == "kubectl patch clusterpolicy cluster-policy --type merge"
    spec = json.loads(patch.strip("'"))["spec"]
    assert [(one["name"], one["value"]) for one in spec["toolkit"]["env"]] == [
        ("ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED", "false"),
        ("ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS", "true"),
    ]
    assert spec["devicePlugin"]["env"][0]["value"] == "volume-mounts"


def test_plugin_strategy_is_set_before_the_toolkit(tmp_path: Path) -> None:
    case = clouds.eks(tmp_path)
    with_plugin(case)
    assert finding_of(case, IMAGES).command == (
        "kubectl -n plugins set env daemonset/nvdp DEVICE_LIST_STRATEGY=cdi-cri && nvidia-ctk"
        f" config --config-file {TOOLKIT} --in-place --set {BY_ENV}=false"
    )


def test_plugin_with_cdi_is_not_changed(tmp_path: Path) -> None:
    case = clouds.eks(tmp_path)
    with_plugin(case, "version: v1\nflags:\n  plugin:\n    deviceListStrategy: [cdi-cri]\n")
    command = f"nvidia-ctk config --config-file {TOOLKIT} --in-place --set {BY_ENV}=false"
    assert finding_of(case, IMAGES).command == command


def test_ignored_variables_of_images_have_no_finding(tmp_path: Path) -> None:
    case = clouds.aks(tmp_path)
    text = case.path(TOOLKIT).read_text("utf-8")
    case.write(TOOLKIT, f"{BY_ENV} = false\n{text}")
    assert finding_of(case, IMAGES).status == OK


def test_settings_of_another_toolkit_are_ignored(tmp_path: Path) -> None:
    """The operator's runtime reads its own file and ignores that of a package."""
    case = clusters.operator_default(tmp_path)
    case.write(TOOLKIT, f"{BY_ENV} = false\n")
    assert finding_of(case, IMAGES).status == WARNING


def test_subordinate_ids_of_a_directory_service(tmp_path: Path) -> None:
    case = workstations.fedora_podman(tmp_path)
    case.remove("/etc/subuid")
    assert finding_of(case, "host.subordinate-ids").status == FAILED
    case.write("/etc/nsswitch.conf", "passwd: files sss\nsubid: sss\n")
    assert finding_of(case, "host.subordinate-ids").status == "not-applicable"


def test_command_keeps_dockers_gpus_option(tmp_path: Path) -> None:
    """Mode cdi would prevent the loss of GPUs but break --gpus."""
    case = workstations.ubuntu_docker_old(tmp_path)
    case.write("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
    finding = finding_of(case, "host.daemon-reload")
    assert finding.status == WARNING
    assert "mode=cdi" not in finding.command
    assert "--device nvidia.com/gpu=all" in finding.command


def test_gpu_for_virtual_machines_is_not_applicable(tmp_path: Path) -> None:
    case = others.vfio(tmp_path)
    assert finding_of(case, "driver.bound").status == "not-applicable"


def test_operator_restores_its_hook(tmp_path: Path) -> None:
    case = clusters.operator(tmp_path)
    case.remove(f"{clusters.OPERATOR}/nvidia-cdi-hook")
    commands = {command for check, command in failures(case) if check == "specs.hooks"}
    assert commands == {
        "kubectl -n gpu-operator rollout restart daemonset/nvidia-container-toolkit-daemonset"
    }


def test_driver_files_are_restored_by_their_installer(tmp_path: Path) -> None:
    commands = {}
    for name, make in (
        ("fedora", workstations.fedora_podman),
        ("debian", workstations.distribution_docker),
        ("operator", clusters.operator),
        ("gke", clouds.gke),
        ("nixos", workstations.nixos),
    ):
        case = make(tmp_path / name)
        for path in case.root.rglob("libnvidia-ptxjitcompiler.so*"):
            path.unlink()
        findings = [r.finding for r in case.examine(["driver.files"]).of(WARNING)]
        commands[name] = next(one.command for one in findings if "ptxjit" in one.message).split(
            " "
        )[:2]
    assert commands == {
        "fedora": ["dnf", "reinstall"],
        "debian": ["apt-get", "install"],
        "operator": ["kubectl", "-n"],
        "gke": ["kubectl", "-n"],
        "nixos": ["nixos-rebuild", "switch"],
    }


def test_package_manager_of_the_distribution(tmp_path: Path) -> None:
    for program, start in (("zypper", "zypper install -y"), ("pacman", "pacman -S")):
        case = machines.without_gpu(tmp_path / program)
        machines.install(case, program)
        assert package_commands.install(case.examined().tree, "runc") == f"{start} runc"


def test_docker_snap_with_a_configured_runtime(tmp_path: Path) -> None:
    case = machines.with_gpu(tmp_path)
    daemon = '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}'
    case.write("/var/snap/docker/current/config/daemon.json", daemon)
    assert failures(case) == []
    assert finding_of(case, "docker.snap").status == "not-applicable"
    case.write("/var/snap/docker/current/config/daemon.json", "{}")
    assert finding_of(case, "docker.snap").status == WARNING


def test_nouveau_on_a_second_gpu_is_a_warning(tmp_path: Path) -> None:
    case = workstations.ubuntu_docker(tmp_path)
    add_pci_device(case, "0000:05:00.0", "0x030000", "nouveau")
    assert failures(case) == []
    assert finding_of(case, "driver.nouveau").status == WARNING


def test_driver_package_of_an_unknown_branch(tmp_path: Path) -> None:
    """Without a loaded module, the required branch is unknown."""
    case = machines.without_gpu(tmp_path)
    case.write("/etc/debian_version", "12\n")
    tree = case.examined().tree
    assert driver_packages.driver(tree, "") == "apt-get install -y nvidia-driver"
    assert driver_packages.driver(tree, "570") == (
        "apt-get install -y libnvidia-compute-570 nvidia-utils-570"
    )
    machines.install(case, "ubuntu-drivers")
    assert driver_packages.driver(case.examined().tree, "") == "ubuntu-drivers install"
