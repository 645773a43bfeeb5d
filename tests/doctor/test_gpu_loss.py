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
from gpuhook.doctor.check import FAILED, NOT_APPLICABLE, WARNING, Node
from gpuhook.doctor.check_list import checks
from gpuhook.doctor.examination import examine
from gpuhook.node import node_readings
from gpuhook.node.node_readings import Readings
from gpuhook.node.node_tree import DirectoryTree
from tests.doctor.broken import gpu_loss
from tests.doctor.broken.containers import running
from tests.doctor.parts import driver
from tests.doctor.parts.driver import SPEC
from tests.doctor.scene import is_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.doctor.check import Finding
    from gpuhook.doctor.examination import Examination
    from tests.doctor.scene import Scene

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
    is_loaded: bool, fresh: Callable[[str], Scene]
) -> None:
    scene = fresh("h100x8")
    gpu_loss.note_node(scene)
    gpu_loss.hold(scene, 2, **POD)
    gpu_loss.hold(scene, 5, id="legacy", **NVIDIA)
    (gpu_loss.every if is_loaded else gpu_loss.every_unloaded)(scene)
    examination = scene.examine()
    found = first(examination)
    for gpu in scene.node.node.gpus:
        assert f"{gpu.uuid} at {gpu_loss.bus_id(scene, gpu.index)}" in found.said
    uuid = scene.node.node.gpus[2].uuid
    assert f"{uuid} at {gpu_loss.bus_id(scene, 2)} (used by ml/train-0/main)" in found.said
    assert "(used by legacy)" in found.said
    assert found.said.startswith("all 8 GPUs are missing from the PCI bus: ")
    assert SPEC in found.said
    assert "Xid 79" in found.meaning
    assert "reboot" in found.command
    assert f"rm {SPEC}" in found.command
    text = "\n".join([*doctor_text.lines(examination), doctor_text.summary(examination)])
    assert text.startswith("First: driver.gpu: all 8 GPUs are missing")
    for untrue in ("no NVIDIA GPU", "the driver that runs", "NVML answers for 0"):
        assert untrue not in text
    assert [one.check.id for one in examination.of(WARNING)] == []
    assert finding(examination, "specs.devices").said.startswith("waits for driver.gpu")


def test_one_of_eight_is_named_and_the_others_are_looked_at(
    fresh: Callable[[str], Scene],
) -> None:
    scene = fresh("h100x8")
    gpu_loss.note_node(scene)
    gpu_loss.hold(scene, 3, **POD)
    gpu_loss.fall(scene, 3)
    scene.write("/sys/module/nvidia/version", "575.57.08\n")
    examination = scene.examine()
    failed = {one.check.id: one.finding for one in examination.of(FAILED)}
    assert set(failed) == {"driver.bus", "driver.version"}  # two faults, and no consequence
    said = failed["driver.bus"].said
    assert said.startswith("1 of 8 GPUs is missing from the PCI bus: ")
    assert str(scene.node.node.gpus[3].uuid) in said
    assert gpu_loss.bus_id(scene, 3) in said
    assert "(used by ml/train-0/main)" in said
    assert str(scene.node.node.gpus[4].uuid) not in said
    assert "gpuhook refresh --force" in failed["driver.bus"].command


def test_one_of_eight_where_sys_does_not_tell_of_gpus(fresh: Callable[[str], Scene]) -> None:
    """A /sys without the devices' classes: the other GPUs are still there, and so is their spec."""
    scene = fresh("h100x8")
    gpu_loss.fall(scene, 3)
    for file in scene.path("/sys/bus/pci/devices").glob("*/class"):
        file.unlink()
    examination = scene.examine()
    said = finding(examination, "driver.gpu").said
    assert said.startswith("1 of 8 GPUs is missing from the PCI bus: ")
    assert f"rm {SPEC}" not in finding(examination, "driver.gpu").command


def test_after_a_boot_without_the_card_its_uuid_tells(fresh: Callable[[str], Scene]) -> None:
    """The others have other minors then, and nothing of the last boot is in /run."""
    scene = fresh("h100x8")
    gpu_loss.fall(scene, 3)
    for gpu in scene.node.node.gpus[4:]:
        path = f"/proc/driver/nvidia/gpus/{gpu_loss.bus_id(scene, gpu.index)}/information"
        place = scene.path(path)
        text = place.read_text(encoding="utf-8")
        minor = f"Device Minor: \t {gpu.minor}"
        assert minor in text
        place.write_text(text.replace(minor, f"Device Minor: \t {(gpu.minor or 0) - 1}"), "utf-8")
    examination = scene.examine(["driver.bus"])
    assert f"1 of 8 GPUs is missing from the PCI bus: {scene.node.node.gpus[3].uuid}" in (
        first(examination).said
    )


def test_lost_gpus_are_one_fault_that_names_their_containers(
    fresh: Callable[[str], Scene],
) -> None:
    scene = fresh("h100x8")
    profile = Path(scene.node.nvml_profile)
    text = profile.read_text(encoding="utf-8").split("gpu\n")
    for index in (3, 5):
        text[index + 1] = "fail handle 15\n" + text[index + 1]
    profile.write_text("gpu\n".join(text), encoding="utf-8")
    gpu_loss.hold(scene, 3, **POD)
    found = first(scene.examine())
    for index in (3, 5):
        assert gpu_loss.bus_id(scene, index) in found.said
        assert str(scene.node.node.gpus[index].uuid) in found.said
    assert "(used by ml/train-0/main)" in found.said


def test_a_gpu_that_nvml_does_not_have_is_one_fault_with_its_containers(
    fresh: Callable[[str], Scene],
) -> None:
    scene = fresh("h100x8")
    Path(scene.node.nvml_profile).write_text("driver 580.95.05\n", encoding="utf-8")
    gpu_loss.hold(scene, 3, **POD)
    found = first(scene.examine())
    assert "the kernel module has 8 GPUs that NVML does not have" in found.said
    assert "(used by ml/train-0/main)" in found.said


def test_a_machine_that_never_had_a_gpu_is_well(fresh: Callable[[str], Scene]) -> None:
    scene = fresh("t4")
    gpu_loss.every_unloaded(scene)
    scene.remove(SPEC)
    examination = scene.examine()
    assert examination.of(FAILED) == []
    assert finding(examination, "driver.gpu").said == "this machine has no NVIDIA GPU"
    assert doctor_text.summary(examination).endswith("; this machine has no NVIDIA GPU")


def test_a_module_without_a_gpu_that_nothing_names_is_well(fresh: Callable[[str], Scene]) -> None:
    scene = fresh("t4")
    gpu_loss.every(scene)
    scene.remove(SPEC)
    assert scene.examine(["driver", "driver.gpu", "driver.bus"]).of(FAILED) == []


def test_files_without_sys_tell_nothing_of_the_bus(fresh: Callable[[str], Scene]) -> None:
    """The disk of a node that is not running has its spec, and no /sys and no /proc."""
    scene = fresh("t4")
    for name in ("sys", "proc"):
        shutil.rmtree(scene.root / name)
    node = Node(DirectoryTree(str(scene.root)), Readings({}))
    found = examine(node, checks(), ["driver.gpu", "driver.bus"])
    assert found.of(FAILED) == []


@pytest.mark.parametrize("spare", ["vfio-pci", ""])
def test_a_gpu_that_another_driver_has_is_not_missing(
    spare: str, fresh: Callable[[str], Scene]
) -> None:
    scene = fresh("h100x8")
    bus = gpu_loss.bus_id(scene, 3)
    gpu_loss.fall(scene, 3)
    driver.add_pci_device(scene, bus, "0x030200", spare or "none")
    assert scene.examine(["driver.bus"]).of(FAILED) == []


def test_a_card_that_was_replaced_is_the_specs_fault(fresh: Callable[[str], Scene]) -> None:
    scene = fresh("t4")
    text = scene.path(SPEC).read_text(encoding="utf-8")
    uuid = str(scene.node.node.gpus[0].uuid)
    scene.write(SPEC, text.replace(uuid, "GPU-00000000-1111-2222-3333-444444444444"))
    examination = scene.examine()
    assert {one.check.id for one in examination.of(FAILED)} == {"specs.devices"}


@pytest.mark.parametrize(
    "note", ["", "[]", '{"gpus": 3}', '{"gpus": [{"uuid": 7}]}', "\udcff" * 3, "[" * 100_000]
)
def test_notes_of_the_node_that_cannot_be_read_are_left_out(
    note: str, fresh: Callable[[str], Scene]
) -> None:
    scene = fresh("h100x8")
    scene.path("/run/gpuhook/node.json").write_bytes(note.encode("utf-8", "surrogateescape"))
    hostile = {"nodes": ["/dev/nvidia99999999999999999999", "/dev/nvidia\u0664", 7, "x"]}
    running(scene, **hostile)
    entry = {"schema": "gpuhook/ledger/v1", "id": "x", "root": "/run/runc", "since": 1, "nodes": 5}
    scene.write("/run/gpuhook/containers/00000000-x.json", json.dumps(entry))
    scene.write("/run/runc/x/state.json", "{}")
    gpu_loss.every(scene)
    found = first(scene.examine())
    assert str(scene.node.node.gpus[0].uuid) in found.said
    assert " at " not in found.said


def test_containers_of_the_ledger_are_named_too(fresh: Callable[[str], Scene]) -> None:
    """Of a node's files alone, where no container can be looked at."""
    scene = fresh("h100x8")
    entry = {"schema": "gpuhook/ledger/v1", "id": "one", "root": "/run/runc", "since": 1.0}
    path = f"/dev/nvidia{scene.node.node.gpus[6].minor}"
    told = {**entry, "nodes": ["/dev/nvidiactl", path], **POD}
    scene.write("/run/gpuhook/containers/00000000-one.json", json.dumps(told))
    ended = {**told, "id": "ended", "pod": "ended-0"}
    scene.write("/run/gpuhook/containers/00000000-ended.json", json.dumps(ended))
    scene.write("/run/runc/one/state.json", "{}")
    gpu_loss.every(scene)
    del scene.readings[node_readings.CONTAINERS]
    said = first(scene.examine()).said
    assert f"{scene.node.node.gpus[6].uuid} (used by ml/train-0/main)" in said
    assert "ended-0" not in said


def test_a_spec_that_names_its_driver_is_read_for_it(fresh: Callable[[str], Scene]) -> None:
    """Here the GPU is kept for a virtual machine, and the driver is not installed."""
    scene = fresh("t4")
    driver.bind(scene, gpu_loss.bus_id(scene, 0), "vfio-pci")
    for path in gpu_loss.VERSIONS:
        scene.remove(path)
    shutil.rmtree(scene.root / "proc/driver/nvidia")
    for stem in ("libcuda", "libnvidia-ml"):
        for library in (scene.root / "usr/lib/x86_64-linux-gnu").glob(f"{stem}.so*"):
            library.unlink()
    said = finding(scene.examine(), "specs.driver").said
    assert said == f"{SPEC} names the driver version 580.95.05, and this node has no driver"


def test_the_check_of_containers_names_no_driver_where_none_is_loaded(
    fresh: Callable[[str], Scene],
) -> None:
    scene = fresh("t4")
    gpu_loss.every_unloaded(scene)
    scene.remove(SPEC)
    found = finding(scene.examine(), "containers.driver")
    assert found.status == NOT_APPLICABLE
    assert "no kernel module" in found.said


def test_the_command_fails_on_the_files_of_such_a_node(fresh: Callable[[str], Scene]) -> None:
    scene = fresh("h100x8")
    gpu_loss.every_unloaded(scene)
    shown = CliRunner().invoke(main, ["doctor", "--quiet", "--root", str(scene.root)])
    assert shown.exit_code == 1
    assert shown.stdout.startswith("First: driver.gpu: all 8 GPUs are missing from the PCI bus")
    assert "this machine has no NVIDIA GPU" not in shown.output
    scene.remove(SPEC)
    shown = CliRunner().invoke(main, ["doctor", "--quiet", "--root", str(scene.root)])
    assert shown.exit_code == 0, shown.output
    assert "this machine has no NVIDIA GPU" in shown.output
