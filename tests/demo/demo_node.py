# SPDX-License-Identifier: Apache-2.0
"""What the demo plays on: this machine's GPU if it has one, else a simulated node with a T4."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.hot import host_fingerprint
from gpuhook.vendors.nvidia.inventory import dump_file
from tests.contract import roots
from tests.contract.bundles import bundle
from tests.contract.installation import Installation, install, installation
from tests.simulated.node import SimulatedNode

PROFILE = "t4"


def real_node(bindir: Path, place: Path) -> SimulatedNode | None:
    """Return this machine as a node, None if it has no working NVIDIA driver."""
    if not host_fingerprint.driver_is_loaded("/"):
        return None
    done = subprocess.run(
        [str(bindir / "gpuhook"), "inventory", "-o", "yaml"], capture_output=True, check=False
    )
    if done.returncode != 0:
        sys.stderr.write(done.stderr.decode())
        return None
    (place / "inventory.yaml").write_bytes(done.stdout)
    try:
        facts = dump_file.load(str(place / "inventory.yaml"))
    except GpuhookError as error:
        sys.stderr.write(f"{error}\n")
        return None
    usable = [gpu for gpu in facts.gpus if gpu.lost is None]
    return SimulatedNode("/", "/", "/", facts, facts.driver.nvml or "", "") if usable else None


def demo_installation(place: Path) -> tuple[Installation, bool]:
    """Install gpuhook below `place` on a node; returns it and whether its GPU is a real one."""
    if place.exists():
        shutil.rmtree(place)
    place.mkdir(parents=True)
    bindir = install(place / "prefix")
    real = real_node(bindir, place)
    made = installation(place, real or PROFILE, bindir)
    write_environment(made)
    return made, real is not None


def write_environment(made: Installation) -> None:
    """Write a shell file with the environment of the demo's node."""
    roots = {"GPUHOOK_DRIVER_ROOT": made.node.driver_root, "GPUHOOK_DEV_ROOT": made.node.dev_root}
    lines = [f"export {name}='{value}'" for name, value in {**made.env, **roots}.items()]
    path = f'export PATH="{made.bindir}:$PATH"'
    (made.place / "env").write_text("\n".join([path, *lines]) + "\n", encoding="utf-8")


def keep_bundle(place: Path) -> Path:
    """Make the bundle of a container without a GPU, for the reader to start; returns it."""
    root = roots.copy("debian", place / "notebook/root")
    # Without a cgroup of the tests': the runtime names one after the container.
    linux = {"cgroupsPath": None}
    return bundle(place / "notebook", root, ["sleep", "infinity"], linux=linux).path


def live_commands(made: Path) -> list[tuple[str, str]]:
    """Return commands to try with that container, and what each does."""
    return [
        (f"runc run -d --bundle {shown(made)} notebook", "a container without a GPU"),
        ("gpuhook attach notebook --device 0", "add a GPU"),
        ("gpuhook inspect notebook", "its devices, mounts and device rules"),
        ("gpuhook ps", "containers and their GPUs"),
        ("gpuhook ps --isolation", "how it shares the GPU, and what limits its memory"),
        ("gpuhook detach notebook --device 0", "remove the GPU"),
        ("runc delete --force notebook", "delete the container"),
    ]


def shown(path: Path) -> str:
    """Return a path relative to the working directory."""
    return os.path.relpath(path)
