# SPDX-License-Identifier: Apache-2.0
"""A Debian in a directory, with Python and container engines, as packages find a node."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.contract.build_cache import built
from tests.contract.debs import mirror
from tests.contract.runtimes import Result, run_command

# What gpuhook's packages need.
PYTHON: tuple[str, ...] = ("python3", "python3-click", "python3-jsonschema", "python3-structlog")
PYTHON += ("python3-tomlkit", "python3-yaml", "python3-grpcio", "python3-protobuf")
# Debian's archive has one script for all of its newer suites.
SCRIPT = "/usr/share/debootstrap/scripts/sid"
# Directories that dpkg, containerd and the machine write, with or without gpuhook.
STATE = ["dev", "etc/cni", "opt/containerd", "proc", "run", "sys", "tmp", "var/cache"]
STATE += ["var/lib/containerd", "var/lib/dpkg", "var/log"]
NEEDLESS = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale")

MOUNTS = """
set -e
mount --make-rprivate /
mount --bind "$0" "$0"
mount -t proc proc "$0/proc"
mount --rbind /sys "$0/sys"
mount --rbind /dev "$0/dev"
mount -t tmpfs tmpfs "$0/run"
for shown do mkdir -p "$0$shown"; mount --bind "$shown" "$0$shown"; done
cd "$0"
pivot_root . mnt
umount --lazy /mnt
echo ready
exec sleep infinity
"""


# Installs packages below the directory $0 with the apt of that Debian, and starts no service. A
# mirror can be some weeks behind.
INSTALL = """
set -e
mount --make-rprivate /
mount -t proc proc "$0/proc"
printf '#!/bin/sh\\nexit 101\\n' >"$0/usr/sbin/policy-rc.d"
chmod 755 "$0/usr/sbin/policy-rc.d"
chroot "$0" apt-get --quiet=2 --option Acquire::Check-Valid-Until=false update
chroot "$0" apt-get --quiet=2 install --yes --no-install-recommends "$@"
rm "$0/usr/sbin/policy-rc.d"
"""
ENV = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}


@dataclass(frozen=True)
class Release:
    """A suite of Debian, and the packages of a system besides Python and its libraries."""

    suite: str
    packages: tuple[str, ...]


BOOKWORM = Release("bookworm", ("containerd", "runc"))


@dataclass(frozen=True)
class DebianHost:
    """A Debian below `root`; `process` keeps its mount namespace."""

    root: Path
    process: int
    env: dict[str, str] = field(default_factory=dict)

    def command(self, *words: str) -> list[str]:
        """Return the command line that runs a command in the Debian."""
        return ["nsenter", "--mount", "--wd", "--target", str(self.process), *words]

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment of commands in the Debian."""
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return {"PATH": path, "HOME": "/root", "LC_ALL": "C.UTF-8", **self.env}

    def run(self, *words: str, env: Mapping[str, str] | None = None) -> Result:
        """Run a command in the Debian, and return its result."""
        return run_command(self.command(*words), {**self.variables, **(env or {})})

    def dpkg(self, verb: str, *words: str | Path) -> Result:
        """Call dpkg with archives of this machine."""
        given = []
        for word in words:
            if isinstance(word, Path):
                place = self.root / "tmp" / word.name
                shutil.copyfile(word, place)
                given.append(f"/tmp/{word.name}")
            else:
                given.append(word)
        return self.run("dpkg", verb, *given, env={"DEBIAN_FRONTEND": "noninteractive"})


@contextmanager
def debian_host(
    place: Path, shown: Path | None = None, env: Mapping[str, str] | None = None
) -> Iterator[DebianHost]:
    """Yield a writable Debian below `place`; `shown` is visible in it at the same path."""
    root = place / "debian"
    subprocess.run(["cp", "-a", "--reflink=auto", str(debian()), str(root)], check=True)
    words = [str(shown)] if shown else []
    command = ["unshare", "--mount", "sh", "-c", MOUNTS, str(root), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield DebianHost(root, process.pid, dict(env or {}))
        finally:
            process.kill()
    shutil.rmtree(root)


def debian(release: Release = BOOKWORM) -> Path:
    """Return the root of a Debian, built once, that nothing writes to."""

    def build(place: Path) -> None:
        root = place / "root"
        command = ["debootstrap", "--variant=minbase", release.suite, str(root), mirror(), SCRIPT]
        _require(run_command(command, ENV))
        shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
        install = ["unshare", "--mount", "sh", "-c", INSTALL, str(root), *PYTHON, *release.packages]
        _require(run_command(install, ENV))
        for directory in NEEDLESS:
            shutil.rmtree(root / directory)
            (root / directory).mkdir()

    recipe = f"{release} {PYTHON} {INSTALL} {mirror()}"
    return built(f"debian-{release.suite}", recipe, build) / "root"


def _require(done: Result) -> None:
    assert done.rc == 0, done.stdout[-2000:] + done.stderr[-2000:]
