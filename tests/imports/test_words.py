# SPDX-License-Identifier: Apache-2.0
"""Words that may not be in some folders."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.imports.marks import PACKAGE

VENDOR = re.compile(r"nvidia|cuda|nvml|\bmig\b", re.IGNORECASE)


@pytest.mark.parametrize("path", sorted((PACKAGE / "request").rglob("*.py")), ids=lambda p: p.name)
def test_no_vendor_in_request(path: Path) -> None:
    """What is asked, what may be had and what results is written without any vendor's word."""
    text = path.read_text(encoding="utf-8")
    assert VENDOR.findall(text) == []
