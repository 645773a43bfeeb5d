# SPDX-License-Identifier: Apache-2.0
"""A host with Docker that tests configure and undo."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuhook.engines.configure import configure_engine
from gpuhook.engines.configure.configure_engine import Where
from gpuhook.engines.configure.engine_plan import EngineOptions
from gpuhook.engines.configure.host_files import Host
from tests.unit.configured_docker import MAIN

DOCKER = Where("docker")
WANTED = EngineOptions("wrapper", "nvidia", "/usr/bin/gpuhook-runtime", "/usr/bin/gpuhook-prestart")
OTHER = EngineOptions("wrapper", "gpuhook", "/opt/gpuhook-runtime", "/opt/gpuhook-prestart", True)
ORIGINAL = b'{ "debug":true,\n\t"runtimes": {} }'
Tree = dict[str, tuple[int, int, int, bytes]]


def made(place: Path) -> Path:
    """Make a host whose daemon.json has an unusual mode and owner, and return its root."""
    (place / "etc/docker").mkdir(parents=True)
    (place / "var/lib").mkdir(parents=True)
    (place / "tmp").mkdir()
    file = place / MAIN[1:]
    file.write_bytes(ORIGINAL)
    file.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(file, 1234, 4321)
    return place


def tree(root: Path) -> Tree:
    """Return all files below a root: modes, owners, contents, targets of links."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content = b""
        if stat.S_ISLNK(status.st_mode):
            content = os.fsencode(path.readlink())
        elif stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
        found[str(path)] = (status.st_mode, status.st_uid, status.st_gid, content)
    return found


def etc(root: Path) -> Tree:
    """Return the files below its /etc."""
    return {path: one for path, one in tree(root).items() if f"{root}/etc" in path}


def configure(
    root: Path, wanted: EngineOptions = WANTED, **more: Any
) -> configure_engine.EngineResult:
    """Configure its Docker."""
    return configure_engine.configure(Host(str(root)), DOCKER, wanted, **more)


def undo(root: Path, **more: Any) -> configure_engine.EngineResult:
    """Undo the configuration."""
    return configure_engine.undo(Host(str(root)), DOCKER, **more)


def runtimes(root: Path) -> list[str]:
    """Return the names of the runtimes in its daemon.json."""
    return sorted(json.loads((root / MAIN[1:]).read_bytes())["runtimes"])


def program(root: Path, name: str, text: str) -> None:
    """Put a shell script on the host, and a shell to run it."""
    if os.geteuid() != 0:
        pytest.skip("the host's programs are run by chroot(2)")
    places = [root / one for one in ("bin", "usr/bin")]
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
    if not (root / "bin/sh").exists():
        subprocess.run(["cp", "/bin/busybox", root / "bin/sh"], check=True)
        for tool in ("cat", "echo"):
            (root / "bin" / tool).symlink_to("sh")
    file = root / "usr/bin" / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
