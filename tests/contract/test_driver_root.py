# SPDX-License-Identifier: Apache-2.0
"""A host whose driver is in another directory than `/`: installed, described, used, taken back.

The host is a directory with runc and the driver of a simulated node in the place of a driver
container. Its /proc is that of this machine, with the files of the simulated driver over it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract import roots
from tests.contract.bundles import bundle
from tests.contract.runtimes import Result, run_command
from tests.contract.test_image import gpuhook
from tests.simulated.node import make_node

OPERATOR, GKE = "/run/nvidia/driver", "/home/kubernetes/bin/nvidia"
PLACES = ("etc", "proc", "sys", "dev", "run", "tmp", "usr/bin", "opt", "root", "var")
# What changes while containers run.
VOLATILE = ("run", "tmp", "dev", "proc", "sys", "container")
BIN = "/opt/gpuhook/bin"
HOST_RUNS = (
    'mount --bind "$0" "$0"; for d in dev proc sys; do mount --rbind /$d "$0/$d"; done;'
    ' mount --bind "$0/kernel/proc/driver" "$0/proc/driver";'
    ' mount --bind "$0/kernel/proc/devices" "$0/proc/devices"; ln -sfn /run "$0/var/run";'
    ' exec /usr/sbin/chroot "$0" "$@"'
)

# The image takes a minute to build.
pytestmark = pytest.mark.thorough


Host = Callable[..., Path]
# Of the plugin's pod: the driver root of the host is mounted at /driver-root.
POD_RUNS = (
    'for d in dev proc; do mount --rbind /$d "$0/$d"; done;'
    ' mount --bind "$1/kernel/proc/driver" "$0/proc/driver";'
    ' mount --bind "$1/kernel/proc/devices" "$0/proc/devices";'
    ' mount --bind "$1$NVIDIA_DRIVER_ROOT" "$0/driver-root"; root=$0; shift;'
    ' exec chroot "$root" "$@"'
)


@pytest.fixture
def host_with(tmp_path: Path) -> Host:
    """Return a function that makes a host with the driver in each of some directories."""

    def made(*driver_roots: str) -> Path:
        host = tmp_path / "host"
        for name in PLACES:
            (host / name).mkdir(parents=True)
        (host / "var/run").symlink_to("/run")
        roots.copy_programs(host, "runc")
        for root in driver_roots:
            node = make_node(tmp_path / "node", "t4", layout="driver-container")
            (host / root[1:]).parent.mkdir(parents=True, exist_ok=True)
            os.rename(node.driver_root, host / root[1:])
        (host / "kernel").mkdir()
        os.rename(tmp_path / "node/proc", host / "kernel/proc")
        return host

    return made


def on_host(host: Path, *words: str, **env: str) -> Result:
    """Run `words` with the host's root as root."""
    command = ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", HOST_RUNS, str(host), *words]
    env = {"PATH": "/usr/bin:/usr/sbin", **env}
    return run_command(command, env)


def installed(unpacked: Path, host: Path, *options: str) -> None:
    words = ("install", "--host-root", "/host", "--engine", "none")
    assert "installed" in gpuhook(unpacked, host, *words, *options)


def container(host: Path) -> Result:
    """Run a container that gets all GPUs, and prints what it has of them."""
    if not (host / "container").exists():
        roots.copy("debian", host / "container/root")
    script = "ls /dev/nvidia0 && /sbin/ldconfig -p | grep -c libcuda.so.1"
    env = ["NVIDIA_VISIBLE_DEVICES=all"]
    bundle(host / "container", Path("/container/root"), ["/bin/sh", "-c", script], env)
    words = ("--root", "/run/state", "run", "--bundle", "/container", "driver-root-test")
    return on_host(host, f"{BIN}/gpuhook-runtime", *words)


def kept(host: Path) -> dict[str, tuple[object, ...]]:
    """Return what is on the host that outlives containers and a boot."""
    found = roots.listing(host)
    return {path: one for path, one in found.items() if path.split("/")[0] not in VOLATILE}


def spec(host: Path) -> str:
    return (host / "run/cdi/nvidia.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("root", [OPERATOR, GKE])
def test_a_driver_in_a_known_directory_is_found(root: str, unpacked: Path, host_with: Host) -> None:
    """The first container has its spec written; uninstalling gives the host's files back."""
    host = host_with(root)
    before = kept(host)
    installed(unpacked, host)
    ran = container(host)
    assert ran.rc == 0, ran.stderr
    assert ran.stdout.split() == ["/dev/nvidia0", "1"]
    assert f"hostPath: {root}/" in spec(host)
    again = on_host(host, f"{BIN}/gpuhook", "refresh")
    assert "unchanged" in again.stdout, again.stderr
    gpuhook(unpacked, host, "uninstall", "--host-root", "/host", "--force")
    assert kept(host) == before


def test_a_driver_container_that_starts_after_the_installation(
    unpacked: Path, host_with: Host
) -> None:
    """A failed search is not remembered: the next container after the driver finds it."""
    host = host_with(OPERATOR)
    os.rename(host / OPERATOR[1:], host / "root/driver")
    installed(unpacked, host)
    failed = on_host(host, f"{BIN}/gpuhook", "refresh")
    assert failed.rc == 1
    assert "GH1200" in failed.stderr
    os.rename(host / "root/driver", host / OPERATOR[1:])
    ran = container(host)
    assert ran.rc == 0, ran.stderr
    assert f"hostPath: {OPERATOR}/" in spec(host)


def test_a_driver_in_the_root_wins(unpacked: Path, host_with: Host) -> None:
    host = host_with(OPERATOR)
    shutil.copytree(host / OPERATOR[1:] / "usr/lib", host / "usr/lib", dirs_exist_ok=True)
    installed(unpacked, host)
    done = on_host(host, f"{BIN}/gpuhook", "refresh", GPUHOOK_DEV_ROOT=OPERATOR)
    assert done.rc == 0, done.stderr
    assert "hostPath: /usr/lib/" in spec(host)
    assert f"hostPath: {OPERATOR}/usr" not in spec(host)


def test_two_drivers(unpacked: Path, host_with: Host) -> None:
    """The operator's applies, and a warning names both directories and the setting."""
    host = host_with(OPERATOR)
    shutil.copytree(host / OPERATOR[1:] / "usr/lib", host / GKE[1:] / "usr/lib", symlinks=True)
    installed(unpacked, host)
    done = on_host(host, f"{BIN}/gpuhook", "refresh")
    assert done.rc == 0, done.stderr
    assert f"hostPath: {OPERATOR}/" in spec(host)
    assert GKE not in spec(host)
    (warning,) = {line for line in done.stderr.splitlines() if GKE in line}
    assert OPERATOR in warning
    assert "driver.root" in warning


def test_a_driver_root_of_the_installation(unpacked: Path, host_with: Host) -> None:
    """The host's programs use it until the host's own settings name another one."""
    root = "/srv/driver"
    host = host_with(root)
    before = kept(host)
    installed(unpacked, host, "--driver-root", root)
    ran = container(host)
    assert ran.rc == 0, ran.stderr
    assert ran.stdout.split() == ["/dev/nvidia0", "1"]
    assert f"hostPath: {root}/" in spec(host)
    os.rename(host / root[1:], host / "srv/other")
    (host / "etc/gpuhook").mkdir()
    settings = host / "etc/gpuhook/config.yaml"
    settings.write_text("driver: {root: /srv/other}\n", encoding="utf-8")
    done = on_host(host, f"{BIN}/gpuhook", "refresh")
    assert done.rc == 0, done.stderr
    assert "hostPath: /srv/other/" in spec(host)
    gpuhook(unpacked, host, "uninstall", "--host-root", "/host", "--force")
    assert settings.read_text(encoding="utf-8") == "driver: {root: /srv/other}\n"
    shutil.rmtree(settings.parent)
    os.rename(host / "srv/other", host / root[1:])
    assert kept(host) == before


def test_another_driver_root_makes_the_spec_stale(unpacked: Path, host_with: Host) -> None:
    """A second installation replaces the driver root, and the next refresh uses the new one."""
    host = host_with(OPERATOR)
    shutil.copytree(host / OPERATOR[1:] / "usr/lib", host / "srv/driver/usr/lib", symlinks=True)
    installed(unpacked, host)
    assert on_host(host, f"{BIN}/gpuhook", "refresh").rc == 0
    assert f"hostPath: {OPERATOR}/" in spec(host)
    installed(unpacked, host, "--driver-root=/srv/driver", f"--dev-root={OPERATOR}")
    shown = on_host(host, f"{BIN}/gpuhook", "config", "show", "--origin").stdout
    assert "/srv/driver" in shown
    done = on_host(host, f"{BIN}/gpuhook", "refresh")
    assert done.rc == 0, done.stderr
    assert "hostPath: /srv/driver/usr/lib" in spec(host)


def test_commands_in_the_container_of_the_plugin(unpacked: Path, host_with: Host) -> None:
    """They look below the container's driver root, and find the whole of gpuhook in the image."""
    host = host_with(OPERATOR)
    (unpacked / "driver-root").mkdir()
    env = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "NVIDIA_DRIVER_ROOT": OPERATOR}
    env["CONTAINER_DRIVER_ROOT"] = "/driver-root"

    def called(*words: str) -> Result:
        command = ["unshare", "--mount", "sh", "-c", POD_RUNS, str(unpacked), str(host)]
        command += ["/usr/bin/gpuhook", *words]
        return run_command(command, env)

    shown = called("inventory")
    assert "Tesla T4" in shown.stdout, shown.stderr
    found = called("doctor", "--checks", "driver.libraries,driver.files,installation.launchers")
    assert found.rc == 0, found.stdout
