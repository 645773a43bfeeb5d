# SPDX-License-Identifier: Apache-2.0
"""Build a static program of one C file."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from contextlib import suppress

HERE = os.path.dirname(os.path.abspath(__file__))
LAUNCH = os.path.join(HERE, "gpuhook-launch.c")


def build(source: str, program: str, machine: str = "", *, is_quiet: bool = False) -> None:
    """Build `program` for a machine, by default this one; `is_quiet` hides the compiler's output.

    Raises OSError without a compiler, and CalledProcessError, such as without its C library.
    """
    compiler = f"{machine}-linux-gnu-gcc"
    if machine in ("", platform.machine()):
        compiler = shutil.which("musl-gcc") or "gcc"  # a program with musl starts faster
    command = [compiler, "-static", "-Os", "-s", "-Wall", "-Wextra", "-Werror", "-o", program]
    subprocess.run([*command, source], check=True, capture_output=is_quiet)


def has_built(source: str, program: str) -> bool:
    """Return whether this machine could build `program`, and can run it without arguments.

    Otherwise there is no such file.
    """
    try:
        build(source, program, is_quiet=True)
        is_usable = subprocess.run([program], check=False, capture_output=True).returncode >= 0
    except (OSError, subprocess.CalledProcessError):
        is_usable = False
    if not is_usable:
        with suppress(OSError):
            os.unlink(program)
    return is_usable
