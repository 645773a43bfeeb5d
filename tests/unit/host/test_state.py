# SPDX-License-Identifier: Apache-2.0
"""The state directory of root, of users, and of a user who is root in a user namespace."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from gpuhook.host.hot import state
if sys.argv[1] != "0":
    os.seteuid(int(sys.argv[1]))
print(state.directory(), state.runtime_root("/usr/bin/crun"))
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")


def places(*prefix: str, uid: int = 0, **env: str) -> list[str]:
    """Return the state directory of gpuhook and the state root of the runtime of a process."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "GPUHOOK_"))}
    done = subprocess.run(
        [*prefix, sys.executable, "-c", PROGRAM, str(uid)],
        env={**clean, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@needs_root
def test_state_of_root() -> None:
    """It is below /run."""
    assert places() == ["/run/gpuhook", "/run/crun"]


def test_state_directory_of_the_environment() -> None:
    """The environment may name another directory."""
    assert places(GPUHOOK_STATE_DIR="/elsewhere")[0] == "/elsewhere"


@needs_root
def test_state_of_a_user() -> None:
    """It is in the user's own directory."""
    assert places(uid=1234) == ["/run/user/1234/gpuhook", "/run/user/1234/crun"]
    assert places(uid=1234, XDG_RUNTIME_DIR="/x") == ["/x/gpuhook", "/x/crun"]


@needs_root
def test_state_in_a_user_namespace() -> None:
    """Root of a user namespace, as in rootless podman, is still the user who made it."""
    if subprocess.run(["unshare", "-r", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespace can be made here")
    assert places("unshare", "-r", XDG_RUNTIME_DIR="/x") == ["/x/gpuhook", "/x/crun"]
    assert places("unshare", "-r") == ["/run/gpuhook", "/run/crun"]
