# SPDX-License-Identifier: Apache-2.0
"""What people lose days to, on a node that has NVIDIA's stack and nothing of gpuhook's.

The list is that of the toolkit's own issue tracker: each line is a complaint that comes again and
again, the state of a node behind it, and the check that has to name it before any other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

import tests.doctor.parts
from gpuhook.doctor.check import FAILED, NOT_APPLICABLE, WARNING
from gpuhook.node import node_readings
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


def _of(number: int, complaint: str, name: str) -> Pain:
    broken = BROKEN[name]
    return Pain(number, complaint, broken.check, broken.do, broken.profile)


def _lost(case: FaultCase) -> None:
    """Remove the device rules of a container of NVIDIA's legacy hook."""
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
    _of(3, "MIG was changed, the spec was not", "mig-changed"),
    _of(4, "unresolvable CDI devices", "two-specs-in-conflict"),
    _of(5, "nvidia-cdi-refresh fails at boot", "refresh-unit-failed"),
    _of(6, "libnvidia-ml.so.1: cannot open shared object file", "no-libnvidia-ml"),
    _of(7, "could not select device driver with capabilities [[gpu]]", "docker-gpus-without-hook"),
    _of(9, "Driver/library version mismatch", "driver-upgraded-and-not-rebooted"),
    _of(10, "libcuda.so.1 is not found", "libcuda-without-its-link"),
    _of(11, "no runtime for nvidia is configured", "drop-in-not-imported"),
    _of(12, "containers take half a minute to start", "persistence-daemon-stopped"),
    _of(13, "permission denied under SELinux", "selinux-keeps-devices"),
    _of(15, "a MIG instance without its capability nodes", "no-node-of-a-mig-device"),
    _of(16, "every pod sees all GPUs", "images-take-all-gpus"),
    _of(17, "invoking the NVIDIA Container Runtime Hook directly", "docker-gpus-in-mode-cdi"),
    _of(18, "no Vulkan or EGL in the container", "egl-without-its-library"),
    _of(20, "the driver is not where the toolkit looks", "toolkit-root-not-there"),
    _of(21, "nvidia-uvm is missing after boot", "no-uvm"),
    _of(22, "no container sees the GPU, and nothing says why", "module-not-loaded"),
    _of(23, "podman calls a good spec unresolvable", "spec-too-new-for-podman"),
    _of(24, "time slices that memory does not suffice for", "time-slices-too-small"),
]  # fmt: skip


@pytest.fixture(scope="module")
def nvidia_only(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], FaultCase]:
    """Give a function that makes a node with NVIDIA's stack, once for each profile."""
    made: dict[str, FaultCase] = {}

    def of(profile: str) -> FaultCase:
        if profile not in made:
            place = tmp_path_factory.mktemp(f"nvidia-{profile}")
            made[profile] = scenes.make(place, profile, without=OURS)
            _replace_spec(made[profile])
        return made[profile]

    return of


def _replace_spec(case: FaultCase) -> None:
    driver.write_toolkit_spec(case)
    for path in case.root.rglob("*gpuhook*"):
        raise AssertionError(f"{path} is ours")
    case.readings[node_readings.CONTAINERS] = {"looked_at": 1, "containers": [], "trouble": []}


@pytest.mark.parametrize("profile", ["t4", "h100x8", "a100-mig"])
def test_nothing_is_wrong_with_nvidias_stack_as_it_is(
    profile: str, nvidia_only: Callable[[str], FaultCase]
) -> None:
    examination = nvidia_only(profile).examine()
    told = [r for r in examination.results if r.finding.status in (FAILED, WARNING)]
    assert [(r.check.id, r.finding.message) for r in told] == []


def test_what_is_gpuhooks_does_not_apply(nvidia_only: Callable[[str], FaultCase]) -> None:
    results = nvidia_only("t4").examine().results
    own = [r for r in results if r.check.id.startswith(("installation.", "state."))]
    assert own
    assert {r.finding.status for r in own} == {NOT_APPLICABLE}


@pytest.mark.parametrize("pain", PAINS, ids=lambda pain: f"{pain.number}")
def test_the_first_cause_is_named(
    pain: Pain, nvidia_only: Callable[[str], FaultCase], tmp_path: Path
) -> None:
    broken = copied(nvidia_only(pain.profile), tmp_path)
    pain.do(broken)
    examination = broken.examine()
    told = examination.of(FAILED) or examination.of(WARNING)
    assert told, pain.complaint
    first = told[0]
    assert first.check.id == pain.check, [(r.check.id, r.finding.message) for r in told]
    assert first.finding.meaning
    assert first.finding.command
    assert "generate-cdi" not in first.finding.command, "gpuhook is not what runs here"


def test_most_of_the_pains_are_covered() -> None:
    assert len({pain.number for pain in PAINS}) >= 20
