# SPDX-License-Identifier: Apache-2.0
"""Every case of the record."""

from __future__ import annotations

from tests.record.case import Case
from tests.record.groups import amd_pods, create, documents, errors, help_texts, hooks, hosts

GROUPS = (create, documents, errors, help_texts, hooks, hosts, amd_pods)


def every() -> list[Case]:
    """Return all cases in their order; names are unique."""
    cases = [case for group in GROUPS for case in group.cases()]
    names = [case.path for case in cases]
    assert len(names) == len(set(names)), sorted({n for n in names if names.count(n) > 1})
    return cases
