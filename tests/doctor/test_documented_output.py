# SPDX-License-Identifier: Apache-2.0
"""The doctor's output in the documentation is what doctor prints on a node with that fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import tests.doctor.parts.gpuhook
from gpuhook.cli import main
from tests.doctor import case
from tests.doctor.broken import all_of_them

pytestmark = pytest.mark.skipif(not case.is_root(), reason="device nodes need root")
ROOT = Path(__file__).parents[2]
COMMAND = "$ gpuhook doctor\n"


def test_documented_output_of_doctor(tmp_path: Path) -> None:
    """The driver's files are newer than the kernel module, on a node with NVIDIA's stack."""
    page = "docs/start/debug.md"
    shown = (ROOT / page).read_text(encoding="utf-8").partition(COMMAND)[2].partition("```")[0]
    made = case.make(tmp_path, without=tests.doctor.parts.gpuhook.__name__)
    next(b for b in all_of_them() if b.name == "driver-upgraded-and-not-rebooted").do(made)
    printed = CliRunner().invoke(main, ["doctor", "--quiet", "--root", str(tmp_path)])
    first, *_ = printed.stdout.split("\n\n")
    assert shown.rstrip("\n") == first.rstrip("\n")
