# SPDX-License-Identifier: Apache-2.0
"""Real OCI runtimes on bundles: a whole run, or the steps of a container's life.

runc and crun use the machine's own cgroups ("host") or cgroup v2 ("v2"). On a machine with v1 or
the hybrid layout, v2 is mounted in a private mount namespace, where device programs work as on a v2
machine. crun refuses the hybrid layout: for it the v2 tree is unmounted, in a separate namespace
too.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import jsonschema
import pytest

from tests.contract.build_cache import CHECKOUT
from tests.contract.bundles import Bundle
from tests.contract.compiled import memlock
from tests.contract.views import View, view
from tests.contract.warm import warm

CGROUPS = Path("/sys/fs/cgroup")
SECONDS = 60

# Parameters of tests: the runtimes, and the pairs of runtime and cgroup of runtime_environment().
PAIRS = [("runc", "host"), ("runc", "v2"), ("crun", "host"), ("crun", "v2")]
ENGINES = pytest.mark.parametrize("engine", ["runc", "crun"])
EVERY = pytest.mark.parametrize(("engine", "cgroup"), PAIRS)
BOTH = pytest.mark.parametrize(("engine", "cgroup"), [PAIRS[0], PAIRS[3]])

V2 = f"umount -R {CGROUPS} && mount -t cgroup2 none {CGROUPS}"
WITHOUT_UNIFIED = f"umount {CGROUPS}/unified"


@dataclass(frozen=True)
class Result:
    """The result of a command; `log` is the runtime's --log file."""

    rc: int
    stdout: str
    stderr: str
    log: str = ""

    def document(self, schema: str) -> dict[str, Any]:
        """Return the JSON document on standard output, which must match gpuhook's schema."""
        assert self.stdout, self
        found = json.loads(self.stdout)
        text = (CHECKOUT / f"gpuhook/schemas/{schema}.json").read_text(encoding="utf-8")
        jsonschema.validate(found, json.loads(text))
        return dict(found)

    @property
    def view(self) -> View:
        """Return the probe's view; without one, its output is shown."""
        assert self.rc == 0, self
        return view(self.stdout)

    @property
    def warned(self) -> list[str]:
        """Return the codes of the warnings in the log of a container that started.

        Standard error belongs to the container: it has none of them.
        """
        assert self.rc == 0, self
        assert "warning" not in self.stderr, self
        return re.findall(r"^(?=.*level\W+warning).*?(GH\d{4})", self.log, re.MULTILINE)


@dataclass(frozen=True)
class RuntimeEnvironment:
    """The environment of a runtime: a prefix of its command line, and variables.

    `steps` are the shell commands of the prefix in its mount namespace, if it has nothing else.
    """

    prefix: tuple[str, ...]
    env: dict[str, str]
    steps: str = ""


def runtime_environment(
    engine: str = "runc", cgroup: str = "host", inside: Sequence[str] = ()
) -> RuntimeEnvironment:
    """Return the environment of `engine` (runc, crun) on `cgroup` (host, v2) of this machine.

    `inside` are further shell commands for the private mount namespace, before the runtime starts.
    """
    steps = list(inside)
    env: dict[str, str] = {}
    machine = "v2" if (CGROUPS / "cgroup.controllers").exists() else "v1"
    wanted = machine if cgroup == "host" else cgroup
    if wanted != machine:
        steps.append(V2)
    elif engine == "crun" and (CGROUPS / "unified").is_mount():
        steps.append(WITHOUT_UNIFIED)
    if engine == "crun" and wanted == "v2":
        env["LD_PRELOAD"] = str(memlock())
    if not steps:
        return RuntimeEnvironment((), env)
    script = " && ".join(steps)
    prefix = ("unshare", "--mount", "sh", "-c", f'{script} && exec "$@"', "sh")
    return RuntimeEnvironment(prefix, env, script)


def launcher(path: Path, command: Sequence[str], env: Mapping[str, str] | None = None) -> Path:
    """Write an executable at `path` that runs `command` with `env` and its own arguments.

    It is for engines that know a runtime by one path and set its environment.
    """
    lines = ["#!/bin/sh"]
    lines += [f"export {name}={_quoted(value)}" for name, value in (env or {}).items()]
    lines.append(f'exec {" ".join(_quoted(word) for word in command)} "$@"')
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def run_command(
    command: Sequence[str | Path], env: Mapping[str, str] | None = None, stdin: str = ""
) -> Result:
    """Call a command and return its result; `env` is its whole environment."""
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, env=env, timeout=300, check=False
    )
    return Result(done.returncode, done.stdout, done.stderr)


def run_gpuhook(
    launcher: Path,
    words: Sequence[str],
    env: Mapping[str, str],
    around: RuntimeEnvironment = RuntimeEnvironment((), {}),
) -> Result:
    """Call an installed `gpuhook` in an environment, by the process that has started it (warm.py).

    `env` is its whole environment. run_command() starts it by its launcher.
    """
    command = next((word for word in words if not word.startswith("-")), "")
    started = warm(launcher, command) if command else None
    if started is None or (around.prefix and not around.steps):
        return run_command([*around.prefix, launcher, *words], env)
    done = started.call(words, env, around.steps)
    return Result(done.returncode, done.stdout, done.stderr)


@dataclass
class Container:
    """A container of a runtime; each verb returns the result of the runtime's call."""

    id: str
    bundle: Path
    command: list[str]
    around: RuntimeEnvironment
    env: Mapping[str, str] | None

    def run(self) -> Result:
        """Run the bundle (see container()) and return the result."""
        return self._called("run", "--bundle", str(self.bundle), self.id)

    def create(self, *options: str) -> Result:
        """Create it; the container's output goes to files in the bundle."""
        words = ["create", *options, "--bundle", str(self.bundle), self.id]
        with (
            (self.bundle / "stdout").open("w") as out,
            (self.bundle / "stderr").open("w") as err,
        ):
            done = self._process(words, stdout=out, stderr=err)
        return Result(done.returncode, self.output, self.errors, self._log)

    def start(self, *options: str) -> None:
        """Create it with these options, and start it: both must succeed."""
        created = self.create(*options)
        assert created.rc == 0, created
        started = self.call("start")
        assert started.rc == 0, started

    @property
    def state(self) -> dict[str, Any]:
        """Return the runtime's report of it: pid, status and others."""
        return dict(json.loads(self.call("state").stdout))

    @property
    def pid(self) -> int:
        """Return its first process."""
        return int(self.state["pid"])

    def call(self, verb: str, *words: str) -> Result:
        """Call `RUNTIME ... VERB ID WORDS`: start, state, exec, kill, delete, ps, pause, resume."""
        return self._called(verb, self.id, *words)

    def delete(self) -> Result:
        """Kill and remove it."""
        return self._called("delete", "--force", self.id)

    @property
    def output(self) -> str:
        """Return what the container has written to its standard output."""
        return (self.bundle / "stdout").read_text(encoding="utf-8")

    @property
    def errors(self) -> str:
        """Return what the runtime and the container have written to standard error."""
        return (self.bundle / "stderr").read_text(encoding="utf-8")

    @property
    def _log(self) -> str:
        file = self.bundle / "log"
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def _called(self, *words: str) -> Result:
        done = self._process(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return Result(done.returncode, done.stdout, done.stderr, self._log)

    def _process(
        self, words: Sequence[str], stdout: IO[str] | int, stderr: IO[str] | int
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.around.prefix, *self.command, *words],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            text=True,
            env={**os.environ, **self.around.env, **(self.env or {})},
            timeout=SECONDS,
            check=False,
        )


def container(
    bundle: Bundle | Path,
    runtime: Sequence[str] = ("runc",),
    engine: str = "runc",
    cgroup: str = "host",
    env: Mapping[str, str] | None = None,
    container_id: str | None = None,
) -> Container:
    """Return a container that is not created yet; its runtime's state and log are in the bundle.

    `runtime` is the called program (gpuhook-runtime and its options, or plain runc or crun);
    `engine` is the low-level runtime.
    """
    directory = bundle.path if isinstance(bundle, Bundle) else bundle
    options = ["--root", str(directory / "state"), "--log", str(directory / "log")]
    name = container_id or f"gpuhook-test-{uuid4().hex[:12]}"
    return Container(
        name, directory, [*runtime, *options], runtime_environment(engine, cgroup), env
    )


def run(
    bundle: Bundle | Path,
    runtime: Sequence[str] = ("runc",),
    engine: str = "runc",
    cgroup: str = "host",
    env: Mapping[str, str] | None = None,
) -> Result:
    """Run the bundle (see container()) and return how it ended."""
    return container(bundle, runtime, engine, cgroup, env).run()


@contextmanager
def lifecycle(
    bundle: Bundle | Path,
    runtime: Sequence[str] = ("runc",),
    engine: str = "runc",
    cgroup: str = "host",
    env: Mapping[str, str] | None = None,
    container_id: str | None = None,
) -> Iterator[Container]:
    """Yield a container (see container()), and delete it in the end."""
    made = container(bundle, runtime, engine, cgroup, env, container_id)
    try:
        yield made
    finally:
        made.delete()


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"
