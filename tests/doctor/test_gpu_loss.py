# SPDX-License-Identifier: Apache-2.0
"""What doctor prints of GPUs that are gone from the PCI bus: which, who used them, what to do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import tests.doctor.parts  # noqa: F401 # registers what healthy nodes have
from gpuhook.cli import main
from gpuhook.doctor import doctor_text
from gpuhook.doctor.check import FAILED, NOT_APPLICABLE, WARNING, ExaminedNode
from gpuhook.doctor.check_list import checks
from gpuhook.doctor.examination import examine
from gpuhook.node import node_readings
from gpuhook.node.node_readings import Readings
from gpuhook.node.node_tree import DirectoryTree
from tests.doctor.broken import gpu_loss
from tests.doctor.broken.containers import running
from tests.doctor.case import is_root
from tests.doctor.parts import driver
from tests.doctor.parts.driver import SPEC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.doctor.check import Finding
    from gpuhook.doctor.examination import Examination
    from tests.doctor.case import FaultCase

pytestmark = pytest.mark.skipif(not is_root(), reason="device nodes need root")
POD = {"pod": "train-0", "namespace": "ml", "container": "main"}
NVIDIA = {"injected_by": ["nvidia-legacy"], "recorded": False}


def first(examination: Examination) -> Finding:
    """Return the only thing that failed."""
    (failed,) = examination.of(FAILED)
    return failed.finding


def finding(examination: Examination, identity: str) -> Finding:
    """Return what one check found."""
    (result,) = [one for one in examination.results if one.check.id == identity]
    return result.finding


@pytest.mark.parametrize("is_loaded", [True, False])
def test_every_gpu_is_named_with_its_address_and_its_containers(
    is_loaded: bool, fresh: Callable[[str], FaultCase]
) -> None:
    case = fresh("h100x8")
    gpu_loss.note_node(case)
    gpu_loss.hold(case, 2, **POD)
    gpu_loss.hold(case, 5, id="legacy", **NVIDIA)
    (gpu_loss.every if is_loaded else gpu_loss.every_unloaded)(case)
    examination = case.examine()
    found = first(examination)
    for gpu in case.node.node.gpus:
        assert f"{gpu.uuid} at {gpu_loss.bus_id(case, gpu.index)}" in found.said
    uuid = case.node.node.gpus[2].uuid
    assert f"{uuid} at {gpu_loss.bus_id(case, 2)} (used by ml/train-0/main)" in found.said
    assert "(used by legacy)" in found.said
    assert found.said.startswith("all 8 GPUs are missing from the PCI bus: ")
    assert SPEC in found.said
    assert "Xid 79" in found.meaning
    assert "reboot" in found.command
    assert f"rm {SPEC}" in found.command
    text = "\n".join([*doctor_text.lines(examination), doctor_text.summary(examination)])
    assert text.startswith("First: driver.gpu: all 8 GPUs are missing")
    for untrue in ("no NVIDIA GPU", "the driver that runs", "NVML is of driver 0"):
        assert untrue not in text
    assert [one.check.id for one in examination.of(WARNING)] == []
    assert finding(examination, "specs.devices").said.startswith("waits for driver.gpu")


def test_one_of_eight_is_named_and_the_others_are_looked_at(
    fresh: Callable[[str], FaultCase],
) -> None:
    case = fresh("h100x8")
    gpu_loss.note_node(case)
    gpu_loss.hold(case, 3, **POD)
    gpu_loss.fall(case, 3)
    case.write("/sys/module/nvidia/version", "575.57.08\n")
    examination = case.examine()
    failed = {one.check.id: one.finding for one in examination.of(FAILED)}
    assert set(failed) == {"driver.bus", "driver.version"}  # two faults, and no consequence
    said = failed["driver.bus"].said
    assert said.startswith("1 of 8 GPUs is missing from the PCI bus: ")
    assert str(case.node.node.gpus[3].uuid) in said
    assert gpu_loss.bus_id(case, 3) in said
    assert "(used by ml/train-0/main)" in said
    assert str(case.node.node.gpus[4].uuid) not in said
    assert "gpuhook refresh --force" in failed["driver.bus"].command


def test_one_of_eight_where_sys_does_not_tell_of_gpus(fresh: Callable[[str], FaultCase]) -> None:
    """A /sys without the devices' classes: the other GPUs are still there, and so is their spec."""
    case = fresh("h100x8")
    gpu_loss.fall(case, 3)
    for file in case.path("/sys/bus/pci/devices").glob("*/class"):
        file.unlink()
    examination = case.examine()
    said = finding(examination, "driver.gpu").said
    assert said.startswith("1 of 8 GPUs is missing from the PCI bus: ")
    assert f"rm {SPEC}" not in finding(examination, "driver.gpu").command


def test_after_a_boot_without_the_card_its_uuid_tells(fresh: Callable[[str], FaultCase]) -> None:
    """The others have other minors then, and nothing of the last boot is in /run."""
    case = fresh("h100x8")
    gpu_loss.fall(case, 3)
    for gpu in case.node.node.gpus[4:]:
        path = f"/proc/driver/nvidia/gpus/{gpu_loss.bus_id(case, gpu.index)}/information"
        place = case.path(path)
        text = place.read_text(encoding="utf-8")
        minor = f"Device Minor: \t {gpu.minor}"
        assert minor in text
        place.write_text(text.replace(minor, f"Device Minor: \t {(gpu.minor or 0) - 1}"), "utf-8")
    examination = case.examine(["driver.bus"])
    assert f"1 of 8 GPUs is missing from the PCI bus: {case.node.node.gpus[3].uuid}" in (
        first(examination).said
    )


def test_lost_gpus_are_one_fault_that_names_their_containers(
    fresh: Callable[[str], FaultCase],
) -> None:
    case = fresh("h100x8")
    profile = Path(case.node.nvml_profile)
    text = profile.read_text(encoding="utf-8").split("gpu\n")
    for index in (3, 5):
        text[index + 1] = "fail handle 15\n" + text[index + 1]
    profile.write_text("gpu\n".join(text), encoding="utf-8")
    gpu_loss.hold(case, 3, **POD)
    found = first(case.examine())
    for index in (3, 5):
        assert gpu_loss.bus_id(case, index) in found.said
        assert str(case.node.node.gpus[index].uuid) in found.said
    assert "(used by ml/train-0/main)" in found.said


def test_a_gpu_that_nvml_does_not_have_is_one_fault_with_its_containers(
    fresh: Callable[[str], FaultCase],
) -> None:
    case = fresh("h100x8")
    Path(case.node.nvml_profile).write_text("driver 580.95.05\n", encoding="utf-8")
    gpu_loss.hold(case, 3, **POD)
    found = first(case.examine())
    assert "the kernel module has 8 GPUs that NVML does not have" in found.said
    assert "(used by ml/train-0/main)" in found.said


def test_a_machine_that_never_had_a_gpu_is_well(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("t4")
    gpu_loss.every_unloaded(case)
    case.remove(SPEC)
    examination = case.examine()
    assert examination.of(FAILED) == []
    assert finding(examination, "driver.gpu").said == "this machine has no NVIDIA GPU"
    assert doctor_text.summary(examination).endswith("; this machine has no NVIDIA GPU")


def test_a_module_without_a_gpu_that_nothing_names_is_well(
    fresh: Callable[[str], FaultCase],
) -> None:
    case = fresh("t4")
    gpu_loss.every(case)
    case.remove(SPEC)
    assert case.examine(["driver", "driver.gpu", "driver.bus"]).of(FAILED) == []


def test_files_without_sys_tell_nothing_of_the_bus(fresh: Callable[[str], FaultCase]) -> None:
    """The disk of a node that is not running has its spec, and no /sys and no /proc."""
    case = fresh("t4")
    for name in ("sys", "proc"):
        shutil.rmtree(case.root / name)
    node = ExaminedNode(DirectoryTree(str(case.root)), Readings({}))
    found = examine(node, checks(), ["driver.gpu", "driver.bus"])
    assert found.of(FAILED) == []


@pytest.mark.parametrize("spare", ["vfio-pci", ""])
def test_a_gpu_that_another_driver_has_is_not_missing(
    spare: str, fresh: Callable[[str], FaultCase]
) -> None:
    case = fresh("h100x8")
    bus = gpu_loss.bus_id(case, 3)
    gpu_loss.fall(case, 3)
    driver.add_pci_device(case, bus, "0x030200", spare or "none")
    assert case.examine(["driver.bus"]).of(FAILED) == []


def test_a_card_that_was_replaced_is_the_specs_fault(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("t4")
    text = case.path(SPEC).read_text(encoding="utf-8")
    uuid = str(case.node.node.gpus[0].uuid)
    case.write(SPEC, text.replace(uuid, "GPU-00000000-1111-2222-3333-444444444444"))
    examination = case.examine()
    assert {one.check.id for one in examination.of(FAILED)} == {"specs.devices"}


@pytest.mark.parametrize(
    "note", ["", "[]", '{"gpus": 3}', '{"gpus": [{"uuid": 7}]}', "\udcff" * 3, "[" * 100_000]
)
def test_notes_of_the_node_that_cannot_be_read_are_left_out(
    note: str, fresh: Callable[[str], FaultCase]
) -> None:
    case = fresh("h100x8")
    case.path("/run/gpuhook/node.json").write_bytes(note.encode("utf-8", "surrogateescape"))
    hostile = {"nodes": ["/dev/nvidia99999999999999999999", "/dev/nvidia\u0664", 7, "x"]}
    running(case, **hostile)
    entry = {"schema": "gpuhook/ledger/v1", "id": "x", "root": "/run/runc", "since": 1, "nodes": 5}
    case.write("/run/gpuhook/containers/00000000-x.json", json.dumps(entry))
    case.write("/run/runc/x/state.json", "{}")
    gpu_loss.every(case)
    found = first(case.examine())
    assert str(case.node.node.gpus[0].uuid) in found.said
    assert " at " not in found.said


def test_containers_of_the_ledger_are_named_too(fresh: Callable[[str], FaultCase]) -> None:
    """Of a node's files alone, where no container can be looked at."""
    case = fresh("h100x8")
    entry = {"schema": "gpuhook/ledger/v1", "id": "one", "root": "/run/runc", "since": 1.0}
    path = f"/dev/nvidia{case.node.node.gpus[6].minor}"
    told = {**entry, "nodes": ["/dev/nvidiactl", path], **POD}
    case.write("/run/gpuhook/containers/00000000-one.json", json.dumps(told))
    ended = {**told, "id": "ended", "pod": "ended-0"}
    case.write("/run/gpuhook/containers/00000000-ended.json", json.dumps(ended))
    case.write("/run/runc/one/state.json", "{}")
    gpu_loss.every(case)
    del case.readings[node_readings.CONTAINERS]
    said = first(case.examine()).said
    assert f"{case.node.node.gpus[6].uuid} (used by ml/train-0/main)" in said
    assert "ended-0" not in said


def test_a_spec_that_names_its_driver_is_read_for_it(fresh: Callable[[str], FaultCase]) -> None:
    """Here the GPU is kept for a virtual machine, and the driver is not installed."""
    case = fresh("t4")
    driver.bind(case, gpu_loss.bus_id(case, 0), "vfio-pci")
    for path in gpu_loss.VERSIONS:
        case.remove(path)
    shutil.rmtree(case.root / "proc/driver/nvidia")
    for stem in ("libcuda", "libnvidia-ml"):
        for library in (case.root / "usr/lib/x86_64-linux-gnu").glob(f"{stem}.so*"):
            library.unlink()
    said = finding(case.examine(), "specs.driver").said
    assert said == f"{SPEC} names the driver version 580.95.05, and this node has no driver"


def test_the_check_of_containers_names_no_driver_where_none_is_loaded(
    fresh: Callable[[str], FaultCase],
) -> None:
    case = fresh("t4")
    gpu_loss.every_unloaded(case)
    case.remove(SPEC)
    found = finding(case.examine(), "containers.driver")
    assert found.status == NOT_APPLICABLE
    assert "no kernel module" in found.said


def test_the_command_fails_on_the_files_of_such_a_node(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("h100x8")
    gpu_loss.every_unloaded(case)
    shown = CliRunner().invoke(main, ["doctor", "--quiet", "--root", str(case.root)])
    assert shown.exit_code == 1
    assert shown.stdout.startswith("First: driver.gpu: all 8 GPUs are missing from the PCI bus")
    assert "this machine has no NVIDIA GPU" not in shown.output
    case.remove(SPEC)
    shown = CliRunner().invoke(main, ["doctor", "--quiet", "--root", str(case.root)])
    assert shown.exit_code == 0, shown.output
    assert "this machine has no NVIDIA GPU" in shown.output
