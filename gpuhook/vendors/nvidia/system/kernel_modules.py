# SPDX-License-Identifier: Apache-2.0
"""Loads the driver's kernel modules with the host's modprobe."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import partial

from gpuhook.errors import fault, printable
from gpuhook.vendors.nvidia.system.system_root import KEEP, LOAD, Step

MODULES = ("nvidia", "nvidia-uvm", "nvidia-modeset")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_SECONDS = 120  # initialising the GPUs of a large machine takes long


def step(host_root: str, driver_root: str, module: str) -> Step:
    """Return the step for a module; its change raises GH1536.

    With a driver root, the module is the one below it; no program of that tree runs.
    """
    if os.path.isdir(os.path.join(host_root, "sys/module", module.replace("-", "_"))):
        return Step(KEEP, module, "it is loaded")
    place = [] if driver_root == "/" else ["-d", driver_root]
    command = ["modprobe", *place, "--", module]
    return Step(LOAD, module, " ".join(command), partial(_run, module, command))


def _run(module: str, command: list[str]) -> None:
    program = shutil.which(command[0], path=_PATH)
    if program is None:
        raise fault("GH1536", module=module, reason=f"there is no modprobe in {_PATH}")
    try:
        done = subprocess.run(
            [program, *command[1:]],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        reason = f"modprobe has not ended after {_SECONDS} seconds"
        raise fault("GH1536", module=module, reason=reason) from error
    if done.returncode != 0:
        output = printable(" ".join(done.stdout.decode("utf-8", "replace").split()), 300)
        status = f"modprobe ended with status {done.returncode}"
        raise fault("GH1536", module=module, reason=output or status)
