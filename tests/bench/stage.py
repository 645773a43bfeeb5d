# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks run on: a simulated node with eight GPUs, an installation, bundles."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.contract import roots
from tests.contract.bundles import Bundle, bundle
from tests.simulated.node import SimulatedNode, make_node

REPOSITORY = Path(__file__).resolve().parents[2]
HOST_PROC = {
    "destination": "/proc",
    "type": "bind",
    "source": "/proc",
    "options": ["rbind", "rprivate"],
}


@dataclass(frozen=True)
class Stage:
    """Where everything is."""

    place: Path
    node: SimulatedNode
    runtime: str  # gpuhook-runtime
    specs: Path  # the CDI spec directory
    env: dict[str, str]  # of the runtime


def installed(place: Path) -> Path:
    """Install gpuhook below `place` with the system's Python and return its bin directory."""
    command = [sys.executable, str(REPOSITORY / "packaging/install.py"), "--prefix", str(place)]
    subprocess.run([*command, "--cli-python", sys.executable], check=True, capture_output=True)
    return place / "bin"


def stage(place: Path, profile: str = "h100x8", layout: str = "flat") -> Stage:
    """Build a stage below `place`: node, installation, CDI spec, settings."""
    bindir = installed(place / "prefix")
    node = make_node(place / "node", profile, layout=layout)  # type: ignore[arg-type]
    specs, state = place / "cdi", place / "state"
    for directory in (specs, state):
        directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", state], check=True)
    simulate_host(place, Path(node.host_root), specs)
    env = {
        "GPUHOOK_CONFIG": str(place / "config.yaml"),
        "GPUHOOK_HOST_ROOT": node.host_root,
        "GPUHOOK_STATE_DIR": str(state),
    }
    settings = {"cdi": {"specDirs": [str(specs)]}}
    (place / "config.yaml").write_text(json.dumps(settings), encoding="utf-8")
    generate = [str(bindir / "gpuhook"), "generate-cdi", *node.options]
    generate += [
        "--hook-path",
        str(bindir / "gpuhook-hook"),
        "--output",
        str(specs / "nvidia.yaml"),
    ]
    subprocess.run(generate, check=True, env={**os.environ, **env}, capture_output=True)
    return Stage(place, node, str(bindir / "gpuhook-runtime"), specs, env)


def simulate_host(place: Path, host_root: Path, specs: Path) -> None:
    """Make this mount namespace look like the node: parameters in /proc, CDI specs in /run/cdi.

    The container then has the file that the parameters hook covers. The unified cgroup hierarchy
    beside v1's goes: crun refuses that mixture.
    """
    driver = Path("/proc/driver")
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", driver], check=True)
    shutil.copytree(host_root / "proc/driver/nvidia", driver / "nvidia")
    (place / "no-cdi").mkdir()
    for source, target in ((specs, "/run/cdi"), (place / "no-cdi", "/etc/cdi")):
        os.makedirs(target, exist_ok=True)
        subprocess.run(["mount", "--bind", source, target], check=True)
    unified = Path("/sys/fs/cgroup/unified")
    if unified.is_mount():
        subprocess.run(["umount", unified], check=True)


def unmount_below(place: str) -> None:
    """Unmount what was mounted below `place`."""
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        targets = [line.split()[1] for line in mounts]
    for target in reversed(targets):
        if target.startswith(place + "/"):
            subprocess.run(["umount", target], check=True)


def gpu_bundle(stage: Stage, name: str, value: str = "all", **oci: Any) -> Bundle:
    """Return a bundle on a Debian root that asks for GPUs with all driver capabilities."""
    root = roots.copy("debian", stage.place / name / "root")
    memory = stage.place / name / "bundle"
    memory.mkdir()
    # Where engines keep bundles, below /run, is memory too.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", memory], check=True)
    env = [f"NVIDIA_VISIBLE_DEVICES={value}", "NVIDIA_DRIVER_CAPABILITIES=all"]
    made = bundle(stage.place / name / "bundle", root, ["sleep", "600"], env, **oci)
    config = made.config()
    config["mounts"] = [HOST_PROC, *(m for m in config["mounts"] if m["destination"] != "/proc")]
    made.write(config)
    return made


@contextmanager
def fresh(made: Bundle, command: Sequence[str], low_level: str) -> Iterator[Sequence[str]]:
    """Yield `command create` for a new container of the bundle as it was written.

    In the end the container is deleted with `low_level`, and config.json is what it was.
    """
    original = made.file.read_bytes()
    identity = f"gpuhook-bench-{uuid4().hex[:12]}"
    root = ["--root", str(made.path / "state")]
    try:
        yield [*command, *root, "create", "--bundle", str(made.path), identity]
    finally:
        subprocess.run([low_level, *root, "delete", "--force", identity], check=True)
        made.file.write_bytes(original)
