# SPDX-License-Identifier: Apache-2.0
"""A Debian release that systemd has booted, with gpuhook's packages and simulated GPUs in place.

systemd-nspawn boots it, and needs no systemd on the machine. The node has its own namespaces. Its
cgroups are version 2, without controllers if the machine has bound them to version 1: systemd and
container runtimes attach their device programs, and limit no memory and no CPU.

The unit `simulated-driver` stands for the kernel module: /proc and /sys have what the driver shows.
The device nodes are missing at boot: gpuhook-devices creates them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.inventory.inventory import Node
from tests.contract import package_builds
from tests.contract.compiled import memlock
from tests.contract.debian_host import DebianHost, Release, debian
from tests.contract.runtimes import CGROUPS, Result, run_command
from tests.engines.engine_node import STORAGE, EngineNode
from tests.engines.node_process import first_process, has_ended, node_process
from tests.engines.releases import RELEASES
from tests.simulated import changes
from tests.simulated.node import SimulatedNode, make_node
from tests.waiting import eventually

BOOTED = {
    suite: Release(suite, (*release.packages, "systemd-sysv", "udev", "kmod", "sudo", "jq"))
    for suite, release in RELEASES.items()
}
GPUS = "/srv/gpus"
MODULES = ("nvidia", "nvidia_modeset", "nvidia_uvm")
DRIVER = f"""[Unit]
Description=Simulated kernel module of the GPU driver
DefaultDependencies=no
Before=sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -e {GPUS}/load
"""
# The machine's devices remain: systemd looks up the names of its rules in /proc/devices.
LOAD = f"""
cd {GPUS}
sed '1r majors' /proc/devices >/run/devices
mount --bind /run/devices /proc/devices
mount --bind proc/driver /proc/driver
mount --bind sys/bus/pci/devices /sys/bus/pci/devices
mount -o remount,rw /sys
mkdir -p /sys/module
mount --bind sys/module /sys/module
mount -o remount,ro /sys
"""
# A service with ProtectControlGroups gets a new /proc from systemd 252. A real driver is in each.
IN_SERVICES = f"""[Service]
BindReadOnlyPaths=/run/devices:/proc/devices {GPUS}/proc/driver:/proc/driver
"""
# crun 1.8 raises RLIMIT_MEMLOCK, which the machine may forbid: "setrlimit (RLIM_MEMLOCK)".
CRUN = f"""#!/bin/sh
LD_PRELOAD={GPUS}/memlock.so exec /usr/bin/crun.real "$@"
"""
BOOT = f"""
set -e
root=$1 gpus=$2 profile=$3 packages=$4 cgroup=$5 log=$6
shift 6
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mount -t overlay overlay -o "$1" "$root"
cp -a "$gpus/usr/." "$root/usr/"
ln -sf "{GPUS}$profile" "$root$profile"
cp "$gpus/simulated-driver.service" "$root/etc/systemd/system/"
mkdir "$root/etc/systemd/system/gpuhook-.service.d"
cp "$gpus/in-services.conf" "$root/etc/systemd/system/gpuhook-.service.d/"
if [ -e "$gpus/memlock.so" ]; then
    mv "$root/usr/bin/crun" "$root/usr/bin/crun.real"
    install -m 755 "$gpus/crun" "$root/usr/bin/crun"
fi
modules=$root/lib/modules/$(uname -r)
mkdir -p "$modules" "$root/etc/systemd/system/sysinit.target.wants"
ln -s ../simulated-driver.service "$root/etc/systemd/system/sysinit.target.wants/"
echo kernel/drivers/video/nvidia.ko >"$modules/modules.builtin"
: >"$modules/modules.order"
chroot "$root" depmod 2>/dev/null
chroot "$root" ldconfig
mount --bind "$packages" "$root/mnt"
chroot "$root" sh -c 'for deb in /mnt/*.deb; do case $deb in
    *compat*) ;; *) set -- "$@" "$deb" ;; esac; done; dpkg --install "$@"' sh >"$log" 2>&1
umount "$root/mnt"
shift
echo $$ >"$cgroup/cgroup.procs"
exec "$@" >>"$log" 2>&1
"""


@dataclass(frozen=True)
class BootedDebian(DebianHost):
    """A Debian whose first process is systemd; commands run in a transient service of it."""

    def command(self, *words: str) -> list[str]:
        """Return the command line that runs a command as a service."""
        run = ["systemd-run", "--quiet", "--pipe", "--wait", "--collect"]
        run += ["--property=KillMode=process"]
        run += [f"--setenv={name}={value}" for name, value in self.variables.items()]
        return self.inside(*run, "--", *words)

    def inside(self, *words: str) -> list[str]:
        """Return the command line that runs a command in the namespaces of systemd."""
        return ["nsenter", "--all", "--wd", "--target", str(self.process), *words]


@dataclass(frozen=True)
class BootedNode(EngineNode):
    """A node that systemd has booted; `facts` are those of its GPUs now."""

    def state(self) -> str:
        """Return the state of the system: "running" if no unit has failed."""
        command = BootedDebian(self.debian.root, self.debian.process).inside(
            "systemctl", "is-system-running"
        )
        return run_command(command, self.debian.variables).stdout.strip()

    def show(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.check("systemctl", "show", "--property", name, "--value", "--", unit).strip()

    def become(self, facts: Node) -> None:
        """Give the node these GPUs and MIG instances, without their device nodes."""
        changes.become(self.gpus, facts)
        _write_module(self.gpus)

    def install(self, version: str = "") -> Result:
        """Install the packages of this release, or of another one, with dpkg."""
        for package in _packages(version):
            shutil.copyfile(package, self.path("/tmp") / package.name)
        return self.run("sh", "-c", "dpkg --install /tmp/*.deb; rc=$?; rm /tmp/*.deb; exit $rc")


@contextmanager
def booted_node(suite: str, place: Path, profile: str = "a100-mig") -> Iterator[BootedNode]:
    """Yield a booted node of the release below `place`, which is removed in the end."""
    gpus = make_node(place / "gpus", replace(dump_file.load(profile), masks_params=False))
    _write_module(gpus)
    if suite == "bookworm":
        shutil.copy(memlock(), gpus.host_root)
    for name in ("root", "upper", "work"):
        (place / name).mkdir()
    cgroup = _cgroup_v2() / f"gpuhook-booted-{uuid4().hex[:12]}"
    cgroup.mkdir()
    lower, upper, work = debian(BOOTED[suite]), place / "upper", place / "work"
    root, log = place / "root", place / "log"
    words = [str(root), gpus.host_root, gpus.nvml_profile.removeprefix(gpus.host_root)]
    words += [str(package_builds.built()), str(cgroup), str(log)]
    words += [f"lowerdir={lower},upperdir={upper},workdir={work}", *_nspawn(root, gpus)]
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
    env |= {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1", "SYSTEMD_SECCOMP": "0"}
    env |= {"DEBIAN_FRONTEND": "noninteractive"}
    command = ["unshare", "--mount", "sh", "-c", BOOT, "sh", *words]
    with node_process(command, env, place, cgroup) as (pid, _):
        eventually(lambda: has_ended(pid) or _has_booted(pid), "systemd")
        assert not has_ended(pid), log.read_text(encoding="utf-8")
        node = BootedNode(BootedDebian(root, first_process(pid)), BOOTED[suite], gpus)
        eventually(lambda: node.state() in ("running", "degraded"), "the end of the boot")
        yield node


def _nspawn(root: Path, gpus: SimulatedNode) -> list[str]:
    command = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot"]
    command += ["--private-network", "--capability=all", "--console=pipe"]
    command += [f"--directory={root}", f"--bind={gpus.host_root}:{GPUS}"]
    return command + [f"--tmpfs={path}" for path in STORAGE if path != "/tmp"]


def _write_module(gpus: SimulatedNode) -> None:
    """Write what the unit needs, and the files that only a whole node has."""
    root = Path(gpus.host_root)
    majors = "".join(f"{major:3} {name}\n" for name, major in gpus.node.majors.items())
    texts = {"majors": majors, "load": LOAD, "simulated-driver.service": DRIVER}
    texts |= {"in-services.conf": IN_SERVICES, "crun": CRUN}
    texts |= {f"sys/module/{name}/initstate": "live\n" for name in MODULES}
    for device in (root / "sys/bus/pci/devices").iterdir():
        texts |= {f"{device.relative_to(root)}/vendor": "0x10de\n"}
        texts |= {f"{device.relative_to(root)}/class": "0x030200\n"}
        with suppress(FileExistsError):
            (device / "driver").symlink_to("/sys/bus/pci/drivers/nvidia")
    for name, text in texts.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


def _packages(version: str) -> list[Path]:
    found = sorted(package_builds.built(version).glob("*.deb"))
    return [package for package in found if "compat" not in package.name]


def _cgroup_v2() -> Path:
    """Return the directory of the machine's cgroup v2."""
    return CGROUPS if (CGROUPS / "cgroup.controllers").exists() else CGROUPS / "unified"


def _has_booted(pid: int) -> bool:
    """Return whether systemd answers."""
    with suppress(ValueError, FileNotFoundError):
        host = BootedDebian(Path("/"), first_process(pid))
        done = run_command(host.inside("systemctl", "is-system-running"), host.variables)
        return done.stdout.strip() in ("initializing", "starting", "running", "degraded")
    return False
