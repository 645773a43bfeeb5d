# SPDX-License-Identifier: Apache-2.0
"""Uninstall on a host whose containerd has an unusual state directory.

The host is a directory with containerd, runc and busybox. The tree has a launcher that executes
runc, as gpuhook-runtime does for a container that exists.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click.testing
import pytest

from gpuhook.cli import main
from gpuhook.install import runtime_tree
from tests.contract import roots
from tests.contract.runtimes import Result, run_command
from tests.waiting import eventually

# runc requires that its root directory is a mount.
CHROOT = (
    'mount --bind "$0" "$0"; for d in dev sys; do mount --rbind /$d "$0/$d"; done;'
    ' mount -t proc proc "$0/proc"; exec /usr/sbin/chroot "$0" "$@"'
)
# All processes end with the first one of their pid namespace.
UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "busybox")
RUNTIME = "/opt/gpuhook/bin/gpuhook-runtime"
STATE = "/srv/state"
USUAL = "/etc/containerd/config.toml"


def config_of(state: str) -> str:
    """Return containerd's configuration; `state` is its second line."""
    return f'version = 2\n{state}\nroot = "/srv/root"\n[grpc]\naddress = "/srv/sock"\n'


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return the host's root directory."""
    made = tmp_path / "host"
    for name in ("etc/containerd", "dev", "proc", "sys", "run", "tmp", "srv", "rootfs/bin", "bin"):
        (made / name).mkdir(parents=True)
    roots.copy_programs(made, *PROGRAMS)
    for place in (made / "bin", made / "rootfs/bin"):
        shutil.copy2("/usr/bin/busybox", place / "sh")
        shutil.copy2("/usr/bin/busybox", place / "sleep")
    return made


@pytest.fixture
def small_tree(tmp_path: Path) -> Path:
    """Return a runtime tree whose wrapper is runc."""
    made = tmp_path / "tree"
    (made / "launchers/bin").mkdir(parents=True)
    for name in ("gpuhook-runtime", "gpuhook-hook", "gpuhook-prestart"):
        calls = f'exec {shutil.which("runc")} "$@"' if name == "gpuhook-runtime" else ""
        (made / "launchers/bin" / name).write_text(f"#!/bin/sh\n{calls}\n", encoding="utf-8")
    described = {"schema": runtime_tree.SCHEMA, "version": "1.0", "digest": "a" * 64}
    (made / "tree.json").write_text(json.dumps(described), encoding="utf-8")
    return made


def in_host(host: Path, *words: str) -> list[str]:
    return [*UNSHARE, "/bin/sh", "-c", CHROOT, str(host), *words]


def ctr(host: Path, *words: str) -> Result:
    command = in_host(host, "/usr/bin/ctr", "--address", "/srv/sock", *words)
    return run_command(command)


@contextmanager
def containerd(host: Path, *options: str) -> Iterator[None]:
    """Run the host's containerd, and end its containers with it."""
    with (host / "tmp/log").open("w") as log:
        command = in_host(host, "/usr/bin/containerd", *options)
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            eventually(lambda: ctr(host, "version").rc == 0)
            yield
        finally:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            for child in children.read_text(encoding="ascii").split():
                os.kill(int(child), signal.SIGKILL)
            process.wait()


def gpuhook(command: str, host: Path, *words: str) -> click.testing.Result:
    """Run the command, which must succeed."""
    words = (command, "--host-root", str(host), *words)
    done = click.testing.CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    return done


@pytest.mark.parametrize(
    ("files", "config", "options"),
    [
        ({USUAL: config_of(f'state = "{STATE}"')}, "", []),
        (
            {
                "/srv/c.toml": config_of('imports = ["/srv/d/*.toml"]'),
                "/srv/d/1.toml": f'version = 2\nstate = "{STATE}"\n',
            },
            "/srv/c.toml",
            ["--config", "/srv/c.toml"],
        ),
        ({USUAL: config_of("")}, "", ["--state", STATE]),
    ],
    ids=["usual file", "imported file", "command line"],
)
def test_container_can_be_stopped_after_uninstall(
    host: Path, small_tree: Path, files: dict[str, str], config: str, options: list[str]
) -> None:
    """The shim calls gpuhook-runtime for exec, kill and delete, also after a second uninstall."""
    for path, text in files.items():
        (host / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (host / path[1:]).write_text(text, encoding="utf-8")
    words = ["--config", config] if config else []
    gpuhook("install", host, "--tree", str(small_tree), "--engine", "containerd", *words)
    with containerd(host, *options):
        run = ["run", "--detach", "--null-io", "--runc-binary", RUNTIME, "--rootfs", "/rootfs"]
        started = ctr(host, *run, "c1", "/bin/sleep", "1000")
        assert started.rc == 0, started.stderr
        assert "gpuhook" not in next((host / "srv/state").rglob("config.json")).read_text("utf-8")
        for _ in range(2):
            gpuhook("uninstall", host)
            done = ctr(host, "task", "exec", "--exec-id", "e", "c1", "/bin/sh", "-c", "exit 7")
            assert (done.rc, done.stderr) == (7, "")
        killed = ctr(host, "task", "kill", "--signal", "KILL", "c1")
        assert killed.rc == 0, killed.stderr
        eventually(lambda: "STOPPED" in ctr(host, "task", "ls").stdout)
        deleted = ctr(host, "task", "delete", "c1")
        assert "gpuhook-runtime" not in deleted.stderr
        gpuhook("uninstall", host)
        assert not (host / "opt/gpuhook").exists()
    assert (host / next(iter(files))[1:]).read_text(encoding="utf-8") == next(iter(files.values()))
