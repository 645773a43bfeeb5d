# SPDX-License-Identifier: Apache-2.0
"""Each broken node has the expected failure, and no other."""

from __future__ import annotations

import pytest

import tests.doctor.parts  # noqa: F401 # registers what healthy nodes have
from gpuhook.doctor.check_list import checks
from gpuhook.node_facts.check import FAILED, WARNING
from tests.doctor.broken import all_of_them
from tests.doctor.case import is_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doctor.case import Broken, FaultCase

pytestmark = pytest.mark.skipif(not is_root(), reason="device nodes need root")
PROFILES = ("t4", "h100x8", "a100-mig", "mi300x8", "mi300x-cpx", "t4-and-mi300x")
# Checks that neither fail nor warn: they report what a node has, and each answer is right.
NEVER_WRONG = {
    "specs.compat32": "a node without 32-bit libraries runs all programs of CUDA",
    "amd.gpu": "a machine without an AMD GPU is healthy",
    "host.cgroups": "containers get their GPUs under either version of control groups",
}
# Checks whose broken node is not a tree of files, and their tests.
ELSEWHERE = {"amd.answers": "faults/test_silent_driver.py: a file that blocks its readers"}


@pytest.mark.parametrize("profile", PROFILES)
def test_healthy_node_has_no_finding(profile: str, healthy: Callable[[str], FaultCase]) -> None:
    examination = healthy(profile).examine()
    findings = [(r.check.id, r.finding.subject, r.finding.message) for r in examination.of(FAILED)]
    findings += [
        (r.check.id, r.finding.subject, r.finding.message) for r in examination.of(WARNING)
    ]
    assert findings == []


@pytest.mark.parametrize("check", [one.id for one in checks()])
def test_each_check_has_a_broken_node(check: str) -> None:
    """A check that reports no broken node is not tested."""
    nodes = [broken.name for broken in all_of_them() if broken.check == check]
    assert bool(nodes) != (check in {**NEVER_WRONG, **ELSEWHERE}), nodes


def test_checks_without_a_broken_node_exist() -> None:
    assert {*NEVER_WRONG, *ELSEWHERE} <= {one.id for one in checks()}


@pytest.mark.parametrize("broken", all_of_them(), ids=lambda broken: broken.name)
def test_broken_node_fails_the_expected_check_only(
    broken: Broken, fresh: Callable[[str], FaultCase]
) -> None:
    case = fresh(broken.profile)
    broken.do(case)
    examination = case.examine()
    failed = examination.of(FAILED)
    assert {r.check.id for r in examination.results} == {one.id for one in checks()}
    if broken.is_warning:
        assert [(r.check.id, r.finding.message) for r in failed] == []
        assert broken.check in {r.check.id for r in examination.of(WARNING)}
        return
    assert {r.check.id for r in failed} == {broken.check}, [
        (r.check.id, r.finding.subject, r.finding.message) for r in failed
    ]
    assert all(r.finding.meaning and r.finding.command for r in failed)
