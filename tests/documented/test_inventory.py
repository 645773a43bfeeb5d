# SPDX-License-Identifier: Apache-2.0
"""The lines of gpuhook that need no GPU: with a profile, or on a broken node of tests/doctor."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import tests.doctor.parts.gpuhook
from gpuhook.cli import main
from tests.contract.runtimes import Result, run_command
from tests.doctor import case
from tests.doctor.broken import all_of_them
from tests.documented.claims import lines_of_scenario
from tests.documented.page_files import page_files
from tests.documented.running import Expected, run_lines

PAGES = lines_of_scenario("inventory")
# The fault of the node of `gpuhook doctor`.
FAULT = "driver-upgraded-and-not-rebooted"
STATUS = {
    "gpuhook doctor": 1,
    "VISIBLE_DEVICES=7": 1,
    "explain pod.yaml": 1,
    "gpuhook device-plugin --validate plugin.yaml": 1,
}
BEFORE = {"device-plugin --validate plugin.yaml": "cp broken.yaml plugin.yaml"}
# The plugin ends at SIGTERM, once it has offered its devices.
OFFERED = "{line} 2>log & until grep event=offered log; do sleep 0.1; done; kill $! && wait $!"


@pytest.mark.parametrize("page", PAGES)
def test_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page_files(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def run(script: str) -> Result:
        words = shlex.split(script, comments=True)
        if words[0] != "gpuhook" or "--plugin-directory" in words:
            return run_command(["bash", "-c", script], env)
        if words == ["gpuhook", "doctor"]:
            words += ["--root", str(broken_node(tmp_path / "node"))]
        done = CliRunner().invoke(main, words[1:])
        return Result(done.exit_code, done.stdout, done.stderr)

    is_plugin = page == "docs/reference/plugin.md"
    status = {part: rc for part, rc in STATUS.items() if "--validate" not in part or is_plugin}
    before = BEFORE if is_plugin else {}
    run_lines(PAGES[page], run, Expected({}, status, before, {"--plugin-directory": OFFERED}))


def broken_node(root: Path) -> Path:
    """Return the root of a node with the fault."""
    if not case.is_root():
        pytest.skip("device nodes need root")
    made = case.make(root, without=tests.doctor.parts.gpuhook.__name__)
    next(broken for broken in all_of_them() if broken.name == FAULT).do(made)
    return root
