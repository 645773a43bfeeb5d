# SPDX-License-Identifier: Apache-2.0
"""Healthy nodes of many kinds have no failed check and no wrong warning."""

from __future__ import annotations

import pytest

from gpuhook.doctor.check_list import checks
from gpuhook.doctor.examination import examine
from gpuhook.node_facts.check import FAILED, WARNING, ExaminedNode
from gpuhook.node_facts.sources.node_readings import Readings
from gpuhook.node_facts.sources.node_tree import DirectoryTree
from tests.doctor.case import is_root
from tests.doctor.real import nodes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from tests.doctor.real.machines import RealNode

pytestmark = pytest.mark.skipif(not is_root(), reason="device nodes need root")


@pytest.mark.parametrize("node", nodes(), ids=lambda node: node.name)
def test_healthy_node_has_expected_warnings_only(node: RealNode, tmp_path: Path) -> None:
    examination = node.make(tmp_path).examine()
    assert {r.check.id for r in examination.results} == {one.id for one in checks()}
    failed = [(r.check.id, r.finding.message) for r in examination.of(FAILED)]
    warned = [(r.check.id, r.finding.message) for r in examination.of(WARNING)]
    assert failed == []
    assert {check for check, _ in warned} == set(node.warned), warned


@pytest.mark.parametrize("node", nodes(), ids=lambda node: node.name)
def test_files_of_a_healthy_node_have_no_failure(node: RealNode, tmp_path: Path) -> None:
    tree = DirectoryTree(str(node.make(tmp_path).root))
    examination = examine(ExaminedNode(tree, Readings({})), checks())
    findings = [(r.check.id, r.finding.message) for r in examination.of(FAILED)]
    findings += [
        (r.check.id, r.finding.message)
        for r in examination.of(WARNING)
        if r.check.id not in node.warned
    ]
    assert findings == []
