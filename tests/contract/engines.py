# SPDX-License-Identifier: Apache-2.0
"""Real container engines with separate state: containerd (by ctr) and podman."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from tests.contract.runtimes import SECONDS, Result, launcher, run_command, runtime_environment
from tests.waiting import eventually

CDI_DIRECTORIES = ("/etc/cdi", "/run/cdi")
HOOKS_DIRECTORY = "/usr/share/containers/oci/hooks.d"
ULIMITS = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"]


@dataclass(frozen=True)
class Containerd:
    """A running containerd for tests."""

    place: Path
    prefix: tuple[str, ...]
    env: dict[str, str]

    def run(
        self,
        root: Path,
        args: Sequence[str] = ("/probe",),
        runtime: Path | str = "runc",
        env: Sequence[str] = (),
        options: Sequence[str] = (),
    ) -> Result:
        """Run a container with `ctr run --rootfs --runc-binary RUNTIME` and return its result.

        `runtime` is one path (see runtimes.launcher); `env` are NAME=VALUE of the container;
        `options` further options of `ctr run` (--mount, --annotation, --privileged, ...). If the
        runtime fails, containerd reports only the last error of its --log (JSON).
        """
        words = ["--rootfs", *options]
        for assignment in env:
            words += ["--env", assignment]
        return self._run([*words, str(root)], args, runtime)

    def run_spec(self, spec: Mapping[str, Any], runtime: Path | str = "runc") -> Result:
        """Run a container with `ctr run --config`: `spec` is its whole config.json."""
        file = self.place / f"{uuid4().hex}.json"
        file.write_text(json.dumps(spec), encoding="utf-8")
        return self._run(["--config", str(file)], (), runtime)

    def _run(self, words: Sequence[str], args: Sequence[str], runtime: Path | str) -> Result:
        """Run a container, twice if needed: containerd can lose the output of a short one."""
        own = ["run", "--rm", "--runc-binary", str(runtime), "--fifo-dir", str(self.place / "fifo")]

        def once() -> Result:
            return self.ctr(*own, *words, f"gpuhook-test-{uuid4().hex[:12]}", *args)

        done = once()
        return once() if done.rc == 0 and not done.stdout.endswith("\n") else done

    def ctr(self, *words: str) -> Result:
        """Call ctr with these arguments."""
        command = ["ctr", "--address", str(self.place / "sock"), *words]
        return run_command([*self.prefix, *command], {**os.environ, **self.env})


@contextmanager
def containerd(
    place: Path, engine: str = "runc", env: Mapping[str, str] | None = None
) -> Iterator[Containerd]:
    """Yield a containerd with its state in `place`, and stop it in the end.

    `engine` is the low-level runtime of its containers; `env` is the environment of runtimes.
    """
    around = runtime_environment(engine)
    config = place / "config.toml"
    place.mkdir(parents=True, exist_ok=True)
    config.write_text(_containerd_config(place), encoding="utf-8")
    own = {**around.env, **(env or {})}
    daemon = Containerd(place, (), own)
    command = [*around.prefix, "containerd", "--config", str(config)]
    env = {**os.environ, **own}
    with run_daemon(command, place / "log", lambda: daemon.ctr("version").rc == 0, env):
        yield daemon


@contextmanager
def run_daemon(
    command: Sequence[str | Path],
    log: Path,
    answers: Callable[[], bool],
    env: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """Start a daemon that writes to `log`, yield once it answers, then stop it. Raises RuntimeError
    if it ends.
    """
    with log.open("w") as file:
        server = subprocess.Popen(command, env=env, stdout=file, stderr=file)
        try:
            eventually(lambda: server.poll() is not None or answers(), f"an answer of {command}")
            if server.poll() is not None:
                raise RuntimeError(log.read_text(encoding="utf-8"))
            yield
        finally:
            server.terminate()
            server.wait(SECONDS)


def podman(
    place: Path,
    root: Path,
    args: Sequence[str] = ("/probe",),
    options: Sequence[str] = (),
    runtime: Path | str = "runc",
    engine: str = "runc",
    cdi: Path | None = None,
    env: Mapping[str, str] | None = None,
    state: Path | None = None,
    hooks: Path | None = None,
) -> Result:
    """Run a container with `podman run --rootfs` and return its result.

    `place` is for podman's state; `options` are options of `podman run` (--device, --env, ...).
    `cdi` is a directory of CDI specs: in a private mount namespace it replaces /run/cdi, and
    /etc/cdi is empty. `env` is the runtime's environment: podman does not pass on its own. Hooks
    have the environment of the spec, so `state` (default: an empty directory) replaces
    /run/gpuhook. `hooks` replaces podman's directory of OCI hooks.
    """
    place.mkdir(parents=True, exist_ok=True)
    shown = _cdi_directories(place, cdi)
    shown["/run/gpuhook"] = state or place / "no-state"
    if hooks is not None:
        shown[HOOKS_DIRECTORY] = hooks
    around = runtime_environment(engine, inside=[_shown(*each) for each in shown.items()])
    # Podman takes no run root of more than 50 characters.
    with TemporaryDirectory(
        prefix="gpuhook-", dir="/tmp", ignore_cleanup_errors=True
    ) as run_root:  # podman may still be removing files in it
        if env:
            name = Path(
                _absolute(runtime)
            ).name  # podman derives the runtime's features from this name
            runtime = launcher(Path(run_root, name), [_absolute(runtime)], env)
        command = _podman(place, Path(run_root), runtime)
        command += ["--name", f"gpuhook-test-{uuid4().hex[:12]}", *options]
        command += ["--rootfs", str(root), *args]
        return run_command([*around.prefix, *command], {**os.environ, **around.env})


def _podman(place: Path, run_root: Path, runtime: Path | str) -> list[str]:
    command = ["podman", "--root", str(place / "storage"), "--runroot", str(run_root)]
    command += ["--cgroup-manager", "cgroupfs", "--runtime", _absolute(runtime)]
    command += ["--storage-driver", "vfs", "run", "--rm", "--network", "none", *ULIMITS]
    return command


def _cdi_directories(place: Path, cdi: Path | None) -> dict[str, Path]:
    """Return the replacements of the CDI directories, so that podman reads only `cdi`.

    podman 4.3 reads /etc/cdi and /var/run/cdi; no option changes that.
    """
    shown = dict.fromkeys(CDI_DIRECTORIES, place / "no-cdi")
    if cdi is not None:
        shown["/run/cdi"] = cdi
    return shown


def _shown(target: str, source: Path) -> str:
    """Return a shell command that mounts the directory `source` at `target`."""
    for directory in (source, Path(target)):
        directory.mkdir(parents=True, exist_ok=True)
    return f"mount --bind '{source}' {target}"


def _absolute(runtime: Path | str) -> str:
    """Return the path of `runtime`: podman searches a bare word in its settings."""
    if "/" in str(runtime):
        return str(runtime)
    for directory in ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"):
        if Path(directory, runtime).exists():
            return f"{directory}/{runtime}"
    raise FileNotFoundError(str(runtime))


def _containerd_config(place: Path) -> str:
    return "\n".join(
        [
            "version = 2",
            f'root = "{place}/root"',
            f'state = "{place}/state"',
            'disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]',
            "[grpc]",
            f'address = "{place}/sock"',
            "[ttrpc]",
            f'address = "{place}/sock.ttrpc"',
            "",
        ]
    )
