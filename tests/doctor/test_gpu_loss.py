# SPDX-License-Identifier: Apache-2.0
"""Findings on GPUs that are missing from the PCI bus: the GPUs, their containers, the command."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import tests.doctor.parts  # noqa: F401 # registers what healthy nodes have
from gpuhook.cli import main
from gpuhook.doctor import doctor_text
from gpuhook.doctor.check_list import checks
from gpuhook.doctor.examination import examine
from gpuhook.node_facts.check import FAILED, NOT_APPLICABLE, WARNING, ExaminedNode
from gpuhook.node_facts.sources import node_readings
from gpuhook.node_facts.sources.node_readings import Readings
from gpuhook.node_facts.sources.node_tree import DirectoryTree
from tests.doctor.broken import gpu_loss
from tests.doctor.broken.containers import running
from tests.doctor.case import is_root
from tests.doctor.parts import driver
from tests.doctor.parts.driver import SPEC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.doctor.examination import Examination
    from gpuhook.node_facts.check import Finding
    from tests.doctor.case import FaultCase

pytestmark = pytest.mark.skipif(not is_root(), reason="device nodes need root")
POD = {"pod": "train-0", "namespace": "ml", "container": "main"}
NVIDIA = {"injected_by": ["nvidia-legacy"], "recorded": False}


def only_failure(examination: Examination) -> Finding:
    """Return the finding of the only failed check."""
    (failed,) = examination.of(FAILED)
    return failed.finding


def finding(examination: Examination, identity: str) -> Finding:
    """Return the finding of one check."""
    (result,) = [one for one in examination.results if one.check.id == identity]
    return result.finding


@pytest.mark.parametrize("is_loaded", [True, False])
def test_all_gpus_missing_names_addresses_and_containers(
    is_loaded: bool, fresh: Callable[[str], FaultCase]
) -> None:
    case = fresh("h100x8")
    gpu_loss.note_node(case)
    gpu_loss.hold(case, 2, **POD)
    gpu_loss.hold(case, 5, id="legacy", **NVIDIA)
    (gpu_loss.every if is_loaded else gpu_loss.every_unloaded)(case)
    examination = case.examine()
    failure = only_failure(examination)
    for gpu in case.node.node.gpus:
        assert f"{gpu.uuid} at {gpu_loss.bus_id(case, gpu.index)}" in failure.message
    uuid = case.node.node.gpus[2].uuid
    assert f"{uuid} at {gpu_loss.bus_id(case, 2)} (used by ml/train-0/main)" in failure.message
    assert "(used by legacy)" in failure.message
    assert failure.message.startswith("all 8 GPUs are missing from the PCI bus: ")
    assert SPEC in failure.message
    assert "Xid 79" in failure.meaning
    assert "reboot" in failure.command
    assert f"rm {SPEC}" in failure.command
    text = "\n".join(
        [*doctor_text.lines(examination, is_all=True), doctor_text.summary(examination)]
    )
    assert text.startswith("Root cause: driver.gpu: all 8 GPUs are missing")
    for untrue in ("no NVIDIA GPU", "the driver that runs", "NVML answers for 0"):
        assert untrue not in text
    assert [one.check.id for one in examination.of(WARNING)] == []
    assert finding(examination, "specs.devices").message.startswith("waits for driver.gpu")


def test_one_missing_gpu_and_another_fault(
    fresh: Callable[[str], FaultCase],
) -> None:
    case = fresh("h100x8")
    gpu_loss.note_node(case)
    gpu_loss.hold(case, 3, **POD)
    gpu_loss.fall(case, 3)
    case.write("/sys/module/nvidia/version", "575.57.08\n")
    examination = case.examine()
    failed = {one.check.id: one.finding for one in examination.of(FAILED)}
    assert set(failed) == {
        "driver.bus",
        "driver.version",
    }  # two faults, and none of their consequences
    message = failed["driver.bus"].message
    assert message.startswith("1 of 8 GPUs is missing from the PCI bus: ")
    assert str(case.node.node.gpus[3].uuid) in message
    assert gpu_loss.bus_id(case, 3) in message
    assert "(used by ml/train-0/main)" in message
    assert str(case.node.node.gpus[4].uuid) not in message
    assert "gpuhook refresh --force" in failed["driver.bus"].command


def test_one_missing_gpu_without_device_classes(fresh: Callable[[str], FaultCase]) -> None:
    """/sys has no device classes: the other GPUs and their spec still exist."""
    case = fresh("h100x8")
    gpu_loss.fall(case, 3)
    for file in case.path("/sys/bus/pci/devices").glob("*/class"):
        file.unlink()
    examination = case.examine()
    message = finding(examination, "driver.gpu").message
    assert message.startswith("1 of 8 GPUs is missing from the PCI bus: ")
    assert f"rm {SPEC}" not in finding(examination, "driver.gpu").command


def test_missing_gpu_after_a_boot_is_found_by_uuid(fresh: Callable[[str], FaultCase]) -> None:
    """After a boot the other GPUs have new minors, and /run is empty."""
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
        only_failure(examination).message
    )


def test_lost_gpus_are_one_failure(
    fresh: Callable[[str], FaultCase],
) -> None:
    case = fresh("h100x8")
    profile = Path(case.node.nvml_profile)
    text = profile.read_text(encoding="utf-8").split("gpu\n")
    for index in (3, 5):
        text[index + 1] = "fail handle 15\n" + text[index + 1]
    profile.write_text("gpu\n".join(text), encoding="utf-8")
    gpu_loss.hold(case, 3, **POD)
    failure = only_failure(case.examine())
    for index in (3, 5):
        assert gpu_loss.bus_id(case, index) in failure.message
        assert str(case.node.node.gpus[index].uuid) in failure.message
    assert "(used by ml/train-0/main)" in failure.message


def test_gpus_missing_from_nvml_are_one_failure(
    fresh: Callable[[str], FaultCase],
) -> None:
    case = fresh("h100x8")
    Path(case.node.nvml_profile).write_text("driver 580.95.05\n", encoding="utf-8")
    gpu_loss.hold(case, 3, **POD)
    failure = only_failure(case.examine())
    assert "the kernel module has 8 GPUs that NVML does not list" in failure.message
    assert "(used by ml/train-0/main)" in failure.message


def test_machine_without_a_gpu_has_no_failure(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("t4")
    gpu_loss.every_unloaded(case)
    case.remove(SPEC)
    examination = case.examine()
    assert examination.of(FAILED) == []
    assert finding(examination, "driver.gpu").message == "this machine has no NVIDIA GPU"
    assert "; this machine has no NVIDIA GPU" in doctor_text.summary(examination)


def test_module_without_a_gpu_has_no_failure(
    fresh: Callable[[str], FaultCase],
) -> None:
    case = fresh("t4")
    gpu_loss.every(case)
    case.remove(SPEC)
    assert case.examine(["driver", "driver.gpu", "driver.bus"]).of(FAILED) == []


def test_disk_of_a_stopped_node_has_no_failure(fresh: Callable[[str], FaultCase]) -> None:
    """The files of a node that does not run have the spec, but neither /sys nor /proc."""
    case = fresh("t4")
    for name in ("sys", "proc"):
        shutil.rmtree(case.root / name)
    node = ExaminedNode(DirectoryTree(str(case.root)), Readings({}))
    examination = examine(node, checks(), ["driver.gpu", "driver.bus"])
    assert examination.of(FAILED) == []


@pytest.mark.parametrize("spare", ["vfio-pci", ""])
def test_gpu_of_another_driver_is_not_missing(
    spare: str, fresh: Callable[[str], FaultCase]
) -> None:
    case = fresh("h100x8")
    bus = gpu_loss.bus_id(case, 3)
    gpu_loss.fall(case, 3)
    driver.add_pci_device(case, bus, "0x030200", spare or "none")
    assert case.examine(["driver.bus"]).of(FAILED) == []


def test_replaced_gpu_is_a_failure_of_the_spec(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("t4")
    text = case.path(SPEC).read_text(encoding="utf-8")
    uuid = str(case.node.node.gpus[0].uuid)
    case.write(SPEC, text.replace(uuid, "GPU-00000000-1111-2222-3333-444444444444"))
    examination = case.examine()
    assert {one.check.id for one in examination.of(FAILED)} == {"specs.devices"}


@pytest.mark.parametrize(
    "note", ["", "[]", '{"gpus": 3}', '{"gpus": [{"uuid": 7}]}', "\udcff" * 3, "[" * 100_000]
)
def test_invalid_state_files_are_ignored(note: str, fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("h100x8")
    case.path("/run/gpuhook/node.json").write_bytes(note.encode("utf-8", "surrogateescape"))
    hostile = {"nodes": ["/dev/nvidia99999999999999999999", "/dev/nvidia\u0664", 7, "x"]}
    running(case, **hostile)
    entry = {"schema": "gpuhook/ledger/v1", "id": "x", "root": "/run/runc", "since": 1, "nodes": 5}
    case.write("/run/gpuhook/containers/00000000-x.json", json.dumps(entry))
    case.write("/run/runc/x/state.json", "{}")
    gpu_loss.every(case)
    failure = only_failure(case.examine())
    assert str(case.node.node.gpus[0].uuid) in failure.message
    assert " at " not in failure.message


def test_containers_of_the_ledger_are_named(fresh: Callable[[str], FaultCase]) -> None:
    """Only the node's files are known, not its running containers."""
    case = fresh("h100x8")
    entry = {"schema": "gpuhook/ledger/v1", "id": "one", "root": "/run/runc", "since": 1.0}
    path = f"/dev/nvidia{case.node.node.gpus[6].minor}"
    recorded = {**entry, "nodes": ["/dev/nvidiactl", path], **POD}
    case.write("/run/gpuhook/containers/00000000-one.json", json.dumps(recorded))
    ended = {**recorded, "id": "ended", "pod": "ended-0"}
    case.write("/run/gpuhook/containers/00000000-ended.json", json.dumps(ended))
    case.write("/run/runc/one/state.json", "{}")
    gpu_loss.every(case)
    del case.readings[node_readings.CONTAINERS]
    message = only_failure(case.examine()).message
    assert f"{case.node.node.gpus[6].uuid} (used by ml/train-0/main)" in message
    assert "ended-0" not in message


def test_spec_without_its_driver_is_reported(fresh: Callable[[str], FaultCase]) -> None:
    """The GPU is reserved for a virtual machine, and the driver is not installed."""
    case = fresh("t4")
    driver.bind(case, gpu_loss.bus_id(case, 0), "vfio-pci")
    for path in gpu_loss.VERSIONS:
        case.remove(path)
    shutil.rmtree(case.root / "proc/driver/nvidia")
    for stem in ("libcuda", "libnvidia-ml"):
        for library in (case.root / "usr/lib/x86_64-linux-gnu").glob(f"{stem}.so*"):
            library.unlink()
    message = finding(case.examine(), "specs.driver").message
    assert message == f"{SPEC} specifies driver version 580.95.05, but this node has no driver"


def test_container_driver_check_without_a_module(
    fresh: Callable[[str], FaultCase],
) -> None:
    case = fresh("t4")
    gpu_loss.every_unloaded(case)
    case.remove(SPEC)
    result = finding(case.examine(), "containers.driver")
    assert result.status == NOT_APPLICABLE
    assert "no NVIDIA kernel module" in result.message


def test_doctor_fails_on_the_files_of_such_a_node(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("h100x8")
    gpu_loss.every_unloaded(case)
    shown = CliRunner().invoke(main, ["doctor", "--quiet", "--root", str(case.root)])
    assert shown.exit_code == 1
    assert shown.stdout.startswith(
        "Root cause: driver.gpu: all 8 GPUs are missing from the PCI bus"
    )
    assert "this machine has no NVIDIA GPU" not in shown.output
    case.remove(SPEC)
    shown = CliRunner().invoke(main, ["doctor", "--quiet", "--root", str(case.root)])
    assert shown.exit_code == 0, shown.output
    assert "this machine has no NVIDIA GPU" in shown.output
