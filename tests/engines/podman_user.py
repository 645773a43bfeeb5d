# SPDX-License-Identifier: Apache-2.0
"""podman and buildah of root or of a user without root, on a node.

No systemd runs on a node: cgroups are podman's own (cgroupfs), without limits, as a mounted cgroup
v2 has no controllers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.contract.runtimes import Result
from tests.contract.views import View, questions, view
from tests.engines.engine_node import EngineNode

IMAGE = "localhost/probe:1"
ARCHIVE = "/srv/podman-image.tar"
USER, UID = "alice", 1000
WRAPPER = "/usr/bin/gpuhook-runtime"
CONFIG = """
[containers]
pids_limit = 0
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
# podman of cgroup v1 prints a warning with each command.
QUIET = ("env", "PODMAN_IGNORE_CGROUPSV1_WARNING=1")
ROOTLESS: tuple[str, ...] = ("runuser", "-u", USER, "--", "env", f"HOME=/home/{USER}")
ROOTLESS += (f"XDG_RUNTIME_DIR=/run/user/{UID}", f"XDG_CONFIG_HOME=/home/{USER}/.config")


@dataclass(frozen=True)
class PodmanUser:
    """The podman of a user; `runtime` is the low-level runtime of its containers."""

    node: EngineNode
    is_rootless: bool
    runtime: str

    def run(self, *words: str) -> Result:
        """Run a command as this user, in a directory that it may read."""
        return self.node.run(*(ROOTLESS if self.is_rootless else ()), *QUIET, *words)

    def check(self, *words: str) -> str:
        """Run a command that must succeed, and return its standard output."""
        done = self.run(*words)
        assert done.rc == 0, (words, done)
        return done.stdout

    def podman(self, *words: str, runtime: str = "") -> str:
        """Call podman, which must succeed."""
        return self.check("podman", "--runtime", runtime or self.runtime, *words)

    def gpuhook(self, *words: str) -> Result:
        """Call gpuhook as it changes this user's containers."""
        around = ("podman", "unshare") if self.is_rootless else ()
        return self.run(*around, "gpuhook", *words)

    def start(self, *options: str, image: Sequence[str] = (IMAGE,), runtime: str = "") -> Result:
        """Run a container that prints the view from inside."""
        words = ["run", "--rm", "--network=none", *options, *image, "/probe", *questions()]
        return self.run("podman", "--runtime", runtime or self.runtime, *words)

    @contextmanager
    def sleeping(self, *options: str, runtime: str = "") -> Iterator[str]:
        """Yield the id of a running container."""
        words = ["run", "--detach", "--network=none", *options, IMAGE, "sleep", "1000"]
        identity = self.podman(*words, runtime=runtime).strip()
        try:
            yield identity
        finally:
            self.podman("rm", "--force", "--time=0", identity)

    def look(self, identity: str) -> View:
        """Return the view from inside a running container."""
        return view(self.podman("exec", identity, "/probe", *questions()))

    @property
    def name(self) -> str:
        """Return the program with its version and user, as a row of docs/support.md has it."""
        version = self.node.version(self.runtime, "--version")
        return f"{self.runtime} {version}" + (", rootless" if self.is_rootless else "")

    @property
    def has_cgroup_v2(self) -> bool:
        """Return whether the containers' device rules are programs of cgroup v2."""
        return self.node.path("/sys/fs/cgroup/cgroup.controllers").exists()

    @property
    def version(self) -> tuple[int, ...]:
        """Return podman's version."""
        return tuple(map(int, self.node.version("podman", "--version").split(".")))


def gpus(seen: View) -> set[str]:
    """Return the nodes of single GPUs that a container can open."""
    found = {path: entry for path, entry in seen.gpus().items() if path[11:].isdecimal()}
    assert all(entry.allowed for entry in found.values()), found
    return set(found)


def prepare(node: EngineNode) -> None:
    """Add the user, podman's configuration and the archive of an image to the node."""
    root = node.image_root("debian", "podman-image")
    run_directory = f"/run/user/{UID}"
    node.check("useradd", "--create-home", "--shell", "/bin/sh", "--uid", str(UID), USER)
    node.check("useradd", "--system", "--no-create-home", "containers")  # for --userns=auto
    node.check("install", "-d", "-o", USER, "-m", "700", run_directory)
    node.check("chmod", "-R", "a+rX", root)
    node.check("tar", "-C", root, "-cf", ARCHIVE, ".")
    node.path("/etc/containers/containers.conf").write_text(CONFIG, encoding="utf-8")
    for name in ("subuid", "subgid"):
        with node.path(f"/etc/{name}").open("a", encoding="utf-8") as file:
            file.write("containers:1000000:1000000\n")
    for is_rootless in (False, True):
        PodmanUser(node, is_rootless, "runc").podman("import", ARCHIVE, IMAGE)


def document(done: Result) -> dict[str, Any]:
    """Return the JSON document that a command prints."""
    assert done.stdout, done
    return dict(json.loads(done.stdout))
