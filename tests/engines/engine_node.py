# SPDX-License-Identifier: Apache-2.0
"""A node of a Debian release: its engines, gpuhook's packages, and simulated GPUs in place.

Unlike an installation of the contract tests, no variable and no option points gpuhook at the node:
the driver's files are in the root file system, its nodes in /dev, its entries in /proc. The node
has its own mount and PID namespaces, and the network and the cgroups of the machine.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from gpuhook.vendors.nvidia.inventory import dump_file
from tests.contract import compiled, package_builds, roots
from tests.contract.debian_host import DebianHost, Release, debian
from tests.contract.runtimes import SECONDS, Result
from tests.engines.node_process import first_process, node_process
from tests.simulated.node import SimulatedNode, make_node
from tests.waiting import eventually

# Directories in memory: overlay storage cannot be on an overlay.
STORAGE = ("/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/home", "/tmp")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "fuse", "ptmx")
MOUNTS = """
set -e
mount --make-rprivate /
root=$1 gpus=$2
mount -t overlay overlay -o "lowerdir=$3,upperdir=$4,workdir=$5" "$root"
mount -t proc proc "$root/proc"
mount --bind "$gpus/proc/devices" "$root/proc/devices"
mount -t tmpfs tmpfs "$root/proc/driver"
cp -a "$gpus/proc/driver/." "$root/proc/driver/"
if [ -e "$gpus/sys/module/amdgpu" ]; then
    mount -t overlay sys -o "lowerdir=$gpus/sys:/sys" "$root/sys"
    mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
else
    mount --rbind /sys "$root/sys"
    mount --bind "$gpus/sys/bus/pci/devices" "$root/sys/bus/pci/devices"
fi
umount "$root/sys/fs/cgroup/unified" 2>/dev/null || : # crun refuses the hybrid layout
# A user namespace may mount proc and sysfs if it sees one without mounts on it.
mkdir "$root/media/proc" "$root/media/sys"
mount -t proc proc "$root/media/proc"
mount -t sysfs sysfs "$root/media/sys"
mount -t tmpfs -o mode=755 dev "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm" "$root/dev/mqueue"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs shm "$root/dev/shm"
shift 5
for device do cp -a "/dev/$device" "$root/dev/" 2>/dev/null || :; done
chmod 666 "$root/dev/fuse"
ln -sf pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
cp -a "$gpus/dev/." "$root/dev/"
cp -a "$gpus/usr/." "$root/usr/"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
for storage in $STORAGE; do
    mkdir -p "$root$storage"
    mount -t tmpfs tmpfs "$root$storage"
done
chmod 1777 "$root/tmp"
cd "$root"
pivot_root . mnt
umount --lazy /mnt
ldconfig
mount --make-rshared /
echo ready
exec sleep infinity
"""


# A mount namespace with cgroup v2 at $1; $2 is preloaded (see programs/memlock.c).
CGROUP_V2 = """
set -e
umount --recursive $1
mount -t cgroup2 cgroup2 $1
echo "$2" >/run/memlock
[ -e /etc/ld.so.preload ] || : >/etc/ld.so.preload
mount --bind /run/memlock /etc/ld.so.preload
echo ready
exec sleep infinity
"""


@dataclass(frozen=True)
class EngineNode:
    """A node whose commands run in `debian`; `gpus` has the facts of its simulated GPUs."""

    debian: DebianHost
    release: Release
    gpus: SimulatedNode

    def run(self, *words: str) -> Result:
        """Run a command on the node."""
        return self.debian.run(*words)

    def check(self, *words: str) -> str:
        """Run a command that must succeed, and return its standard output."""
        done = self.run(*words)
        assert done.rc == 0, done
        return done.stdout

    @contextmanager
    def daemon(self, command: Sequence[str], answers: Callable[[], bool]) -> Iterator[Path]:
        """Run a daemon on the node, and stop it in the end; yield its log once it answers.

        Its first process has a parent other than `nsenter`, which does not pass on signals.
        """
        name = Path(command[0]).name
        log, pid = (f"/var/log/{name}.{ending}" for ending in ("log", "pid"))
        words = ["sh", "-c", f'echo $$ >{pid}; exec "$@" >{log} 2>&1', "sh", *command]
        process = subprocess.Popen(self.debian.command(*words), env=self.debian.variables)
        try:
            eventually(lambda: process.poll() is not None or answers(), f"an answer of {name}")
            assert process.poll() is None, self.check("cat", log)
            yield self.path(log)
        finally:
            self.run("sh", "-c", f"kill $(cat {pid})")
            process.wait(SECONDS)

    def path(self, name: str) -> Path:
        """Return the path here of a file of the node."""
        return Path(f"/proc/{self.debian.process}/root{name}")

    def device(self, index: int) -> str:
        """Return the device node of the GPU of this index; its minor can be another number."""
        return f"/dev/nvidia{self.gpus.node.gpus[index].minor}"

    def image_root(self, kind: str, name: str) -> str:
        """Copy a root file system of roots.KINDS to the node, and return its path there."""
        place = f"/srv/{name}"
        roots.copy(kind, self.path(place))
        return place

    def version(self, *words: str) -> str:
        """Return the first number with dots that a command prints."""
        printed = self.check(*words)
        found = re.search(r"\d+(\.\d+)+", printed)
        assert found, printed
        return found[0]


Node = TypeVar("Node", bound=EngineNode)


@contextmanager
def engine_node(release: Release, place: Path, profile: str = "h100x8") -> Iterator[EngineNode]:
    """Yield a node of the release, with gpuhook's packages and a CDI spec.

    It is in the directory `place`, which is removed in the end.
    """
    # A container's /proc is the kernel's, without the driver: gpuhook has no file to mask there.
    gpus = make_node(place / "gpus", replace(dump_file.load(profile), masks_params=False))
    with started(release, place) as host:
        node = with_packages(EngineNode(host, release, gpus))
        node.check("gpuhook", "generate-cdi", "--output-file", "/var/run/cdi/nvidia.yaml")
        yield node


@contextmanager
def started(release: Release, place: Path) -> Iterator[DebianHost]:
    """Yield a host of the release, with the simulated hardware in `place`/gpus."""
    for name in ("root", "upper", "work"):
        (place / name).mkdir()
    words = [str(place / "root"), str(place / "gpus"), str(debian(release))]
    words += [str(place / "upper"), str(place / "work"), *DEVICES]
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", MOUNTS, "sh"]
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "STORAGE": " ".join(STORAGE)}
    with node_process([*command, *words], env, place) as (pid, process):
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield DebianHost(place / "root", first_process(pid))


@contextmanager
def on_cgroup(node: EngineNode, version: str) -> Iterator[EngineNode]:
    """Yield the node with cgroup v1 as it has it, or with cgroup v2 in its own mount namespace.

    crun raises a limit on v2 that some machines do not let it raise.
    """
    if version == "v1":
        yield node
        return
    preloaded = "/usr/lib/memlock.so"
    shutil.copyfile(compiled.memlock(), node.path(preloaded))
    words = ["unshare", "--mount", "sh", "-c", CGROUP_V2, "sh", "/sys/fs/cgroup", preloaded]
    command = node.debian.command(*words)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        inner = first_process(process.pid)
        try:
            yield replace(node, debian=replace(node.debian, process=inner))
        finally:
            os.kill(inner, signal.SIGKILL)


@contextmanager
def settings(node: EngineNode, text: str) -> Iterator[None]:
    """Give the node a /etc/gpuhook/config.yaml of this text meanwhile."""
    file = node.path("/etc/gpuhook/config.yaml")
    before = file.read_bytes() if file.exists() else None
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    try:
        yield
    finally:
        if before is None:
            file.unlink()
        else:
            file.write_bytes(before)


@contextmanager
def low_level_runtime(node: EngineNode, name: str, more: str = "") -> Iterator[str]:
    """Have gpuhook-runtime call this program, with further settings; yield name and version."""
    with settings(node, f"runtime: {{lowLevelRuntimes: [{name}]}}\n{more}"):
        yield f"{name} {node.version(name, '--version')}"


def with_packages(node: Node) -> Node:
    """Install gpuhook's packages on the node, and return it."""
    for package in sorted(package_builds.built().glob("*.deb")):
        if "compat" not in package.name:
            shutil.copyfile(package, node.path("/tmp") / package.name)
    node.check("sh", "-c", "dpkg --install /tmp/*.deb && rm /tmp/*.deb")
    return node
