# SPDX-License-Identifier: Apache-2.0
"""Hosts whose driver is not in `/`: installation, CDI spec, containers, uninstallation.

The host is a directory with runc, and a simulated node's driver as a driver container has it. Its
/proc is that of this machine, with the files of the simulated driver over it.
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
# Directories that change while containers run.
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
# In the plugin's pod, the driver root of the host is mounted at /driver-root.
POD_RUNS = (
    'for d in dev proc; do mount --rbind /$d "$0/$d"; done;'
    ' mount --bind "$1/kernel/proc/driver" "$0/proc/driver";'
    ' mount --bind "$1/kernel/proc/devices" "$0/proc/devices";'
    ' mount --bind "$1$NVIDIA_DRIVER_ROOT" "$0/driver-root"; root=$0; shift;'
    ' exec chroot "$root" "$@"'
)


@pytest.fixture
def host_with_driver_at(tmp_path: Path) -> Host:
    """Return a function that makes a host with the driver in each of these directories."""

    def make_host(*driver_roots: str) -> Path:
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

    return make_host


def on_host(host: Path, *words: str, **env: str) -> Result:
    """Run `words` with the host's root as root."""
    command = ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", HOST_RUNS, str(host), *words]
    env = {"PATH": "/usr/bin:/usr/sbin", **env}
    return run_command(command, env)


def install(unpacked: Path, host: Path, *options: str) -> None:
    words = ("install", "--host-root", "/host", "--engine", "none")
    assert "installed" in gpuhook(unpacked, host, *words, *options)


def run_container(host: Path) -> Result:
    """Run a container that gets all GPUs, and prints what it has of them."""
    if not (host / "container").exists():
        roots.copy("debian", host / "container/root")
    script = "ls /dev/nvidia0 && /sbin/ldconfig -p | grep -c libcuda.so.1"
    env = ["NVIDIA_VISIBLE_DEVICES=all"]
    bundle(host / "container", Path("/container/root"), ["/bin/sh", "-c", script], env)
    words = ("--root", "/run/state", "run", "--bundle", "/container", "driver-root-test")
    return on_host(host, f"{BIN}/gpuhook-runtime", *words)


def persistent_files(host: Path) -> dict[str, tuple[object, ...]]:
    """Return the files of the host that remain after containers and a boot."""
    files = roots.listing(host)
    return {path: one for path, one in files.items() if path.split("/")[0] not in VOLATILE}


def spec(host: Path) -> str:
    return (host / "run/cdi/nvidia.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("root", [OPERATOR, GKE])
def test_driver_in_a_known_directory_is_found(
    root: str, unpacked: Path, host_with_driver_at: Host
) -> None:
    """The first container causes its spec to be written; uninstall restores the host's files."""
    host = host_with_driver_at(root)
    before = persistent_files(host)
    install(unpacked, host)
    ran = run_container(host)
    assert ran.rc == 0, ran.stderr
    assert ran.stdout.split() == ["/dev/nvidia0", "1"]
    assert f"hostPath: {root}/" in spec(host)
    again = on_host(host, f"{BIN}/gpuhook", "refresh")
    assert "unchanged" in again.stdout, again.stderr
    gpuhook(unpacked, host, "uninstall", "--host-root", "/host", "--force")
    assert persistent_files(host) == before


def test_driver_container_is_found_after_the_installation(
    unpacked: Path, host_with_driver_at: Host
) -> None:
    """A failed search is not recorded: the next container finds a driver that started since."""
    host = host_with_driver_at(OPERATOR)
    os.rename(host / OPERATOR[1:], host / "root/driver")
    install(unpacked, host)
    failed = on_host(host, f"{BIN}/gpuhook", "refresh")
    assert failed.rc == 1
    assert "GH1200" in failed.stderr
    os.rename(host / "root/driver", host / OPERATOR[1:])
    ran = run_container(host)
    assert ran.rc == 0, ran.stderr
    assert f"hostPath: {OPERATOR}/" in spec(host)


def test_driver_in_the_root_directory_wins(unpacked: Path, host_with_driver_at: Host) -> None:
    host = host_with_driver_at(OPERATOR)
    shutil.copytree(host / OPERATOR[1:] / "usr/lib", host / "usr/lib", dirs_exist_ok=True)
    install(unpacked, host)
    done = on_host(host, f"{BIN}/gpuhook", "refresh", GPUHOOK_DEV_ROOT=OPERATOR)
    assert done.rc == 0, done.stderr
    assert "hostPath: /usr/lib/" in spec(host)
    assert f"hostPath: {OPERATOR}/usr" not in spec(host)


def test_driver_of_the_operator_wins_with_a_warning(
    unpacked: Path, host_with_driver_at: Host
) -> None:
    """Of two drivers the GPU Operator's applies; a warning names both directories."""
    host = host_with_driver_at(OPERATOR)
    shutil.copytree(host / OPERATOR[1:] / "usr/lib", host / GKE[1:] / "usr/lib", symlinks=True)
    install(unpacked, host)
    done = on_host(host, f"{BIN}/gpuhook", "refresh")
    assert done.rc == 0, done.stderr
    assert f"hostPath: {OPERATOR}/" in spec(host)
    assert GKE not in spec(host)
    (warning,) = {line for line in done.stderr.splitlines() if GKE in line}
    assert OPERATOR in warning
    assert "driver.root" in warning


def test_driver_root_of_the_installation_applies(unpacked: Path, host_with_driver_at: Host) -> None:
    """install --driver-root applies until the host's settings name another driver root."""
    root = "/srv/driver"
    host = host_with_driver_at(root)
    before = persistent_files(host)
    install(unpacked, host, "--driver-root", root)
    ran = run_container(host)
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
    assert persistent_files(host) == before


def test_changed_driver_root_makes_the_spec_stale(
    unpacked: Path, host_with_driver_at: Host
) -> None:
    """A second installation changes the driver root, and the next refresh uses it."""
    host = host_with_driver_at(OPERATOR)
    shutil.copytree(host / OPERATOR[1:] / "usr/lib", host / "srv/driver/usr/lib", symlinks=True)
    install(unpacked, host)
    assert on_host(host, f"{BIN}/gpuhook", "refresh").rc == 0
    assert f"hostPath: {OPERATOR}/" in spec(host)
    install(unpacked, host, "--driver-root=/srv/driver", f"--dev-root={OPERATOR}")
    shown = on_host(host, f"{BIN}/gpuhook", "config", "show", "--origin").stdout
    assert "/srv/driver" in shown
    done = on_host(host, f"{BIN}/gpuhook", "refresh")
    assert done.rc == 0, done.stderr
    assert "hostPath: /srv/driver/usr/lib" in spec(host)


def test_commands_in_the_plugins_container_use_its_driver_root(
    unpacked: Path, host_with_driver_at: Host
) -> None:
    """Commands find the driver below the container's driver root, and gpuhook in the image."""
    host = host_with_driver_at(OPERATOR)
    (unpacked / "driver-root").mkdir()
    env = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "NVIDIA_DRIVER_ROOT": OPERATOR}
    env["CONTAINER_DRIVER_ROOT"] = "/driver-root"

    def call(*words: str) -> Result:
        command = ["unshare", "--mount", "sh", "-c", POD_RUNS, str(unpacked), str(host)]
        command += ["/usr/bin/gpuhook", *words]
        return run_command(command, env)

    inventory = call("inventory")
    assert "Tesla T4" in inventory.stdout, inventory.stderr
    diagnosis = call("doctor", "--checks", "driver.libraries,driver.files,installation.launchers")
    assert diagnosis.rc == 0, diagnosis.stdout
