# SPDX-License-Identifier: Apache-2.0
"""Nodes of other kinds, checks of files only, and --fix for device nodes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import tests.doctor.parts  # noqa: F401 # registers what healthy nodes have
from gpuhook.doctor.check import FAILED, NOT_APPLICABLE, OK, WARNING, ExaminedNode
from gpuhook.doctor.check_list import checks
from gpuhook.doctor.checks.driver import device_links
from gpuhook.doctor.examination import examine
from gpuhook.doctor.facts import device_facts
from gpuhook.errors import fault
from gpuhook.node import node_readings
from gpuhook.node.node_readings import Readings
from gpuhook.node.node_tree import DirectoryTree
from gpuhook.vendors.nvidia.inventory import dump
from tests.doctor.broken.specs import hidden_with_a_lost_hook
from tests.doctor.case import FaultCase, is_root
from tests.doctor.parts import driver
from tests.simulated.node import make_node
from tests.simulated.profiles import LIBRARY_DIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuhook.doctor.check import Finding
    from gpuhook.doctor.examination import Examination

pytestmark = pytest.mark.skipif(not is_root(), reason="device nodes need root")
_OURS = ("driver", "devices", "gpus", "specs")


def looked(node: ExaminedNode, *ids: str) -> Examination:
    """Return the results of the checks of drivers, devices, GPUs and specs, or of the ids."""
    chosen = ids or tuple(check.id for check in checks() if check.section in _OURS)
    return examine(node, checks(), chosen)


def found(node: ExaminedNode, identity: str) -> list[Finding]:
    """Return the findings of one check."""
    return [r.finding for r in looked(node, identity).results if r.check.id == identity]


def bare(root: Path) -> ExaminedNode:
    """Return a node that is only the files below `root`."""
    return ExaminedNode(DirectoryTree(str(root)), Readings({}))


def troubles(examination: Examination) -> list[tuple[str, str]]:
    """Return the failures and warnings."""
    bad = [*examination.of(FAILED), *examination.of(WARNING)]
    return [(result.check.id, result.finding.message) for result in bad]


def test_checks_are_named_after_their_section_and_need_others_that_there_are() -> None:
    known = [check.id for check in checks()]
    assert len(known) == len(set(known))
    for check in checks():
        assert check.section not in _OURS or check.id.startswith(check.section + ".")
        assert set(check.needs) <= set(known), check.id


def test_a_machine_without_a_gpu_has_nothing_to_mend(tmp_path: Path) -> None:
    assert troubles(looked(bare(tmp_path))) == []


@pytest.mark.parametrize("profile", ["t4", "a100-mig"])
def test_the_files_of_a_healthy_node_are_enough_to_find_no_fault(
    profile: str, healthy: Callable[[str], FaultCase]
) -> None:
    examination = looked(bare(healthy(profile).root))
    assert troubles(examination) == []
    answers = {result.check.id: result.finding for result in examination.results}
    assert answers["gpus.nvml"].status == NOT_APPLICABLE
    assert answers["specs.fresh"].status == OK


def test_on_wsl_the_driver_is_that_of_windows(tmp_path: Path) -> None:
    libraries = tmp_path / "usr/lib/wsl/lib"
    libraries.mkdir(parents=True)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/dxg").touch()
    for name in ("libcuda.so.1", "libdxcore.so"):
        (libraries / name).touch()
    [lacking] = looked(bare(tmp_path)).of(FAILED)
    assert lacking.check.id == "driver.wsl"
    assert "/usr/lib/wsl/lib/libnvidia-ml.so.1" in lacking.finding.message
    (libraries / "libnvidia-ml.so.1").touch()
    assert found(bare(tmp_path), "driver.wsl")[0].status == OK


def test_a_driver_for_linux_on_wsl_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/dxg").touch()
    for directory in ("usr/lib/wsl/lib", LIBRARY_DIR[1:]):
        (tmp_path / directory).mkdir(parents=True)
    for name in ("libcuda.so.1", "libdxcore.so", "libnvidia-ml.so.1"):
        (tmp_path / "usr/lib/wsl/lib" / name).touch()
    (tmp_path / LIBRARY_DIR[1:] / "libcuda.so.580.95.05").touch()
    [finding] = found(bare(tmp_path), "driver.wsl")
    assert finding.status == WARNING
    assert "libcuda.so.580.95.05" in finding.message


def test_gpus_of_virtual_machines_need_no_driver(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("t4")
    for path in ("/sys/module/nvidia/version", "/proc/driver/nvidia/version"):
        case.remove(path)
    driver.bind(case, "0000:00:1e.0", "vfio-pci")
    assert found(case.examined(), "driver.module")[0].status == NOT_APPLICABLE


def test_a_driver_in_a_container_of_its_own_is_found(tmp_path: Path) -> None:
    made = make_node(tmp_path, "t4", layout="driver-container")
    case = FaultCase(tmp_path, made)
    examination = looked(case.examined(), "driver.libraries", "devices.gpus", "devices.uvm")
    assert troubles(examination) == []
    said = {result.check.id: result.finding.message for result in examination.results}
    assert "/run/nvidia/driver" in said["driver.libraries"]
    assert said["devices.uvm"] == "/run/nvidia/driver/dev/nvidia-uvm exists"


def test_links_that_lead_to_another_driver_are_mended_by_ldconfig(
    fresh: Callable[[str], FaultCase],
) -> None:
    case = fresh("t4")
    for stem in ("libcuda", "libnvidia-ml"):
        case.write(f"{LIBRARY_DIR}/{stem}.so.570.86.10", "")
        link = case.path(f"{LIBRARY_DIR}/{stem}.so.1")
        link.unlink()
        link.symlink_to(f"{stem}.so.570.86.10")
    [finding] = found(case.examined(), "driver.version")
    assert finding.status == FAILED
    assert finding.command.startswith("ldconfig")


def test_what_no_spec_names_may_be_missing(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("t4")
    for path in (driver.SPEC, "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"):
        case.remove(path)
    node = case.examined()
    assert found(node, "devices.uvm-tools")[0].status == WARNING
    assert found(node, "devices.modeset")[0].status == NOT_APPLICABLE


def _dumped(case: FaultCase) -> dict[str, Any]:
    return dump.as_dict(case.node.node)


def test_a_gpu_in_mig_mode_without_instances_is_warned_of(
    fresh: Callable[[str], FaultCase],
) -> None:
    case = fresh("a100-mig")
    case.readings[node_readings.INVENTORY] = _dumped(case)
    del case.readings[node_readings.INVENTORY]["gpus"][1]["instances"]
    [finding] = found(case.examined(), "gpus.mig")
    assert finding.status == WARNING
    assert finding.message.startswith("GPU 1 is in MIG mode")


def test_a_gpu_that_nvml_does_not_list_is_told(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("h100x8")
    case.readings[node_readings.INVENTORY] = _dumped(case)
    del case.readings[node_readings.INVENTORY]["gpus"][7]
    [failed] = looked(case.examined()).of(FAILED)
    assert failed.check.id == "gpus.seen"
    assert "0000:df:00.0" in failed.finding.message
    path = case.path("/proc/driver/nvidia/gpus/0000:df:00.0/information")
    text = path.read_text(encoding="utf-8").replace("GPU Excluded:\t No", "GPU Excluded:\t Yes")
    path.write_text(text, encoding="utf-8")
    assert found(case.examined(), "gpus.seen")[0].status == OK


def test_who_may_not_ask_nvml_is_told_to_be_root(healthy: Callable[[str], FaultCase]) -> None:
    def refused() -> Any:
        raise fault("GH1205", path="/usr/lib/libnvidia-ml.so.1")

    collectors = {node_readings.INVENTORY: refused}
    node = ExaminedNode(DirectoryTree(str(healthy("t4").root)), Readings(collectors))
    [finding] = found(node, "gpus.nvml")
    assert finding.status == NOT_APPLICABLE
    assert "root" in finding.message


class LiveTree(DirectoryTree):
    """A tree that stands for this machine."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self._below, self.root = self.root, "/"

    def real(self, path: str) -> str | None:
        """Return the path in the tree, with links resolved."""
        place = super().real(path)
        return place and (place.removeprefix(self._below) or "/")


def test_missing_nodes_are_made_on_this_machine_alone(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("t4")
    path = case.path("/dev/nvidia-uvm")
    path.unlink()
    [finding] = found(case.examined(), "devices.uvm")
    assert finding.fix is None
    # The fix makes the device node in the /dev of the tree.
    live = ExaminedNode(LiveTree(case.root), Readings({}), dev_root=str(case.root))
    [finding] = found(live, "devices.uvm")
    assert finding.fix is not None
    assert finding.fix.description == f"make {path}, the character device 242:0 with mode 0666"
    for _ in range(2):
        finding.fix.apply()
        assert os.stat(path).st_rdev == os.makedev(242, 0)
        assert os.stat(path).st_mode & 0o777 == 0o666


def test_a_node_with_other_numbers_is_made_anew(fresh: Callable[[str], FaultCase]) -> None:
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


def test_a_link_is_made_in_the_place_of_another(tmp_path: Path) -> None:
    link = tmp_path / "195:0"
    link.symlink_to("../nvidia7")
    for _ in range(2):
        device_links.make(str(link), "../nvidia0")
        assert os.readlink(link) == "../nvidia0"


def test_what_is_wrong_with_a_hidden_spec_is_mended_by_removing_it(
    fresh: Callable[[str], FaultCase],
) -> None:
    case = fresh("t4")
    hidden_with_a_lost_hook(case)
    warnings = [one for one in found(case.examined(), "specs.hooks") if one.status == WARNING]
    assert [one.command for one in warnings] == ["rm /etc/cdi/nvidia.json"]


def test_a_fabric_manager_that_runs_is_of_the_right_version(
    fresh: Callable[[str], FaultCase],
) -> None:
    case = fresh("h100x8")
    case.write(
        "/var/lib/dpkg/status",
        "Package: nvidia-fabricmanager-575\nStatus: install ok installed\nVersion: 575.57.08-1\n",
    )
    assert found(case.examined(), "gpus.fabric-version")[0].status == OK
    case.readings[node_readings.UNITS] = {}
    case.readings[node_readings.PROCESSES] = [
        {"pid": 7, "name": "nv-fabricmanage", "argv": ["/usr/bin/nv-fabricmanager"], "started": 1}
    ]
    assert found(case.examined(), "gpus.fabric")[0].status == OK
    case.readings[node_readings.PROCESSES] = []
    assert found(case.examined(), "gpus.fabric-version")[0].status == FAILED


def test_who_uses_cgroups_by_themselves_needs_no_links(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("t4")
    case.remove("/dev/char/195:0")
    case.remove("/sys/fs/cgroup/cgroup.controllers")
    for path in ("/var/lib/kubelet/config.yaml", "/etc/containerd/config.toml"):
        case.path(path).unlink(missing_ok=True)
    case.path("/etc/docker/daemon.json").unlink(missing_ok=True)
    assert found(case.examined(), "devices.links")[0].status == NOT_APPLICABLE
    case.write("/etc/containerd/config.toml", "SystemdCgroup = true\n")
    assert found(case.examined(), "devices.links")[0].status == NOT_APPLICABLE
    case.readings[node_readings.PROGRAMS]["runc"]["version"] = "1.1.5"
    [finding] = found(case.examined(), "devices.links")
    assert finding.status == WARNING
    assert finding.command == "gpuhook system create-dev-char-symlinks --replace"


def test_the_toolkits_own_spec_of_this_driver_is_well(fresh: Callable[[str], FaultCase]) -> None:
    import json

    case = fresh("h100x8")
    document = driver.toolkit_spec(case)
    case.remove(driver.SPEC)
    case.write("/var/run/cdi/nvidia.json", json.dumps(document))
    assert troubles(looked(case.examined())) == []
