# SPDX-License-Identifier: Apache-2.0
"""The machine of the benchmarks: a simulated node with eight GPUs, an installation, bundles."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.contract import roots
from tests.contract.bundles import Bundle, bundle
from tests.contract.installation import Installation, asks, installation

CDI_DIRECTORIES = ("/run/cdi", "/etc/cdi")
HOST_PROC = {
    "destination": "/proc",
    "type": "bind",
    "source": "/proc",
    "options": ["rbind", "rprivate"],
}


def stage(place: Path) -> Installation:
    """Return gpuhook installed on a simulated node with eight H100, with its state in memory."""
    in_memory(place / "state")
    made = installation(place)
    simulate_host(place, Path(made.node.host_root), made.specs)
    return made


def in_memory(directory: Path) -> None:
    """Make `directory` a tmpfs, since it plays a directory below /run."""
    directory.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", directory], check=True)


def simulate_host(place: Path, host_root: Path, specs: Path) -> None:
    """Make this mount namespace look like the node: parameters in /proc, CDI specs in /run/cdi.

    The container then has the file that the parameters hook covers. The unified cgroup hierarchy
    next to v1 is unmounted: crun refuses that mixture.
    """
    driver = Path("/proc/driver")
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", driver], check=True)
    shutil.copytree(host_root / "proc/driver/nvidia", driver / "nvidia")
    (place / "no-cdi").mkdir()
    for source, target in zip((specs, place / "no-cdi"), CDI_DIRECTORIES, strict=True):
        os.makedirs(target, exist_ok=True)
        subprocess.run(["mount", "--bind", source, target], check=True)
    unified = Path("/sys/fs/cgroup/unified")
    if unified.is_mount():
        subprocess.run(["umount", unified], check=True)


def unmount_below(place: str) -> None:
    """Unmount what was mounted below `place`, and its CDI directories: the plugin writes there."""
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        targets = [line.split()[1] for line in mounts]
    for target in reversed(targets):
        if target.startswith(place + "/") or target in CDI_DIRECTORIES:
            subprocess.run(["umount", target], check=True)


def gpu_bundle(made: Installation, name: str, value: str = "all", **oci: Any) -> Bundle:
    """Return a bundle on a Debian root that requests GPUs with all driver capabilities."""
    root = roots.copy("debian", made.place / name / "root")
    in_memory(made.place / name / "bundle")
    path = made.place / name / "bundle"
    written = bundle(path, root, ["sleep", "600"], asks(value, "all"), **oci)
    config = written.config()
    config["mounts"] = [HOST_PROC, *(m for m in config["mounts"] if m["destination"] != "/proc")]
    written.write(config)
    return written


@contextmanager
def fresh(
    made: Bundle, command: Sequence[str], low_level: str, around: Sequence[str] = ()
) -> Iterator[Sequence[str]]:
    """Yield `command create` for a new container of the bundle in its original form.

    Afterwards the container is deleted with `low_level`, and config.json is restored. `around` is a
    prefix for both commands.
    """
    original = made.file.read_bytes()
    identity = f"gpuhook-bench-{uuid4().hex[:12]}"
    root = ["--root", str(made.path / "state")]
    try:
        yield [*around, *command, *root, "create", "--bundle", str(made.path), identity]
    finally:
        subprocess.run([*around, low_level, *root, "delete", "--force", identity], check=True)
        made.file.write_bytes(original)
