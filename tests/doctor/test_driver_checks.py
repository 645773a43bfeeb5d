# SPDX-License-Identifier: Apache-2.0
"""Checks of drivers, devices, GPUs and specs on other kinds of nodes; --fix for device nodes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import tests.doctor.parts  # noqa: F401 # registers what healthy nodes have
from gpuhook.doctor.check_list import checks
from gpuhook.doctor.examination import examine
from gpuhook.errors import fault
from gpuhook.node_facts.check import FAILED, NOT_APPLICABLE, OK, WARNING, ExaminedNode
from gpuhook.node_facts.sources import node_readings
from gpuhook.node_facts.sources.node_readings import Readings
from gpuhook.node_facts.sources.node_tree import DirectoryTree
from gpuhook.vendors.nvidia.doctor import device_link_checks
from gpuhook.vendors.nvidia.doctor.facts import device_facts
from gpuhook.vendors.nvidia.inventory import dump
from tests.doctor.broken.driver import no_program_holds_gpus
from tests.doctor.broken.specs import hidden_with_a_lost_hook
from tests.doctor.case import FaultCase, is_root
from tests.doctor.parts import driver
from tests.simulated.node import make_node
from tests.simulated.profiles import LIBRARY_DIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuhook.doctor.examination import Examination
    from gpuhook.node_facts.check import Finding

pytestmark = pytest.mark.skipif(not is_root(), reason="device nodes need root")
_SECTIONS = ("driver", "devices", "gpus", "specs")


def examine_drivers(node: ExaminedNode, *ids: str) -> Examination:
    """Run the checks of drivers, devices, GPUs and specs, or the checks of the ids."""
    chosen = ids or tuple(check.id for check in checks() if check.section in _SECTIONS)
    return examine(node, checks(), chosen)


def findings_of(node: ExaminedNode, identity: str) -> list[Finding]:
    """Return the findings of one check."""
    return [r.finding for r in examine_drivers(node, identity).results if r.check.id == identity]


def files_only(root: Path) -> ExaminedNode:
    """Return a node that consists of the files below `root`."""
    return ExaminedNode(DirectoryTree(str(root)), Readings({}))


def failures_and_warnings(examination: Examination) -> list[tuple[str, str]]:
    """Return check and message of each failure and warning."""
    bad = [*examination.of(FAILED), *examination.of(WARNING)]
    return [(result.check.id, result.finding.message) for result in bad]


def test_check_ids_and_dependencies() -> None:
    known = [check.id for check in checks()]
    assert len(known) == len(set(known))
    for check in checks():
        assert check.section not in _SECTIONS or check.id.startswith(check.section + ".")
        assert set(check.needs) <= set(known), check.id


def test_machine_without_a_gpu_has_no_finding(tmp_path: Path) -> None:
    assert failures_and_warnings(examine_drivers(files_only(tmp_path))) == []


@pytest.mark.parametrize("profile", ["t4", "a100-mig"])
def test_files_of_a_healthy_node_have_no_finding(
    profile: str, healthy: Callable[[str], FaultCase]
) -> None:
    examination = examine_drivers(files_only(healthy(profile).root))
    assert failures_and_warnings(examination) == []
    answers = {result.check.id: result.finding for result in examination.results}
    assert answers["gpus.nvml"].status == NOT_APPLICABLE
    assert answers["specs.fresh"].status == OK


def test_missing_windows_driver_on_wsl(tmp_path: Path) -> None:
    libraries = tmp_path / "usr/lib/wsl/lib"
    libraries.mkdir(parents=True)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/dxg").touch()
    for name in ("libcuda.so.1", "libdxcore.so"):
        (libraries / name).touch()
    [lacking] = examine_drivers(files_only(tmp_path)).of(FAILED)
    assert lacking.check.id == "driver.wsl"
    assert "/usr/lib/wsl/lib/libnvidia-ml.so.1" in lacking.finding.message
    (libraries / "libnvidia-ml.so.1").touch()
    assert findings_of(files_only(tmp_path), "driver.wsl")[0].status == OK


def test_linux_driver_on_wsl_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/dxg").touch()
    for directory in ("usr/lib/wsl/lib", LIBRARY_DIR[1:]):
        (tmp_path / directory).mkdir(parents=True)
    for name in ("libcuda.so.1", "libdxcore.so", "libnvidia-ml.so.1"):
        (tmp_path / "usr/lib/wsl/lib" / name).touch()
    (tmp_path / LIBRARY_DIR[1:] / "libcuda.so.580.95.05").touch()
    [finding] = findings_of(files_only(tmp_path), "driver.wsl")
    assert finding.status == WARNING
    assert "libcuda.so.580.95.05" in finding.message


def test_gpu_for_virtual_machines_needs_no_driver(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("t4")
    for path in ("/sys/module/nvidia/version", "/proc/driver/nvidia/version"):
        case.remove(path)
    driver.bind(case, "0000:00:1e.0", "vfio-pci")
    assert findings_of(case.examined(), "driver.module")[0].status == NOT_APPLICABLE


def test_driver_container_is_found(tmp_path: Path) -> None:
    made = make_node(tmp_path, "t4", layout="driver-container")
    case = FaultCase(tmp_path, made)
    examination = examine_drivers(
        case.examined(), "driver.libraries", "devices.gpus", "devices.uvm"
    )
    assert failures_and_warnings(examination) == []
    messages = {result.check.id: result.finding.message for result in examination.results}
    assert "/run/nvidia/driver" in messages["driver.libraries"]
    assert messages["devices.uvm"] == "/run/nvidia/driver/dev/nvidia-uvm exists"


def test_links_to_another_driver_are_fixed_by_ldconfig(
    fresh: Callable[[str], FaultCase],
) -> None:
    case = fresh("t4")
    for stem in ("libcuda", "libnvidia-ml"):
        case.write(f"{LIBRARY_DIR}/{stem}.so.570.86.10", "")
        link = case.path(f"{LIBRARY_DIR}/{stem}.so.1")
        link.unlink()
        link.symlink_to(f"{stem}.so.570.86.10")
    [finding] = findings_of(case.examined(), "driver.version")
    assert finding.status == FAILED
    assert finding.command.startswith("ldconfig")


def test_node_that_no_spec_names_may_be_missing(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("t4")
    for path in (driver.SPEC, "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"):
        case.remove(path)
    node = case.examined()
    assert findings_of(node, "devices.uvm-tools")[0].status == WARNING
    assert findings_of(node, "devices.modeset")[0].status == NOT_APPLICABLE


def _dumped(case: FaultCase) -> dict[str, Any]:
    return dump.as_dict(case.node.node)


def test_gpu_in_mig_mode_without_instances_is_a_warning(
    fresh: Callable[[str], FaultCase],
) -> None:
    case = fresh("a100-mig")
    case.readings[node_readings.INVENTORY] = _dumped(case)
    del case.readings[node_readings.INVENTORY]["gpus"][1]["instances"]
    [finding] = findings_of(case.examined(), "gpus.mig")
    assert finding.status == WARNING
    assert finding.message.startswith("GPU 1 is in MIG mode")


def test_gpu_missing_from_nvml_is_a_failure(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("h100x8")
    case.readings[node_readings.INVENTORY] = _dumped(case)
    del case.readings[node_readings.INVENTORY]["gpus"][7]
    [failed] = examine_drivers(case.examined()).of(FAILED)
    assert failed.check.id == "gpus.seen"
    assert "0000:df:00.0" in failed.finding.message
    path = case.path("/proc/driver/nvidia/gpus/0000:df:00.0/information")
    text = path.read_text(encoding="utf-8").replace("GPU Excluded:\t No", "GPU Excluded:\t Yes")
    path.write_text(text, encoding="utf-8")
    assert findings_of(case.examined(), "gpus.seen")[0].status == OK


@pytest.mark.parametrize(("mode", "status"), [(0, WARNING), (1, OK)])
def test_persistence_mode_needs_no_daemon(
    mode: int, status: str, fresh: Callable[[str], FaultCase]
) -> None:
    """`nvidia-smi -pm 1` keeps the GPUs initialized as nvidia-persistenced does."""
    case = fresh("t4")
    no_program_holds_gpus(case)
    with Path(case.node.nvml_profile).open("a", encoding="utf-8") as profile:
        profile.write(f"persistence_mode {mode}\n")
    [finding] = findings_of(case.examined(), "gpus.persistence")
    assert finding.status == status


def test_nvml_without_permission_is_not_applicable(healthy: Callable[[str], FaultCase]) -> None:
    def refused() -> Any:
        raise fault("GH1205", path="/usr/lib/libnvidia-ml.so.1")

    collectors = {node_readings.INVENTORY: refused}
    node = ExaminedNode(DirectoryTree(str(healthy("t4").root)), Readings(collectors))
    [finding] = findings_of(node, "gpus.nvml")
    assert finding.status == NOT_APPLICABLE
    assert "root" in finding.message


class LiveTree(DirectoryTree):
    """A tree that plays the root directory of this machine."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self._below, self.root = self.root, "/"

    def real(self, path: str) -> str | None:
        """Return the path in the tree, with links resolved."""
        place = super().real(path)
        return place and (place.removeprefix(self._below) or "/")


def test_missing_node_is_fixed_on_this_machine_only(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("t4")
    path = case.path("/dev/nvidia-uvm")
    path.unlink()
    [finding] = findings_of(case.examined(), "devices.uvm")
    assert finding.fix is None
    # The fix makes the device node in the /dev of the tree.
    live = ExaminedNode(LiveTree(case.root), Readings({}), dev_root=str(case.root))
    [finding] = findings_of(live, "devices.uvm")
    assert finding.fix is not None
    assert finding.fix.description == f"make {path}, the character device 242:0 with mode 0666"
    for _ in range(2):
        finding.fix.apply()
        assert os.stat(path).st_rdev == os.makedev(242, 0)
        assert os.stat(path).st_mode & 0o777 == 0o666


def test_fix_replaces_a_node_with_other_numbers(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("t4")
    path = case.path("/dev/nvidia-uvm")
    path.unlink()
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    live = ExaminedNode(LiveTree(case.root), Readings({}), dev_root=str(case.root))
    wanted = device_facts.control_nodes()[device_facts.UVM]
    fix = device_facts.node_fix(live, wanted, is_there=True)
    assert fix is not None
    for _ in range(2):
        fix.apply()
        assert os.stat(path).st_rdev == os.makedev(242, 0)


def test_fix_replaces_a_link(tmp_path: Path) -> None:
    link = tmp_path / "195:0"
    link.symlink_to("../nvidia7")
    for _ in range(2):
        device_link_checks.make(str(link), "../nvidia0")
        assert os.readlink(link) == "../nvidia0"


def test_broken_hidden_spec_is_fixed_by_its_removal(
    fresh: Callable[[str], FaultCase],
) -> None:
    case = fresh("t4")
    hidden_with_a_lost_hook(case)
    warnings = [one for one in findings_of(case.examined(), "specs.hooks") if one.status == WARNING]
    assert [one.command for one in warnings] == ["rm /etc/cdi/nvidia.json"]


def test_fabric_manager_version_applies_if_it_does_not_run(
    fresh: Callable[[str], FaultCase],
) -> None:
    case = fresh("h100x8")
    case.write(
        "/var/lib/dpkg/status",
        "Package: nvidia-fabricmanager-575\nStatus: install ok installed\nVersion: 575.57.08-1\n",
    )
    assert findings_of(case.examined(), "gpus.fabric-version")[0].status == OK
    case.readings[node_readings.UNITS] = {}
    case.readings[node_readings.PROCESSES] = [
        {"pid": 7, "name": "nv-fabricmanage", "argv": ["/usr/bin/nv-fabricmanager"], "started": 1}
    ]
    assert findings_of(case.examined(), "gpus.fabric")[0].status == OK
    case.readings[node_readings.PROCESSES] = []
    assert findings_of(case.examined(), "gpus.fabric-version")[0].status == FAILED


def test_dev_char_links_are_needed_by_systemd_and_old_runc_only(
    fresh: Callable[[str], FaultCase],
) -> None:
    case = fresh("t4")
    case.remove("/dev/char/195:0")
    case.remove("/sys/fs/cgroup/cgroup.controllers")
    for path in ("/var/lib/kubelet/config.yaml", "/etc/containerd/config.toml"):
        case.path(path).unlink(missing_ok=True)
    case.path("/etc/docker/daemon.json").unlink(missing_ok=True)
    assert findings_of(case.examined(), "devices.links")[0].status == NOT_APPLICABLE
    case.write("/etc/containerd/config.toml", "SystemdCgroup = true\n")
    assert findings_of(case.examined(), "devices.links")[0].status == NOT_APPLICABLE
    case.readings[node_readings.PROGRAMS]["runc"]["version"] = "1.1.5"
    [finding] = findings_of(case.examined(), "devices.links")
    assert finding.status == WARNING
    assert finding.command == "gpuhook system create-dev-char-symlinks --replace"


def test_current_spec_of_the_toolkit_has_no_finding(fresh: Callable[[str], FaultCase]) -> None:
    import json

    case = fresh("h100x8")
    document = driver.toolkit_spec(case)
    case.remove(driver.SPEC)
    case.write("/var/run/cdi/nvidia.json", json.dumps(document))
    assert failures_and_warnings(examine_drivers(case.examined())) == []
