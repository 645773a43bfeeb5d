# SPDX-License-Identifier: Apache-2.0
"""Frequent problems of users, on a node with NVIDIA's stack and without gpuhook.

The list is from the toolkit's issue tracker: each line has a complaint that recurs, the state of a
node that causes it, and the check that must report it first.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

import tests.doctor.parts
from gpuhook.node_facts.check import FAILED, NOT_APPLICABLE, WARNING
from gpuhook.node_facts.sources import node_readings
from tests.doctor import case as scenes
from tests.doctor.broken import all_of_them
from tests.doctor.case import FaultCase, copied, is_root
from tests.doctor.parts import driver, gpuhook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif(not is_root(), reason="device nodes need root")
BROKEN = {broken.name: broken for broken in all_of_them()}
OURS = tests.doctor.parts.gpuhook.__name__


@dataclass(frozen=True)
class Pain:
    """A complaint of users; `do` breaks the node, `check` finds the cause."""

    number: int
    complaint: str
    check: str
    do: Callable[[FaultCase], None]
    profile: str = "t4"


def _as(name: str) -> Callable[[FaultCase], None]:
    return BROKEN[name].do


def _pain(number: int, complaint: str, name: str) -> Pain:
    broken = BROKEN[name]
    return Pain(number, complaint, broken.check, broken.do, broken.profile)


def _lost(case: FaultCase) -> None:
    """Remove the device rules of a container that NVIDIA's legacy hook made."""
    denied = {
        "code": "GH1744",
        "message": "the device cgroup of trainer denies /dev/nvidiactl",
        "hint": "run `gpuhook repair trainer`; the processes go on",
    }
    one = gpuhook.container(
        "trainer", injected_by=["nvidia-legacy"], missing=[denied], repairable=True
    )
    case.readings[node_readings.CONTAINERS] = {"looked_at": 1, "containers": [one], "trouble": []}


def _upgraded_spec(case: FaultCase) -> None:
    """Keep the spec that nvidia-ctk wrote for the previous driver."""
    document = json.dumps(driver.toolkit_spec(case, version="575.57.08"))
    version = case.node.node.driver.version or ""
    case.write(driver.SPEC, document.replace(f".so.{version}", ".so.575.57.08"))


PAINS = [
    Pain(1, "Failed to initialize NVML: Unknown Error after daemon-reload", "containers.access",
         _lost),
    Pain(2, "the spec names libraries of the driver before", "specs.driver", _upgraded_spec),
    _pain(3, "the MIG layout was changed, the spec was not", "mig-changed"),
    _pain(4, "unresolvable CDI devices", "two-specs-in-conflict"),
    _pain(5, "nvidia-cdi-refresh fails at boot", "refresh-unit-failed"),
    _pain(6, "libnvidia-ml.so.1: cannot open shared object file", "no-libnvidia-ml"),
    _pain(7, "could not select device driver with capabilities [[gpu]]",
          "docker-gpus-without-hook"),
    _pain(9, "Driver/library version mismatch", "driver-upgraded-and-not-rebooted"),
    _pain(10, "libcuda.so.1 is not found", "libcuda-without-its-link"),
    _pain(11, "no runtime for nvidia is configured", "drop-in-not-imported"),
    _pain(12, "containers take half a minute to start", "persistence-daemon-stopped"),
    _pain(13, "permission denied under SELinux", "selinux-keeps-devices"),
    _pain(15, "a MIG instance without its capability nodes", "no-node-of-a-mig-device"),
    _pain(16, "every pod sees all GPUs", "images-take-all-gpus"),
    _pain(17, "invoking the NVIDIA Container Runtime Hook directly", "docker-gpus-in-mode-cdi"),
    _pain(18, "no Vulkan or EGL in the container", "egl-without-its-library"),
    _pain(20, "the driver is not where the toolkit looks", "toolkit-root-not-there"),
    _pain(21, "nvidia-uvm is missing after boot", "no-uvm"),
    _pain(22, "no container sees the GPU, and nothing says why", "module-not-loaded"),
    _pain(23, "podman calls a good spec unresolvable", "spec-too-new-for-podman"),
    _pain(24, "time slices that memory does not suffice for", "time-slices-too-small"),
]  # fmt: skip


@pytest.fixture(scope="module")
def nvidia_only(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], FaultCase]:
    """Return a function that makes a node with NVIDIA's stack, once for each profile."""
    made: dict[str, FaultCase] = {}

    def node_of(profile: str) -> FaultCase:
        if profile not in made:
            place = tmp_path_factory.mktemp(f"nvidia-{profile}")
            made[profile] = scenes.make(place, profile, without=OURS)
            _replace_spec(made[profile])
        return made[profile]

    return node_of


def _replace_spec(case: FaultCase) -> None:
    driver.write_toolkit_spec(case)
    for path in case.root.rglob("*gpuhook*"):
        raise AssertionError(f"{path} is ours")
    case.readings[node_readings.CONTAINERS] = {"looked_at": 1, "containers": [], "trouble": []}


@pytest.mark.parametrize("profile", ["t4", "h100x8", "a100-mig"])
def test_nvidia_stack_has_no_finding(profile: str, nvidia_only: Callable[[str], FaultCase]) -> None:
    examination = nvidia_only(profile).examine()
    findings = [r for r in examination.results if r.finding.status in (FAILED, WARNING)]
    assert [(r.check.id, r.finding.message) for r in findings] == []


def test_checks_of_gpuhook_are_not_applicable(nvidia_only: Callable[[str], FaultCase]) -> None:
    results = nvidia_only("t4").examine().results
    results_of_gpuhook = [r for r in results if r.check.id.startswith(("installation.", "state."))]
    assert results_of_gpuhook
    assert {r.finding.status for r in results_of_gpuhook} == {NOT_APPLICABLE}


@pytest.mark.parametrize("pain", PAINS, ids=lambda pain: f"{pain.number}")
def test_first_finding_is_the_cause(
    pain: Pain, nvidia_only: Callable[[str], FaultCase], tmp_path: Path
) -> None:
    broken = copied(nvidia_only(pain.profile), tmp_path)
    pain.do(broken)
    examination = broken.examine()
    findings = examination.of(FAILED) or examination.of(WARNING)
    assert findings, pain.complaint
    first = findings[0]
    assert first.check.id == pain.check, [(r.check.id, r.finding.message) for r in findings]
    assert first.finding.meaning
    assert first.finding.command
    assert "generate-cdi" not in first.finding.command, "gpuhook is not installed here"


def test_twenty_problems_are_covered() -> None:
    assert len({pain.number for pain in PAINS}) >= 20
