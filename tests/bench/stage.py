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
    simulate_params(Path(node.host_root))
    specs = place / "cdi"
    specs.mkdir()
    env = {
        "GPUHOOK_CONFIG": str(place / "config.yaml"),
        "GPUHOOK_HOST_ROOT": node.host_root,
        "GPUHOOK_STATE_DIR": str(place / "state"),
    }
    settings = {"cdi": {"specDirs": [str(specs)]}}
    (place / "config.yaml").write_text(json.dumps(settings), encoding="utf-8")
    generate = [str(bindir / "gpuhook"), "generate-cdi", *node.options]
    generate += ["--hook-path", str(bindir / "gpuhook-hook"), "--output", str(specs / "nvidia.yaml")]
    subprocess.run(generate, check=True, env={**os.environ, **env}, capture_output=True)
    return Stage(place, node, str(bindir / "gpuhook-runtime"), specs, env)


def simulate_params(host_root: Path) -> None:
    """Lay the node's driver parameters over this machine's /proc, in a private mount namespace.

    So the container has the file that the parameters hook covers.
    """
    driver = Path("/proc/driver")
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", driver], check=True)
    shutil.copytree(host_root / "proc/driver/nvidia", driver / "nvidia")


def gpu_bundle(stage: Stage, name: str, value: str = "all", **oci: object) -> Bundle:
    """Return a bundle on a Debian root that asks for GPUs with all driver capabilities."""
    root = roots.copy("debian", stage.place / name / "root")
    env = [f"NVIDIA_VISIBLE_DEVICES={value}", "NVIDIA_DRIVER_CAPABILITIES=all"]
    made = bundle(stage.place / name / "bundle", root, ["sleep", "600"], env, **oci)
    config = made.config()
    config["mounts"] = [HOST_PROC, *(m for m in config["mounts"] if m["destination"] != "/proc")]
    made.write(config)
    return made


@contextmanager
def fresh(made: Bundle, command: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield `command create` for a new container of the bundle as it was written; delete it after."""
    original = made.file.read_bytes()
    identity = f"gpuhook-bench-{uuid4().hex[:12]}"
    root = ["--root", str(made.path / "state")]
    try:
        yield [*command, *root, "create", "--bundle", str(made.path), identity]
    finally:
        if (made.path / "state" / identity).exists():
            low = [command[0] if "gpuhook" not in command[0] else "runc"]
            subprocess.run([*low, *root, "delete", "--force", identity], check=False)
        made.file.write_bytes(original)
