# SPDX-License-Identifier: Apache-2.0
"""An installation of gpuhook on a simulated node: launchers, settings, CDI specs, state."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gpuhook.vendors.nvidia.inventory.inventory import Gpu, Node
from tests.contract.build_cache import CHECKOUT
from tests.contract.bundles import Bundle
from tests.contract.runtimes import (
    Container,
    Result,
    launcher,
    lifecycle,
    run,
    run_command,
    run_gpuhook,
)
from tests.contract.warm import warm
from tests.simulated.node import SimulatedNode, make_node

PYTHON = "/usr/bin/python3"
KIND = "nvidia.com/gpu"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
DRIVER_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
CONTROL = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}
ALL_CONTROL = {*CONTROL, "/dev/nvidia-modeset"}
MAJOR = 195
STATE = Path("/run/gpuhook")


def install(place: Path, python: str | Path = PYTHON, *options: str) -> Path:
    """Install gpuhook below `place` with packaging/install.py; return its bin directory."""
    command = [sys.executable, str(CHECKOUT / "packaging/install.py"), "--prefix", str(place)]
    command += ["--python", str(python), "--cli-python", sys.executable, *options]
    subprocess.run(command, check=True, capture_output=True)
    return place / "bin"


def install_once(factory: pytest.TempPathFactory, name: str, *options: str) -> Path:
    """Install gpuhook below a prefix that the workers of a run share; no test changes it."""
    place = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent
    with (place / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = place / f"{name}.installed"
        if not done.exists():
            install(place / name, PYTHON, *options)
            done.touch()
    return place / name / "bin"


@dataclass(frozen=True)
class Installation:
    """An installation on a node; `settings` are the content of its settings file."""

    place: Path
    bindir: Path
    node: SimulatedNode
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def runtime(self) -> str:
        """Return the path of gpuhook-runtime."""
        return str(self.bindir / "gpuhook-runtime")

    @property
    def share(self) -> Path:
        """Return the directory of the files that configure engines."""
        return self.bindir.parent / "share/gpuhook"

    @property
    def hooks(self) -> dict[str, Any]:
        """Return the content of the hooks.d file; its hook has this node's variables."""
        text = (self.share / "hooks.d/gpuhook-prestart.json").read_text(encoding="utf-8")
        document: dict[str, Any] = json.loads(text)
        document["hook"]["env"] += [f"{name}={value}" for name, value in self.env.items()]
        return document

    def command_with_state(self, program: str = "", dev: Path | None = None) -> list[str]:
        """Return `program` (gpuhook-runtime) with this installation's state at /run/gpuhook.

        A hook has no variable of the wrapper: a mount namespace shows it this state directory.
        `dev` is mounted over the nodes of the machine's /dev: in a user namespace they are bind-
        mounted.
        """
        for directory in (self.state, STATE):
            directory.mkdir(parents=True, exist_ok=True)
        steps = [f"mount --bind {self.state} {STATE}"]
        if dev is not None:
            dev.mkdir(exist_ok=True)
            own = " ".join(f"/dev/{name}" for name in ("null", "zero", "full", "tty", "urandom"))
            given = f"{self.node.dev_root}/dev/nvidia*"
            steps.append(f"mount -t tmpfs -o mode=755 dev {dev}")
            steps.append(f"cp -a {own} /dev/random {given} {dev} && mount --bind {dev} /dev")
        script = " && ".join([*steps, 'exec "$@"'])
        return ["unshare", "--mount", "sh", "-c", script, "sh", program or self.runtime]

    @property
    def specs(self) -> Path:
        """Return the CDI spec directory."""
        return self.place / "cdi"

    @property
    def spec(self) -> Path:
        """Return the CDI spec that generate-cdi writes."""
        return self.specs / "nvidia.yaml"

    @property
    def state(self) -> Path:
        """Return the state directory, which is /run/gpuhook on a real node."""
        return self.place / "state"

    @property
    def config(self) -> Path:
        """Return the settings file, which is /etc/gpuhook/config.yaml on a real node."""
        return self.place / "config.yaml"

    @property
    def env(self) -> dict[str, str]:
        """Return the variables by which the programs use this node."""
        return {
            "GPUHOOK_CONFIG": str(self.config),
            "GPUHOOK_HOST_ROOT": self.node.host_root,
            "GPUHOOK_STATE_DIR": str(self.state),
        }

    def on(self, low_level: str, **more: str) -> dict[str, str]:
        """Return the environment for this low-level runtime, with the variables `more`."""
        return {**self.env, "GPUHOOK_LOW_LEVEL_RUNTIME": _program(low_level), **more}

    def gpu(self, index: int) -> Gpu:
        """Return the GPU of this index."""
        return self.node.node.gpus[index]

    def device(self, index: int) -> str:
        """Return the device node of the GPU of this index; its minor can be another number."""
        return f"/dev/nvidia{self.gpu(index).minor}"

    def number(self, index: int) -> str:
        """Return "major:minor" of that node."""
        return f"{MAJOR}:{self.gpu(index).minor}"

    def gpuhook(self, *words: str) -> Result:
        """Call the command line."""
        return run_gpuhook(self.bindir / "gpuhook", words, self._environment)

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.env}

    def generate(self, *options: str, output: Path | None = None) -> None:
        """Write the node's CDI spec to `output` (default: `spec`) with generate-cdi."""
        words = [*self.node.options, "--hook-path", str(self.bindir / "gpuhook-hook")]
        words += ["--output-file", str(output or self.spec), *options]
        self._prepared("generate-cdi", *words)

    def holders(self) -> list[dict[str, Any]]:
        """Return the containers that `gpuhook ps -o json` reads from the ledger: other tests run
        containers too.
        """
        text = self._prepared("ps", "--recorded", "-o", "json")
        return list(json.loads(text)["containers"])

    def _prepared(self, *words: str) -> str:
        """Return the output of a command that prepares a test."""
        started = warm(self.bindir / "gpuhook")
        assert started is not None
        done = started.call(words, self._environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def entries(self) -> list[str]:
        """Return the names of the ledger's files."""
        directory = self.state / "containers"
        return sorted(os.listdir(directory)) if directory.is_dir() else []

    def entry(self) -> dict[str, Any]:
        """Return the only entry of the ledger."""
        (name,) = self.entries()
        return dict(json.loads((self.state / "containers" / name).read_text(encoding="utf-8")))

    def apart(
        self, place: Path, node: SimulatedNode | None = None, **settings: Any
    ) -> Installation:
        """Return the installation on its node, or another, with separate settings and state."""
        made = replace(self, place=place, node=node or self.node, settings=settings)
        made.configure()
        made.generate()
        return made

    def configure(self) -> None:
        """Write the settings file, and create the directory of CDI specs."""
        self.specs.mkdir(parents=True, exist_ok=True)
        known = {"cdi": {"specDirs": [str(self.specs)]}}
        document = {**known, **self.settings}
        self.config.write_text(json.dumps(document), encoding="utf-8")

    def refuse_stale(self) -> None:
        """Write settings that refuse stale specs instead of regenerating them."""
        document = {"cdi": {"specDirs": [str(self.specs)], "onStale": "refuse"}}
        self.config.write_text(json.dumps(document), encoding="utf-8")

    def run(self, bundle: Bundle | Path, engine: str = "runc", cgroup: str = "host") -> Result:
        """Run a bundle by gpuhook-runtime and return its result."""
        return run(bundle, [self.runtime], engine, cgroup, self.on(engine))

    def run_with_state(self, bundle: Bundle, engine: str = "runc") -> Result:
        """Run a bundle by the command of command_with_state()."""
        return run(bundle, self.command_with_state(), engine, env=self.on(engine))

    def lifecycle(
        self,
        bundle: Bundle | Path,
        engine: str = "runc",
        cgroup: str = "host",
        container_id: str | None = None,
    ) -> AbstractContextManager[Container]:
        """Yield a container of gpuhook-runtime that is not created yet, and delete it in the
        end.
        """
        env = self.on(engine)
        return lifecycle(bundle, [self.runtime], engine, cgroup, env, container_id)

    def run_by_hook(self, bundle: Bundle) -> Result:
        """Run a bundle by plain runc, which calls the prestart hook."""
        bundle.write({**bundle.config(), "hooks": {"prestart": [self.hooks["hook"]]}})
        return run(bundle)

    def launcher(self, path: Path, low_level: str = "runc") -> Path:
        """Write an executable at `path` that runs gpuhook-runtime with this environment."""
        return launcher(path, [self.runtime], self.on(low_level))

    def edit(
        self,
        bundle: Bundle,
        *options: str,
        low_level: str = "/bin/true",
        log_format: str = "json",
        env: Mapping[str, str] | None = None,
        container_id: str | None = None,
    ) -> Result:
        """Call `gpuhook-runtime create` with a low-level runtime that does nothing."""
        log = bundle.path / "log"
        log.unlink(missing_ok=True)
        command = [self.runtime, "--root", str(bundle.path / "state"), "--log", str(log)]
        command += ["--log-format", log_format, "create", "--bundle", str(bundle.path), *options]
        command.append(container_id or f"gpuhook-test-{uuid4().hex[:12]}")
        done = run_command(command, {**os.environ, **self.on(low_level), **(env or {})})
        text = log.read_text(encoding="utf-8") if log.exists() else ""
        return replace(done, log=text)


def installation(
    place: Path,
    node: SimulatedNode | Node | str = "h100x8",
    bindir: Path | None = None,
    *options: str,
) -> Installation:
    """Install gpuhook on a node, and write its CDI spec with these options of generate-cdi.

    The node (a profile, facts, or one that exists) and the programs are created below `place`;
    `bindir` are existing programs.
    """
    if not isinstance(node, SimulatedNode):
        node = make_node(place / "node", node)
    made = Installation(place, bindir or install(place / "prefix"), node)
    made.configure()
    made.generate(*options)
    return made


def asks(value: str, capabilities: str | None = None) -> list[str]:
    """Return the variables of a container that requests GPUs."""
    env = [f"NVIDIA_VISIBLE_DEVICES={value}"]
    return env + ([f"NVIDIA_DRIVER_CAPABILITIES={capabilities}"] if capabilities else [])


def _program(name: str) -> str:
    path = name if "/" in name else shutil.which(name)
    assert path is not None, name
    return path
