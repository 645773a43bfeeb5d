# SPDX-License-Identifier: Apache-2.0
"""A check that crashes is reported, and the other checks run."""

from __future__ import annotations

import pytest

from gpuhook.doctor.examination import examine
from gpuhook.errors import fault
from gpuhook.node_facts.check import OK, WARNING, Check, ExaminedNode, Finding, ok
from gpuhook.node_facts.sources.node_readings import Readings
from gpuhook.node_facts.sources.node_tree import DirectoryTree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (KeyError("a\nb\x1b[31m"), "driver.first failed with an internal error"),
        (RecursionError("too deep"), "RecursionError: too deep"),
        (fault("GH1310", path="/x", limit=1), "GH1310: "),
        (TimeoutError(110, "it does not answer", "/x"), "/x cannot be read: it does not answer"),
    ],
)
def test_crashing_check_is_one_finding(raised: Exception, said: str) -> None:
    def crashing(node: ExaminedNode) -> Iterator[Finding]:
        yield ok("until here")
        raise raised

    checks = (
        Check("driver.first", "It crashes", crashing),
        Check("driver.second", "It does not", lambda _: [ok("well")], ("driver.first",)),
    )
    found = examine(ExaminedNode(DirectoryTree("/"), Readings({})), checks)
    assert [(one.check.id, one.finding.status) for one in found.results] == [
        ("driver.first", WARNING),
        ("driver.second", OK),
    ]
    assert said in found.results[0].finding.message
    assert found.results[0].finding.message.isprintable()
