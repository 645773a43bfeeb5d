# SPDX-License-Identifier: Apache-2.0
"""The launcher finds the low-level runtime without Python."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.contract.bundles import Bundles
from tests.contract.installation import Installation, asks
from tests.contract.runtimes import SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass


def test_launcher_uses_the_recorded_low_level_runtime(
    node8: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """A create records it below GPUHOOK_STATE_DIR; other commands read it there."""
    low_level = tmp_path / "low-level"
    low_level.write_text("#!/bin/sh\nexit 41\n", encoding="utf-8")
    low_level.chmod(0o755)
    made = node8.apart(tmp_path / "apart", runtime={"lowLevelRuntimes": [str(low_level)]})
    bundle = bundle_of("distroless", ["/probe"], asks("void"))
    created = made.edit(bundle, env={"GPUHOOK_LOW_LEVEL_RUNTIME": ""})
    assert created.rc == 41, created
    assert (made.state / "low-level-runtime").read_text("utf-8") == f"{low_level}\n"
    # Only Python can read this file: the launcher does not need it.
    made.config.write_text("runtime: {lowLevelRuntimes: [/bin/false]}\n", encoding="utf-8")
    done = subprocess.run([made.runtime, "state", "x"], env=made.env, timeout=SECONDS, check=False)
    assert done.returncode == 41
