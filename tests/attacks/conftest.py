# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the attack tests: those of the contract tests, and a directory to protect."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.conftest import (
    apart,
    as_root,
    bindir,
    bundle_of,
    machine,
    node8,
    root_of,
)
from tests.contract.test_hostile import canary
from tests.depth import below

__all__ = ["apart", "as_root", "bindir", "bundle_of", "canary", "machine", "node8", "root_of"]

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this directory with `contract`: they need root."""
    for item in below(HERE, items):
        item.add_marker(pytest.mark.contract)
