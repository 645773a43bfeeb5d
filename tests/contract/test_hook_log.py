# SPDX-License-Identifier: Apache-2.0
"""What hooks had to say, kept on the node: crun throws away what a hook says."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.contract.bundles import Bundles
from tests.contract.installation import Installation, asks
from tests.contract.live import prestart
from tests.contract.runtimes import run, run_command


def test_why_a_container_did_not_start(apart: Installation, bundle_of: Bundles) -> None:
    """Under crun, which shows nothing of it, the node's log has the sentence and the way out."""
    made = bundle_of("distroless", ["/probe"], asks("77"), hooks=prestart(apart))
    done = run(made, ["crun"], "crun")
    assert done.rc != 0
    assert "GH1102" not in done.stderr + done.log
    (line,) = (apart.state / "hook.log").read_text(encoding="utf-8").splitlines()
    assert "level=error" in line
    assert "GH1102: NVIDIA_VISIBLE_DEVICES: nvidia.com/gpu=77: no such device" in line


def test_a_full_log_makes_room(node8: Installation, tmp_path: Path) -> None:
    """What is over a mebibyte is put aside, once."""
    log = tmp_path / "hook.log"
    log.write_bytes(b"x" * (1 << 20) + b"\n")
    env = {**os.environ, **node8.env, "GPUHOOK_STATE_DIR": str(tmp_path)}
    for _ in range(2):
        words = [str(node8.bindir / "gpuhook-hook"), "nonsense"]
        done = subprocess.run(words, env=env, capture_output=True, check=False)
        assert done.returncode == 1
    assert log.read_text(encoding="utf-8").count("GH1640: ") == 2
    assert (tmp_path / "hook.log.1").stat().st_size == (1 << 20) + 1


def test_nowhere_to_keep_it(node8: Installation, tmp_path: Path) -> None:
    """Without a directory that can be written, standard error has it all the same."""
    (tmp_path / "file").touch()
    env = {**os.environ, **node8.env, "GPUHOOK_STATE_DIR": str(tmp_path / "file")}
    words = [str(node8.bindir / "gpuhook-hook"), "nonsense"]
    done = run_command(words, env)
    assert done.rc == 1
    assert "error GH1640" in done.stderr
