# SPDX-License-Identifier: Apache-2.0
"""Debian releases without Python, with runc: nodes on which only gpuhook's own Python runs.

Each is made by debootstrap, once, and nothing writes to it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.contract import roots
from tests.contract.build_cache import built
from tests.contract.bundles import bundle
from tests.contract.debian_host import ENV, NEEDLESS, SCRIPT
from tests.contract.debs import mirror
from tests.contract.runtimes import Result, run_command
from tests.simulated.node import SimulatedNode

SUITES = ("bullseye", "bookworm", "trixie", "sid")
# An empty layer above the release; what mounts a container's root needs to be on a mount.
ENTER = """
set -e
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
for name in dev proc sys; do mount --rbind "/$name" "$2/root/$name"; done
mount -t tmpfs tmpfs "$2/root/run"
for name in $3; do mkdir -p "$2/root$name"; mount --rbind "$name" "$2/root$name"; done
cd "$2/root"
pivot_root . mnt
umount --lazy /mnt
echo ready
exec sleep infinity
"""
PATH = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/root"}


def minimal_root(suite: str) -> Path:
    """Return the root of a release: what its packages require, and runc."""

    def build(place: Path) -> None:
        root = place / "root"
        command = ["debootstrap", "--variant=minbase", "--include=runc", suite, str(root)]
        done = run_command([*command, mirror(), SCRIPT], ENV)
        assert done.rc == 0, done.stdout[-2000:] + done.stderr[-2000:]
        for directory in NEEDLESS:
            subprocess.run(["rm", "-rf", str(root / directory)], check=True)
            (root / directory).mkdir()

    recipe = f"minbase, runc, without {NEEDLESS}, {mirror()}"
    return built(f"minimal-{suite}", recipe, build) / "root"


class MinimalNode:
    """A release with an empty layer above it; its mount namespace is that of a process."""

    def __init__(self, root: Path, process: int) -> None:
        self.root, self.process = root, process

    def run(self, *words: str, env: dict[str, str] | None = None) -> Result:
        """Run a command in it."""
        enter = ["nsenter", "--mount", "--root", "--wd", "--target", str(self.process)]
        return run_command([*enter, *words], PATH | (env or {}))

    def check(self, *words: str, env: dict[str, str] | None = None) -> str:
        """Run a command that must succeed, and return its output."""
        done = self.run(*words, env=env)
        assert done.rc == 0, (words, done)
        return done.stdout


@contextmanager
def minimal_node(suite: str, place: Path, shown: Path | None = None) -> Iterator[MinimalNode]:
    """Yield a writable release below `place`; `shown` is visible in it at the same path."""
    for name in ("upper", "work", "root"):
        (place / name).mkdir(parents=True)
    words = [str(minimal_root(suite)), str(place), str(shown or "")]
    command = ["unshare", "--mount", "sh", "-c", ENTER, "sh", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield MinimalNode(place / "upper", process.pid)
        finally:
            process.kill()


def require_gpu_in_container(
    node: MinimalNode, gpus: SimulatedNode, programs: str, place: Path
) -> None:
    """Run a container of the node's runc that requests a GPU, by gpuhook-runtime in `programs`.

    `place` is an empty path for its bundle, which the node sees.
    """
    roots.copy("debian", place / "root")
    script = "ls /dev/nvidia0 && /sbin/ldconfig -p | grep -c libcuda.so.1"
    bundle(place, place / "root", ["/bin/sh", "-c", script], ["NVIDIA_VISIBLE_DEVICES=0"])
    words = ["--root", "/run/state", "run", "--bundle", str(place), f"minimal-{os.getpid()}"]
    env = {"GPUHOOK_HOST_ROOT": gpus.host_root}
    spec = ["--output-file", "/var/run/cdi/nvidia.yaml"]
    node.check(f"{programs}/gpuhook", "generate-cdi", *gpus.options, *spec, env=env)
    found = node.check(f"{programs}/gpuhook-runtime", *words, env=env)
    assert found.split() == ["/dev/nvidia0", "1"]
