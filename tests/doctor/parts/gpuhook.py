# SPDX-License-Identifier: Apache-2.0
"""gpuhook as packaging/install.py installs it below /usr, with a minimal package.

The launchers are made from the shipped templates; the package is a few empty files.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import gpuhook
from gpuhook.containers.hot import ledger
from gpuhook.node_facts.sources import node_readings
from tests.doctor.case import part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tests.doctor.case import FaultCase

PACKAGING = Path(gpuhook.__file__).parents[1] / "packaging"
BIN, LIBRARY, PYTHON = "/usr/bin", "/usr/lib/gpuhook", "/usr/bin/python3"
VALUES = {"PYTHON": PYTHON, "LIB": LIBRARY, "CLI": PYTHON, "BIN": BIN}
VALUES |= {"VERSION": gpuhook.__version__}
LAUNCHERS = {
    "gpuhook": "gpuhook.sh",
    "gpuhook-hook": "gpuhook-hook.py",
    "gpuhook-prestart": "gpuhook-prestart.sh",
    "gpuhook-runtime": "gpuhook-runtime.sh",
}
ENTRY = "/run/gpuhook/containers/00000000-holder.json"
SETTINGS = "/etc/gpuhook/config.yaml"


def container(identity: str = "holder", **facts: Any) -> dict[str, Any]:
    """Return a reading of a healthy running container with a GPU from gpuhook."""
    return {
        "id": identity,
        "engine": "containerd",
        "runtime": "runc",
        "pod": None,
        "namespace": None,
        "container": None,
        "nodes": [],
        "missing": [],
        "findings": [],
        "injected_by": ["gpuhook"],
        "repairable": False,
        **facts,
    }


def filled(name: str, **values: str) -> str:
    """Return the text of a launcher with the installer's values."""
    text = (PACKAGING / LAUNCHERS.get(name, f"compat/{name}")).read_text("utf-8")
    for word, value in {**VALUES, **values}.items():
        text = text.replace(f"@{word}@", value)
    return text


@part
def installation(case: FaultCase) -> None:
    """Add launchers, package and interpreter."""
    for name in LAUNCHERS:
        case.write(f"{BIN}/{name}", filled(name), 0o755)
    case.write("/usr/bin/python3.11", "an interpreter\n", 0o755)
    if not os.path.lexists(case.path(PYTHON)):
        case.path(PYTHON).symlink_to("python3.11")
    version = f'__version__ = "{gpuhook.__version__}"\n'
    case.write(f"{LIBRARY}/gpuhook/__init__.py", version)
    case.write(f"{LIBRARY}/gpuhook/__pycache__/__init__.cpython-311.pyc", "")
    for name in ("gpuhook_bundle.py", "gpuhook_os.py"):
        case.write(f"{LIBRARY}/{name}", "")
    case.write(SETTINGS, "request:\n  onMissingDriver: start\n")


@part
def state(case: FaultCase) -> None:
    """Add a container with a GPU from gpuhook, and its ledger entry."""
    entry = {"schema": ledger.SCHEMA, "id": "holder", "root": "/run/runc", "since": 1.0}
    case.write(ENTRY, json.dumps(entry))
    case.write("/run/runc/holder/state.json", "{}")


@part
def add_readings(case: FaultCase) -> None:
    """Add the readings of a running node."""
    case.readings[node_readings.CONTAINERS] = {
        "looked_at": 2,
        "containers": [container()],
        "trouble": [],
    }
    case.readings[node_readings.SELF] = {
        "version": gpuhook.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "executable": PYTHON,
        "package": f"{LIBRARY}/gpuhook",
    }
