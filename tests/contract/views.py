# SPDX-License-Identifier: Apache-2.0
"""The view from inside a container: questions for the probe, and its answers as Python values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Entry:
    """One path as lstat, readlink and read report it; `kind` is 'missing' if it does not exist."""

    path: str
    kind: str
    mode: int = 0
    uid: int = -1
    gid: int = -1
    size: int = 0
    nlink: int = 0
    major: int = -1
    minor: int = -1
    target: str = ""
    content: bytes = b""
    entries: tuple[str, ...] = ()
    open: str = ""
    error: str = ""

    @property
    def allowed(self) -> bool:
        """Return whether the device cgroup allows to open the node: ENXIO means that it has no
        driver.
        """
        return self.open not in ("", "EPERM", "EACCES", "ENOENT")


@dataclass(frozen=True)
class Mounted:
    """A line of /proc/self/mountinfo (proc(5)); `options` are those of the mount."""

    target: str
    root: str
    source: str
    fstype: str
    options: frozenset[str]
    optional: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ran:
    """A command that ran in the container; `output` is standard output and error together."""

    rc: int
    output: str

    def found(self) -> dict[str, dict[str, str]]:
        """Return the output of dlprobe: name -> {path, real} or {error}."""
        return dict(json.loads(self.output))


@dataclass(frozen=True)
class View:
    """The answers of the probe."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    env: tuple[str, ...]
    nodes: dict[str, Entry]
    paths: dict[str, Entry]
    tries: dict[str, str]
    runs: tuple[Ran, ...]
    mounts: dict[str, Mounted] = field(default_factory=dict)

    def gpus(self) -> dict[str, Entry]:
        """Return the device nodes of NVIDIA, by path."""
        return {p: n for p, n in self.nodes.items() if p.startswith("/dev/nvidia")}

    def values(self, name: str) -> list[str]:
        """Return each value of the variable `name`, in order: one, unless the variable is
        duplicate.
        """
        return [e[len(name) + 1 :] for e in self.env if e.startswith(f"{name}=")]


def questions(
    *paths: str, tries: Sequence[str] = (), runs: Sequence[Sequence[str]] = ()
) -> list[str]:
    """Return the probe's arguments.

    It always prints env, ids, mounts and device nodes; `paths` are read one by one, `tries` are
    "major:minor" of character devices to create and open, `runs` commands to run.
    """
    asked = list(paths)
    for numbers in tries:
        asked += ["--try", numbers]
    for command in runs:
        asked += ["--run", *command, ";"]
    return asked


def view(output: str) -> View:
    """Return the probe's answers, from its standard output."""
    seen = json.loads(output)
    return View(
        uid=seen["uid"],
        gid=seen["gid"],
        groups=tuple(seen["groups"]),
        env=tuple(_bytes(e).decode("utf-8", "surrogateescape") for e in seen["env"]),
        nodes={n["path"]: _entry(n) for n in seen["nodes"]},
        paths={p["path"]: _entry(p) for p in seen["paths"]},
        tries=seen["tries"],
        runs=tuple(Ran(r["rc"], _bytes(r["output"]).decode()) for r in seen["runs"]),
        mounts={m.target: m for m in map(_mounted, seen["mountinfo"].split("\n")[:-1])},
    )


def _entry(raw: dict[str, object]) -> Entry:
    facts = dict(raw)
    if "content" in facts:
        facts["content"] = _bytes(str(facts["content"]))
    if "entries" in facts:
        names = facts["entries"]
        facts["entries"] = tuple(sorted(names)) if isinstance(names, list) else ()
    return Entry(**facts)  # type: ignore[arg-type]  # the probe's keys are the fields


def _mounted(line: str) -> Mounted:
    before, after = (part.split(" ") for part in line.split(" - ", 1))
    return Mounted(
        target=before[4],
        root=before[3],
        source=after[1],
        fstype=after[0],
        options=frozenset(before[5].split(",")),
        optional=tuple(before[6:]),
    )


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")
