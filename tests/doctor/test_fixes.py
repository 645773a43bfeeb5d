# SPDX-License-Identifier: Apache-2.0
"""--fix repairs gpuhook's own files, and a second run changes nothing."""

from __future__ import annotations

import pytest

import tests.doctor.parts  # noqa: F401 # registers what healthy nodes have
from gpuhook.doctor import fix
from gpuhook.node_facts.check import FAILED, WARNING
from tests.doctor.broken import installation
from tests.doctor.case import is_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.doctor.examination import Examination
    from tests.doctor.case import Broken, FaultCase

pytestmark = pytest.mark.skipif(not is_root(), reason="files of root's need root")
FIXED = {"wrapper not executable"}
BROKEN = [one for one in installation.BROKEN if one.name in FIXED]
CHECKS = ["installation.launchers"]


def failed_checks(examination: Examination) -> list[str]:
    return [one.check.id for status in (FAILED, WARNING) for one in examination.of(status)]


def test_fixed_cases_exist() -> None:
    assert {one.name for one in BROKEN} == FIXED


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_fix_repairs_the_node(broken: Broken, fresh: Callable[[str], FaultCase]) -> None:
    case = fresh(broken.profile)
    broken.do(case)
    before = fix.fixable(case.examine(CHECKS))
    messages: list[str] = []
    examination, done = fix.apply_fixes(lambda: case.examine(CHECKS), messages.append)
    assert failed_checks(examination) == []
    assert [(one.is_done, one.after) for one in done] == [(True, "ok")] * len(before)
    assert len(messages) == len(before) > 0
    for _, again in before:
        again.apply()
    assert failed_checks(case.examine(CHECKS)) == []
