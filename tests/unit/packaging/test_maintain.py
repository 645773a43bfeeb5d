# SPDX-License-Identifier: Apache-2.0
"""Messages of a package before it is removed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "packaging/packages/scripts/maintain.sh"
UNKNOWN = "gpuhook: could not list the containers that need gpuhook-runtime:\n"
USERS = "gpuhook: containers that need gpuhook-runtime to start again:\n"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("echo docker a", f"{USERS}docker a\n"),
        ("exit 0", ""),
        (
            "echo it is too large >&2; exit 1",
            f"{UNKNOWN}it is too large\n",
        ),
    ],
    ids=["some", "none", "unknown"],
)
def test_removal_lists_containers_or_says_that_they_are_unknown(
    answer: str, told: str, tmp_path: Path
) -> None:
    program = tmp_path / "gpuhook"
    program.write_text(f"#!/bin/sh\n{answer}\n", encoding="utf-8")
    program.chmod(0o755)
    text = SCRIPT.read_text(encoding="utf-8")
    script = tmp_path / "maintain"
    script.write_text(text.replace("@BIN@", str(tmp_path)).replace("@LIB@", str(tmp_path)))
    words = ["sh", str(script), "leaving", "gpuhook"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stderr == told
