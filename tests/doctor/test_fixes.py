# SPDX-License-Identifier: Apache-2.0
"""--fix repairs gpuhook's own files, and a second run changes nothing."""

from __future__ import annotations

import pytest

import tests.doctor.parts  # noqa: F401 # registers what healthy nodes have
from gpuhook.doctor import fix
from gpuhook.doctor.check import FAILED, WARNING
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
OF_OURS = ["installation.launchers"]


def wrong(found: Examination) -> list[str]:
    return [one.check.id for status in (FAILED, WARNING) for one in found.of(status)]


def test_all_of_them_are_there() -> None:
    assert {one.name for one in BROKEN} == FIXED


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_a_fix_repairs_the_node(broken: Broken, fresh: Callable[[str], FaultCase]) -> None:
    case = fresh(broken.profile)
    broken.do(case)
    before = fix.fixable(case.examine(OF_OURS))
    said: list[str] = []
    found, done = fix.apply_fixes(lambda: case.examine(OF_OURS), said.append)
    assert wrong(found) == []
    assert [(one.is_done, one.after) for one in done] == [(True, "ok")] * len(before)
    assert len(said) == len(before) > 0
    for _, again in before:
        again.apply()
    assert wrong(case.examine(OF_OURS)) == []
