# SPDX-License-Identifier: Apache-2.0
"""Docker on a node: its daemon, its configuration by gpuhook, and what its containers have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.contract.installation import CONTROL, DRIVER_LIBRARIES, MAJOR
from tests.contract.runtimes import Result
from tests.contract.test_integrations import assert_found
from tests.contract.views import View, questions, view
from tests.engines.engine_node import EngineNode

IMAGE = "probe:1"
DAEMON_JSON = "/etc/docker/daemon.json"
HOOK = "/usr/local/bin/nvidia-container-runtime-hook"
WRAPPER = ("--runtime", "nvidia", "--env")
LOW_LEVEL = ("runc", "crun")
FLAGS = ("--iptables=false", "--ip6tables=false", "--bridge=none")
# The first process of a container: it ends at SIGTERM.
WAIT = ("sh", "-c", "trap exit TERM; while :; do sleep 60 & wait; done")


@dataclass(frozen=True)
class Docker:
    """The running dockerd of a node; `options` are of `docker run`."""

    node: EngineNode
    low_level: str = "runc"
    options: tuple[str, ...] = ()

    def run(self, *options: str) -> Result:
        """Run a container that looks at its GPUs, the other GPUs, and the driver's libraries.

        Docker can lose the output of a short container on a busy machine: then it runs again.
        """
        words = ("--rm", *options, IMAGE, "/probe", *self._questions)
        done = self._run(*words)
        return self._run(*words) if done.rc == 0 and not done.stdout else done

    def view(self, *options: str) -> View:
        """Return what a container has of its GPUs."""
        done = self.run(*options)
        assert done.rc == 0, done
        return view(done.stdout)

    def starts_no_privileged(self) -> bool:
        """Return whether Docker cannot start a privileged container here, also without gpuhook."""
        done = self.node.run("docker", "run", "--rm", "--network=none", "--privileged", IMAGE, "ls")
        return done.rc != 0 and "apply caps" in done.stderr

    @contextmanager
    def container(self, *options: str) -> Iterator[str]:
        """Yield the id of a running container."""
        name = self.start(*options)
        try:
            yield name
        finally:
            self.node.check("docker", "rm", "--force", name)

    def start(self, *options: str) -> str:
        """Start a container that runs until it is stopped, and return its id."""
        done = self._run("--detach", *options, IMAGE, *WAIT)
        assert done.rc == 0, done
        return done.stdout.strip()

    def executed(self, name: str, *options: str) -> View:
        """Return what a process of `docker exec` has of the GPUs."""
        words = ["docker", "exec", *options, name, "/probe", *self._questions]
        return view(self.node.check(*words))

    def pid(self, name: str) -> int:
        """Return the container's first process."""
        return int(self.node.check("docker", "inspect", "--format", "{{.State.Pid}}", name))

    def document(self, *words: str) -> Any:
        """Return the document that a command of gpuhook prints."""
        return json.loads(self.node.check("gpuhook", *words, "-o", "json"))

    def listed(self) -> dict[str, dict[str, Any]]:
        """Return the containers that `gpuhook ps` lists, by id."""
        return {one["id"]: one for one in self.document("ps")["containers"]}

    def uuid(self, index: int) -> str:
        """Return the UUID of the GPU of this index."""
        uuid = self.node.gpus.node.gpus[index].uuid
        assert uuid
        return uuid

    @property
    def version(self) -> str:
        """Return Docker's version."""
        return self.node.version("docker", "--version")

    @property
    def low_level_version(self) -> str:
        """Return the low-level runtime's name and version."""
        return f"{self.low_level} {self.node.version(self.low_level, '--version')}"

    @property
    def _questions(self) -> list[str]:
        tries = [f"{MAJOR}:{gpu.minor}" for gpu in self.node.gpus.node.gpus]
        return questions(tries=tries, runs=[["/dlprobe", *DRIVER_LIBRARIES]])

    def _run(self, *words: str) -> Result:
        return self.node.run("docker", "run", "--network=none", *self.options, *words)


def assert_gpus(
    docker: Docker, seen: View, *indexes: int, control: set[str] = CONTROL, has_files: bool = True
) -> None:
    """Assert that a container can open these GPUs, no other one, and finds the libraries."""
    node = docker.node
    assert set(seen.gpus()) == control | {node.device(index) for index in indexes}
    assert all(one.allowed for one in seen.gpus().values()), seen.gpus()
    for index, gpu in enumerate(node.gpus.node.gpus):
        is_allowed = seen.tries[f"{MAJOR}:{gpu.minor}"] != "EPERM"
        assert is_allowed == (index in indexes), (index, seen.tries)
    if has_files:
        assert_found(seen.runs[0], str(node.gpus.node.driver.version))


@contextmanager
def dockerd(node: EngineNode, *flags: str) -> Iterator[None]:
    """Run dockerd on the node, with the files that the node has."""
    command = ["dockerd", *FLAGS, *flags]
    with node.daemon(command, lambda: node.run("docker", "version").rc == 0):
        yield


@contextmanager
def daemon_json(node: EngineNode, text: str | None) -> Iterator[None]:
    """Give the node a daemon.json of this text; assert that it has the same bytes in the end."""
    file = node.path(DAEMON_JSON)
    assert not file.exists()
    if text is not None:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    try:
        yield
        assert (file.read_text(encoding="utf-8") if file.exists() else None) == text
    finally:
        file.unlink(missing_ok=True)


@contextmanager
def configured(node: EngineNode, *words: str, text: str | None = None) -> Iterator[None]:
    """Run `gpuhook configure docker` with these words; `undo` must restore every byte."""
    with daemon_json(node, text):
        node.check("gpuhook", "configure", "docker", *words)
        try:
            yield
        finally:
            node.check("gpuhook", "configure", "undo", "docker")


def import_image(node: EngineNode) -> None:
    """Import the image of a Debian with the probe."""
    root = node.image_root("debian", "image")
    with dockerd(node):
        node.check("sh", "-c", f"tar -C {root} -c . | docker import - {IMAGE}")
