# SPDX-License-Identifier: Apache-2.0
"""The node's log of the hooks, which is needed because crun discards their messages."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.contract.bundles import Bundles
from tests.contract.installation import Installation, asks
from tests.contract.live import prestart
from tests.contract.runtimes import run, run_command


def test_error_of_a_hook_is_in_the_nodes_log(apart: Installation, bundle_of: Bundles) -> None:
    """Under crun, which prints no error of a hook, the node's log has it."""
    made = bundle_of("distroless", ["/probe"], asks("77"), hooks=prestart(apart))
    done = run(made, ["crun"], "crun")
    assert done.rc != 0
    assert "GH1102" not in done.stderr + done.log
    (line,) = (apart.state / "hook.log").read_text(encoding="utf-8").splitlines()
    assert "level=error" in line
    assert "GH1102: NVIDIA_VISIBLE_DEVICES: nvidia.com/gpu=77: no such device" in line


def test_full_log_is_rotated_once(node8: Installation, tmp_path: Path) -> None:
    """A log of more than one mebibyte is renamed, once."""
    log = tmp_path / "hook.log"
    log.write_bytes(b"x" * (1 << 20) + b"\n")
    env = {**os.environ, **node8.env, "GPUHOOK_STATE_DIR": str(tmp_path)}
    for _ in range(2):
        words = [str(node8.bindir / "gpuhook-hook"), "nonsense"]
        done = subprocess.run(words, env=env, capture_output=True, check=False)
        assert done.returncode == 1
    assert log.read_text(encoding="utf-8").count("GH1640: ") == 2
    assert (tmp_path / "hook.log.1").stat().st_size == (1 << 20) + 1


def test_error_is_on_stderr_without_a_writable_log(node8: Installation, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    env = {**os.environ, **node8.env, "GPUHOOK_STATE_DIR": str(tmp_path / "file")}
    words = [str(node8.bindir / "gpuhook-hook"), "nonsense"]
    done = run_command(words, env)
    assert done.rc == 1
    assert "error GH1640" in done.stderr
