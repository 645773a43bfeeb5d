# SPDX-License-Identifier: Apache-2.0
"""What of gpuhook is installed on a node, as its launchers say: facts that several checks share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from posixpath import dirname

from gpuhook.engines.read import engine_config
from gpuhook.node import node_programs, node_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.node.node_tree import Status, Tree

RUNTIME, HOOK, PRESTART, CLI = "gpuhook-runtime", "gpuhook-hook", "gpuhook-prestart", "gpuhook"
NEEDED = (RUNTIME, HOOK, PRESTART)
# The names of NVIDIA's toolkit, where they are gpuhook's: what `nvidia-ctk` is run by is the CLI's.
CTK = "nvidia-ctk"
FRONTS = (
    "nvidia-cdi-hook",
    "nvidia-container-runtime",
    "nvidia-container-runtime.cdi",
    "nvidia-container-runtime.legacy",
    "nvidia-container-runtime-hook",
    "nvidia-container-toolkit",
    CTK,
)
OF_THE_CLI = (CLI, CTK)
SPEC_DIRS = ("/etc/cdi", "/var/run/cdi")
_DIRECTORIES = (*node_programs.DIRECTORIES, "/opt/gpuhook/bin", "/usr/local/gpuhook/bin")
# Where engines name the runtime that they call.
_ENGINES = (
    "/etc/containerd/config.toml",
    "/etc/containerd/conf.d/*.toml",
    "/etc/docker/daemon.json",
    "/etc/crio/crio.conf",
    "/etc/crio/crio.conf.d/*",
    "/etc/containers/containers.conf",
    "/var/lib/rancher/k3s/agent/etc/containerd/config*",
    "/var/lib/rancher/rke2/agent/etc/containerd/config*",
)
_NAMED = re.compile(rb"[\"'\s:=](/[^\"'\s:=,]*/gpuhook-runtime)\b")
_HOOKS = re.compile(rb"[\"'\s:=](/[^\"'\s:=,]*/gpuhook-hook)\b")
# How a launcher calls Python: its first line, or a quoted path.
_CALLS = re.compile(r"^#!(/\S+python\S*)|\"(/[^\"\n]+)\"(?: -\S+)? -c ", re.MULTILINE)
_LIBRARY = re.compile(r"sys\.path\[:0\] = \[\"([^\"]+)\"[,\]]")
_VERSION = re.compile(r"^__version__ = \"([^\"]+)\"", re.MULTILINE)
_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Launcher:
    """One program of gpuhook's: its file, and the Python and library that it says it uses.

    `python` and `library` are "" of one that calls no Python, or says it in other words.
    """

    path: str
    status: Status
    python: str = ""
    library: str = ""


@dataclass(frozen=True, slots=True)
class Installation:
    """A directory with the wrapper, and what else of gpuhook's is in it, by name."""

    directory: str
    launchers: dict[str, Launcher]

    @property
    def libraries(self) -> list[str]:
        """The directories of the package, each once."""
        found = (one.library for one in self.launchers.values())
        return list(dict.fromkeys(library for library in found if library))


def installations(node: ExaminedNode) -> list[Installation]:
    """Return where the wrapper is installed, in the order of PATH."""
    found: list[Installation] = node.once(_installations)
    return found


def spec_files(node: ExaminedNode) -> list[str]:
    """Return the paths of the CDI specs of the node, as far as they are where they usually are."""
    return [
        f"{directory}/{name}"
        for directory in SPEC_DIRS
        for name in node.tree.names(directory)
        if name.endswith((".json", ".yaml"))
    ]


def spec_hooks(node: ExaminedNode) -> dict[str, str]:
    """Return the paths of gpuhook-hook that specs name, each with the spec that does."""
    found: dict[str, str] = node.once(_spec_hooks)
    return found


def version(files: Tree, library: str) -> str:
    """Return the version of the package in a library directory, "" where it tells none."""
    text = node_tree.text(files, f"{library}/gpuhook/__init__.py", _MAX) or ""
    found = _VERSION.search(text)
    return found[1] if found else ""


def program(node: ExaminedNode, name: str) -> str:
    """Return the path of a program in the directories of node_programs, "" if there is none."""
    for directory in _DIRECTORIES:
        found = node.tree.status(f"{directory}/{name}")
        if found is not None and found.is_executable:
            return f"{directory}/{name}"
    return ""


def _installations(node: ExaminedNode) -> list[Installation]:
    directories = [*_DIRECTORIES, *(dirname(path) for path in _named(node))]
    found: dict[str, Installation] = {}
    for directory in dict.fromkeys(directories):
        if node.tree.status(f"{directory}/{RUNTIME}") is None:
            continue
        real = node.tree.real(directory) or directory
        if real not in found:
            found[real] = Installation(directory, _launchers(node.tree, directory))
    return list(found.values())


def _launchers(files: Tree, directory: str) -> dict[str, Launcher]:
    found = {}
    for name in (*NEEDED, *FRONTS, CLI):
        path = f"{directory}/{name}"
        status = files.status(path)
        if status is not None and status.is_file:
            if name in FRONTS and not engine_config.is_front(files, path):
                continue
            found[name] = _launcher(path, status, node_tree.text(files, path, _MAX) or "")
    return found


def _launcher(path: str, status: Status, text: str) -> Launcher:
    library = _LIBRARY.search(text)
    calls = _CALLS.search(text) if library else None
    python = (calls[1] or calls[2]) if calls else ""
    return Launcher(path, status, python, library[1] if library else "")


def _named(node: ExaminedNode) -> list[str]:
    """Return the paths of gpuhook-runtime that engines' files name."""
    found = []
    for pattern in _ENGINES:
        for path in node_tree.matching(node.tree, pattern):
            found += _NAMED.findall(node.tree.read(path, _MAX) or b"")
    return [path.decode("utf-8", "replace") for path in dict.fromkeys(found)]


def _spec_hooks(node: ExaminedNode) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in spec_files(node):
        for hook in _HOOKS.findall(node.tree.read(path) or b""):
            found.setdefault(hook.decode("utf-8", "replace"), path)
    return found
