# SPDX-License-Identifier: Apache-2.0
"""Running containers of real runtimes whose GPUs are attached and detached, and their state."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.contract import roots
from tests.contract.bundles import Bundle, bundle
from tests.contract.device_side import evaluate
from tests.contract.installation import Installation
from tests.contract.runtimes import Container, Result, lifecycle, run_command, run_gpuhook
from tests.contract.views import View
from tests.waiting import eventually

WAIT = ["/bin/sh", "-c", "while :; do sleep 60; done"]
# /dev/fuse: a device that opens on this machine, and that no engine allows by itself.
REAL = (10, 229)
PROGRAMS = "[one.seen.hex() for one in rules.programs()]"


@dataclass(frozen=True)
class Seen:
    """The state of a container: its files, its /dev, its mounts, its device rules, its ledger
    entry.
    """

    files: dict[str, tuple[object, ...]]
    nodes: dict[str, tuple[object, ...]]
    mounts: tuple[str, ...]
    rules: tuple[str, ...]
    entry: str


@dataclass(frozen=True)
class Live:
    """A created container, on a node with gpuhook."""

    container: Container
    bundle: Bundle
    installation: Installation

    @property
    def id(self) -> str:
        """Return the container's id."""
        return self.container.id

    @property
    def pid(self) -> int:
        """Return its first process."""
        return self.container.pid

    @property
    def roots(self) -> list[str]:
        """Return the option that names its runtime's state root."""
        return ["--state-root", str(self.bundle.path / "state")]

    def command(self, verb: str, *words: str, name: str = "", via: Sequence[str] = ()) -> list[str]:
        """Return the command line of `gpuhook VERB CONTAINER WORDS`, called by `via`."""
        own = [str(self.launcher), *self._words(verb, *words, name=name)]
        return [*self.container.around.prefix, *via, *own]

    @property
    def launcher(self) -> Path:
        """Return the path of gpuhook."""
        return self.installation.bindir / "gpuhook"

    def _words(self, verb: str, *words: str, name: str) -> list[str]:
        return [verb, name or self.id, *words, *self.roots]

    @property
    def env(self) -> dict[str, str]:
        """Return the environment of that command line for this node."""
        return {**os.environ, **self.container.around.env, **self.installation.env}

    def gpuhook(self, verb: str, *words: str, name: str = "", via: Sequence[str] = ()) -> Result:
        """Call `gpuhook VERB CONTAINER WORDS` in the mount namespace of the container's runtime."""
        if via:
            return run_command(self.command(verb, *words, name=name, via=via), self.env)
        own = self._words(verb, *words, name=name)
        return run_gpuhook(self.launcher, own, self.env, self.container.around)

    def report(self, verb: str, *words: str, name: str = "") -> dict[str, Any]:
        """Return the report of `gpuhook VERB`, which must succeed."""
        done = self.gpuhook(verb, *words, "-o", "json", name=name)
        assert done.rc == 0, done
        document = done.document("changes")
        assert document["schema"] == f"gpuhook/{verb}/v1"
        (container,) = document["containers"]
        assert container["container"] == self.id
        return dict(container)

    def attach(self, *devices: str, name: str = "") -> dict[str, Any]:
        """Attach devices, and return the report."""
        return self.report("attach", *_devices(devices), name=name)

    def detach(self, *devices: str, name: str = "") -> dict[str, Any]:
        """Detach devices, and return the report."""
        return self.report("detach", *_devices(devices), name=name)

    def refused(
        self, code: str, verb: str, *words: str, name: str = "", via: Sequence[str] = ()
    ) -> str:
        """Call `gpuhook VERB`, which must fail with this code, and return its standard error."""
        done = self.gpuhook(verb, *words, name=name, via=via)
        assert done.rc == 1, done
        assert done.stdout == ""
        assert f"Error {code}:" in done.stderr, done
        assert "Traceback" not in done.stderr
        return done.stderr

    def inside(self, *words: str) -> Result:
        """Run a command in the container."""
        return self.container.call("exec", *words)

    def view(self, asked: Sequence[str] = ()) -> View:
        """Return the probe's current view in the container."""
        return self.inside("/probe", *asked).view

    def rules(self) -> list[str]:
        """Return the device rules: v1's list, or v2's programs as bytes."""
        (programs, lines) = evaluate(self.container, PROGRAMS, "described(rules)")
        return list(programs) or sorted(lines)

    def nodes(self) -> dict[str, tuple[object, ...]]:
        """Return the files of its /dev: modes, owners and numbers by name."""
        return devices(Path(f"/proc/{self.pid}/root/dev"))

    def mounts(self) -> tuple[str, ...]:
        """Return the lines of its mountinfo."""
        return tuple(Path(f"/proc/{self.pid}/mountinfo").read_text(encoding="utf-8").splitlines())

    def entry(self) -> str:
        """Return the text of its entry in the ledger, empty if it has none.

        Entries of other containers may have bytes that are not UTF-8.
        """
        entries = Path(self.installation.state, "containers")
        own = [p.read_text("utf-8", "surrogateescape") for p in entries.glob("[!.]*")]
        return "".join(text for text in own if self.id in text)

    def seen(self) -> Seen:
        """Return the state of the container that a GPU changes."""
        version, lines = evaluate(self.container, "rules.version", "described(rules)")
        return Seen(
            roots.listing(self.bundle.root),
            self.nodes(),
            self.mounts(),
            tuple(sorted(lines) if version == "v1" else lines),
            self.entry(),
        )


def devices(directory: Path) -> dict[str, tuple[object, ...]]:
    """Return the files of a /dev: modes, owners and numbers by name."""
    files: dict[str, tuple[object, ...]] = {}
    for path in sorted(directory.iterdir()):
        if path.name == "null":
            continue  # runc changes the owner of a bind-mounted /dev/null at each exec
        status = path.lstat()
        numbers = status.st_rdev if stat.S_ISCHR(status.st_mode) else 0
        files[path.name] = (status.st_mode, status.st_uid, status.st_gid, numbers)
    return files


class OpenResults:
    """The output of a container that runs open_repeatedly()."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def becomes(self, answer: str) -> None:
        """Wait until two opens that start after this call have this result: "yes" or "no"."""
        start = len(self._live.container.output.splitlines())
        eventually(lambda: len(self._live.container.output.splitlines()) >= start + 4)
        words = [line.split()[1] for line in self._live.container.output.splitlines()[start + 1 :]]
        assert set(words[1:3]) == {answer}, words

    def pids(self) -> set[str]:
        """Return the processes that wrote the output."""
        return {line.split()[0] for line in self._live.container.output.splitlines()}


@contextmanager
def started(
    made: Bundle,
    installation: Installation,
    engine: str = "runc",
    cgroup: str = "host",
    *runtime: str,
) -> Iterator[Live]:
    """Yield a running container of a plain runtime, or of `runtime`, which calls that."""
    command = runtime or (engine,)
    with lifecycle(made, command, engine, cgroup, env=installation.on(engine)) as container:
        container.start()
        yield Live(container, made, installation)


@contextmanager
def wrapped(
    made: Bundle,
    installation: Installation,
    engine: str = "runc",
    cgroup: str = "host",
    container_id: str | None = None,
) -> Iterator[Live]:
    """Yield a running container of gpuhook-runtime."""
    with installation.lifecycle(made, engine, cgroup, container_id) as container:
        container.start()
        yield Live(container, made, installation)


def prestart(
    installation: Installation, *words: str, stage: str = "prestart", **more: str
) -> dict[str, list[dict[str, Any]]]:
    """Return hooks of a config.json that call the installed hook; `more` is added to its env.

    The program is the launcher gpuhook-prestart, which the hooks.d file names.
    """
    program = str(installation.bindir / "gpuhook-prestart")
    env = {"PATH": "/usr/bin:/bin", **installation.env, **more}
    own = {"path": program, "args": ["gpuhook-prestart", "prestart", *words]}
    return {stage: [{**own, "env": [f"{name}={value}" for name, value in env.items()]}]}


def with_openable_gpu(installation: Installation, place: Path, index: int = 2) -> Installation:
    """Return an installation on a node where the GPU of this index can be opened."""
    mine = installation.apart(place)
    node = place / "openable"
    os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(*REAL))
    node.chmod(0o666)
    host = f"{installation.node.dev_root}{installation.device(index)}"
    text = mine.spec.read_text(encoding="utf-8")
    assert f"hostPath: {host}\n" in text
    mine.spec.write_text(text.replace(f"hostPath: {host}\n", f"hostPath: {node}\n"), "utf-8")
    return mine


def open_repeatedly(path: str) -> list[str]:
    """Return a command that opens `path` repeatedly, and prints its pid and "yes" or "no"."""
    script = (
        f'while :; do if true <{path}; then echo "$$ yes"; else echo "$$ no"; fi; sleep 0.05; done'
    )
    return ["/bin/sh", "-c", f"{script} 2>/dev/null"]


def sleeping(
    place: Path,
    kind: str = "debian",
    env: Sequence[str] = (),
    args: Sequence[str] = WAIT,
    **oci: Any,
) -> Bundle:
    """Return the bundle of a container that sleeps, with a fresh root file system, in `place`."""
    root = roots.copy(kind, place / f"root-{kind}")
    return bundle(place / "bundle", root, args, env, **oci)


def _devices(names: Sequence[str]) -> list[str]:
    return [word for name in names for word in ("--device", name)]
