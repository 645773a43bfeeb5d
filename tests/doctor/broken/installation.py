# SPDX-License-Identifier: Apache-2.0
"""Broken installations of gpuhook."""

from __future__ import annotations

import shutil
from functools import partial

from tests.doctor.case import Broken
from tests.doctor.parts.gpuhook import (
    BIN,
    LIBRARY,
    PYTHON,
    SETTINGS,
    filled,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tests.doctor.case import FaultCase


def without(case: FaultCase, path: str) -> None:
    """Remove a file of the node."""
    case.remove(path)


def mode(case: FaultCase, path: str, bits: int) -> None:
    """Change the mode of a file."""
    case.path(path).chmod(bits)


def other_python(case: FaultCase, name: str) -> None:
    """Replace the interpreter by another version."""
    case.write(f"/usr/bin/{name}", "an interpreter\n", 0o755)
    case.remove(PYTHON)
    case.path(PYTHON).symlink_to(name)


def no_launch_program(case: FaultCase) -> None:
    """Let the wrapper name a program of gpuhook that does not exist."""
    shell = "/usr/libexec/gpuhook-launch"
    text = filled("gpuhook-runtime").replace("#!/bin/sh\n", f"#!{shell}\n", 1)
    case.write(f"{BIN}/gpuhook-runtime", text, 0o755)


def no_package(case: FaultCase) -> None:
    shutil.rmtree(case.path(LIBRARY))


def no_command(case: FaultCase) -> None:
    """Remove the command line, which compiles the settings."""
    case.remove(f"{BIN}/gpuhook")


def two_versions(case: FaultCase) -> None:
    """Install an older version in another directory."""
    library = "/usr/local/lib/gpuhook"
    case.write(f"{library}/gpuhook/__init__.py", '__version__ = "0.0.1"\n')
    case.write(f"{library}/gpuhook/__pycache__/__init__.cpython-311.pyc", "")
    for name in ("gpuhook_bundle.py", "gpuhook_os.py"):
        case.write(f"{library}/{name}", "")
    for name in ("gpuhook-runtime", "gpuhook-hook", "gpuhook-prestart", "gpuhook"):
        text = filled(name, LIB=library, BIN="/usr/local/bin")
        case.write(f"/usr/local/bin/{name}", text, 0o755)


def settings(case: FaultCase, text: str) -> None:
    case.write(SETTINGS, text)


BROKEN = [
    Broken(
        "prestart launcher missing",
        "installation.launchers",
        partial(without, path=f"{BIN}/gpuhook-prestart"),
    ),
    Broken(
        "wrapper not executable",
        "installation.launchers",
        partial(mode, path=f"{BIN}/gpuhook-runtime", bits=0o644),
    ),
    Broken(
        "interpreter gone",
        "installation.launchers",
        partial(without, path="/usr/bin/python3.11"),
    ),
    Broken(
        "interpreter too old",
        "installation.launchers",
        partial(other_python, name="python3.8"),
    ),
    Broken("program of the wrapper missing", "installation.launchers", no_launch_program),
    Broken("package gone", "installation.launchers", no_package),
    Broken("nothing compiles YAML", "installation.launchers", no_command, is_warning=True),
    Broken("two versions installed", "installation.versions", two_versions, is_warning=True),
    Broken(
        "settings with a wrong word",
        "installation.settings",
        partial(settings, text="request:\n  onMissingDriver: stop\n"),
    ),
    Broken(
        "settings that are no YAML",
        "installation.settings",
        partial(settings, text="request: [\n"),
    ),
    Broken(
        "settings with an unknown key",
        "installation.settings",
        partial(settings, text="request:\n  onMissingDrivers: start\n"),
        is_warning=True,
    ),
]
