# SPDX-License-Identifier: Apache-2.0
"""Nodes with AMD GPUs: faults that heal, what the findings say, and that vendors do not mix."""

from __future__ import annotations

import shutil

import pytest

import tests.doctor.parts  # noqa: F401 # registers what healthy nodes have
from gpuhook.doctor import doctor_text
from gpuhook.node_facts.check import FAILED, NOT_APPLICABLE, OK, WARNING
from tests.doctor.broken import amd as broken
from tests.doctor.broken import amd_stack
from tests.doctor.broken.driver import replace
from tests.doctor.case import is_root
from tests.doctor.parts import amd, kubernetes
from tests.simulated import amd_tree
from tests.simulated.amd_kfd_tree import Oddities
from tests.simulated.sysfs_files import write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.node_facts.check import Finding
    from tests.doctor.case import Broken, FaultCase

pytestmark = pytest.mark.skipif(not is_root(), reason="device nodes need root")
_BROKEN = [*broken.BROKEN, *amd_stack.BROKEN]
_OF_NVIDIA = ("driver", "devices", "gpus", "specs")


def _findings(case: FaultCase, check: str) -> list[Finding]:
    return [r.finding for r in case.examine([check]).results if r.check.id == check]


def _wrong(case: FaultCase) -> list[tuple[str, str]]:
    examination = case.examine()
    found = [*examination.of(FAILED), *examination.of(WARNING)]
    return [(r.check.id, r.finding.message) for r in found]


@pytest.mark.parametrize("one", _BROKEN, ids=lambda one: one.name)
def test_finding_has_meaning_command_and_evidence(
    one: Broken, fresh: Callable[[str], FaultCase]
) -> None:
    case = fresh(one.profile)
    one.do(case)
    faults = [f for f in _findings(case, one.check) if f.status in (FAILED, WARNING)]
    assert faults
    assert all(f.message and f.meaning and f.command and f.looked_at for f in faults)


def test_node_with_amd_gpus_only_has_no_finding_of_nvidia(
    healthy: Callable[[str], FaultCase],
) -> None:
    examination = healthy("mi300x8").examine()
    ours = [r for r in examination.results if r.check.section in _OF_NVIDIA]
    assert len(ours) > 30
    assert {r.finding.status for r in ours} <= {NOT_APPLICABLE, OK}
    assert "no NVIDIA GPU" not in doctor_text.summary(examination)
    shown = [line for line in doctor_text.lines(examination) if line]
    assert shown == []


def test_node_with_nvidia_gpus_only_has_no_finding_of_amd(
    healthy: Callable[[str], FaultCase],
) -> None:
    examination = healthy("h100x8").examine()
    amd_results = [r for r in examination.results if r.check.section == "amd"]
    assert len(amd_results) > 25
    assert {r.finding.status for r in amd_results} == {NOT_APPLICABLE}
    assert "no AMD GPU" not in doctor_text.summary(examination)


def test_each_driver_can_vanish_alone(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("t4-and-mi300x")
    broken.unload(case)
    assert {check for check, _ in _wrong(case)} == {"amd.module"}
    other = fresh("t4")
    amd.add(other, "mi300x8")
    for path in ("/sys/module/nvidia/version", "/proc/driver/nvidia/version"):
        other.remove(path)
    assert {r.check.id for r in other.examine().of(FAILED)} == {"driver.module"}
    assert _findings(other, "amd.spec-devices")[0].status == OK


@pytest.mark.parametrize(
    ("name", "check", "words"),
    [
        ("amdgpu-blacklisted", "amd.module", ("/etc/modprobe.d/gpu.conf blacklists it",)),
        ("amd-gpus-for-guests", "amd.module", ("0000:05:00.0 is vfio-pci", "virtual machines")),
        ("kfd-refuses-the-topology", "amd.topology", ("/properties", "not permitted")),
        ("kfd-node-of-another-major", "amd.kfd", ("/dev/kfd is 238:0", "the kernel has 241:0")),
        ("amd-ctk-spec-with-an-old-major", "amd.spec-numbers", ("509:0 in the spec, but now 238",)),
        ("amd-ctk-spec-without-numbers", "amd.spec-numbers", ("renderD128 is 0:0 in the spec",)),
        ("amd-ctk-spec-without-groups", "amd.groups", ("the group 109", "does not add the group")),
        ("amd-spec-of-another-mode", "amd.spec-devices", ("describes /dev/dri/renderD129",)),
        ("container-with-a-lost-partition", "amd.containers", ("trainer has /dev/dri/renderD131",)),
        ("kubelet-has-old-partitions", "amd.registered", ("amdgpu_xcp_0",)),
        ("amd-uncorrectable-errors", "amd.errors", ("0000:05:00.0", "2 in umc")),
        ("amd-bad-pages", "amd.pages", ("2 bad memory pages (1 are retired at the next load",)),
        ("memory-of-a-dead-process", "amd.residue", ("process 4711", "3072 MiB of 0000:05:00.0")),
        ("partition-without-drm-minor", "amd.partitions", ("0000:e5:00.0", "7 of 8 partitions")),
        ("hive-of-two-memory-modes", "amd.hive", ("0000:05:00.0 NPS1, 0000:27:00.0 NPS4",)),
        ("kernel-that-mixes-partitions", "amd.isolation", ("6.1.0-28-amd64 is older than 6.8",)),
        ("two-amd-plugins", "amd.plugins", ("AMD's (amd.com_gpu) and gpuhook's (amd-gpu.sock)",)),
    ],
)
def test_message_has_the_place_and_the_values(
    name: str, check: str, words: tuple[str, ...], fresh: Callable[[str], FaultCase]
) -> None:
    one = next(one for one in _BROKEN if one.name == name)
    case = fresh(one.profile)
    one.do(case)
    message = " ".join(f.message for f in _findings(case, check))
    assert [word for word in words if word not in message] == [], message


def test_missing_privilege_is_named(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("mi300x8")
    next(one for one in _BROKEN if one.name == "kfd-refuses-the-topology").do(case)
    [finding] = _findings(case, "amd.topology")
    assert "device cgroup" in finding.meaning
    assert "c 226:* rw" in finding.meaning
    assert "privileged" in finding.command


@pytest.mark.parametrize("file", ["device", "power/runtime_status"])
def test_counters_that_a_read_changes_are_not_read(
    file: str, fresh: Callable[[str], FaultCase]
) -> None:
    """Reading clears the counters of MI200, and wakes a GPU that sleeps."""
    case = fresh("mi300x8")
    gpu = broken.gpu(case)
    write(gpu / "ras/umc_err_count", "ue: 2\nce: 31")
    assert _findings(case, "amd.errors")[0].status == WARNING
    write(gpu / file, {"device": "0x740f"}.get(file, "suspended"))
    assert _findings(case, "amd.errors")[0].status == OK


def test_counters_during_a_reset_are_no_finding(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("mi300x8")
    case.denied.add(f"{amd.BOUND}/{broken.FIRST}/ras/umc_err_count")
    assert _findings(case, "amd.errors")[0].status == OK


def test_processes_are_unknown_in_another_pid_namespace(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("mi300x8")
    next(one for one in _BROKEN if one.name == "memory-of-a-dead-process").do(case)
    case.path("/proc/self/ns/pid").symlink_to("pid:[4026532567]")
    assert _findings(case, "amd.residue")[0].status == NOT_APPLICABLE


def test_render_node_of_another_vendor_is_no_lost_partition(
    fresh: Callable[[str], FaultCase],
) -> None:
    case = fresh("t4-and-mi300x")
    replace(case, amd.ENTRY, '"/dev/kfd"', '"/dev/kfd", "/dev/dri/renderD250"')
    assert _findings(case, "amd.containers")[0].status == FAILED
    case.path("/sys/class/drm/renderD250").symlink_to("../../devices/pci0000:00/renderD250")
    assert _findings(case, "amd.containers")[0].status == OK


def test_partitions_with_a_dot_in_their_name_are_known(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("mi300x8")
    shutil.rmtree(case.root / "sys")
    shutil.rmtree(case.root / "dev")
    case.path("/sys/fs/cgroup/x").touch()
    odd = Oddities(is_dotted=True)
    node = amd_tree.build(case.root, "mi300x-cpx", real_nodes=True, odd=odd).node
    ids = [device.id for _, device in node.devices()]
    kubernetes.write_checkpoint(case, {"amd.com/gpu": ids})
    assert _findings(case, "amd.registered")[0].status == OK
    assert _findings(case, "amd.nodes")[0].message == "all 64 render nodes exist"
