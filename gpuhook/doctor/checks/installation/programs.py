# SPDX-License-Identifier: Apache-2.0
"""The installations of gpuhook on a node, by their launchers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from posixpath import dirname

from gpuhook.engines.read import engine_config
from gpuhook.node import node_programs
from gpuhook.node_facts import cdi_specs
from gpuhook.node_facts.check import fact
from gpuhook.node_facts.sources import node_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node_facts.check import ExaminedNode
    from gpuhook.node_facts.sources.node_tree import Status, Tree

RUNTIME, HOOK, PRESTART, CLI = "gpuhook-runtime", "gpuhook-hook", "gpuhook-prestart", "gpuhook"
NEEDED = (RUNTIME, HOOK, PRESTART)
# The names of NVIDIA's toolkit that gpuhook can provide; nvidia-ctk runs with the CLI's Python.
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
OWN_DIRECTORIES = ("/opt/gpuhook/bin", "/usr/local/gpuhook/bin")
_DIRECTORIES = (*node_programs.DIRECTORIES, *OWN_DIRECTORIES)
# The files in which engines name their runtime.
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
# How a launcher starts Python: by its first line, or by a quoted path.
_CALLS = re.compile(r"^#!(/\S+python\S*)|\"(/[^\"\n]+)\"(?: -\S+)? -c ", re.MULTILINE)
# The program of gpuhook that runs a launcher, if the installation has one.
_SHELL = re.compile(r"\A#!(/\S+/gpuhook-launch)\n")
_LIBRARY = re.compile(r"sys\.path\[:0\] = \[\"([^\"]+)\"[,\]]")
_VERSION = re.compile(r"^__version__ = \"([^\"]+)\"", re.MULTILINE)
_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Launcher:
    """A program of gpuhook: its file, and the Python and the library directory that it uses.

    `python` and `library` are "" if the launcher does not name them; so is `shell`, the program of
    gpuhook that runs it.
    """

    path: str
    status: Status
    python: str = ""
    library: str = ""
    shell: str = ""


@dataclass(frozen=True, slots=True)
class Installation:
    """A directory with the wrapper, and the launchers in it by name."""

    directory: str
    launchers: dict[str, Launcher]

    @property
    def libraries(self) -> list[str]:
        """The directories of the package, each once."""
        found = (one.library for one in self.launchers.values())
        return list(dict.fromkeys(library for library in found if library))


def version(files: Tree, library: str) -> str:
    """Return the version of the package in a library directory, "" if unknown."""
    text = node_tree.text(files, f"{library}/gpuhook/__init__.py", _MAX) or ""
    found = _VERSION.search(text)
    return found[1] if found else ""


@fact
def installations(node: ExaminedNode) -> list[Installation]:
    """Return the installations of the wrapper, in the order of PATH."""
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
    shell = _SHELL.match(text)
    return Launcher(path, status, python, library[1] if library else "", shell[1] if shell else "")


def _named(node: ExaminedNode) -> list[str]:
    """Return the paths of gpuhook-runtime that engines' files name."""
    found = []
    for pattern in _ENGINES:
        for path in node_tree.matching(node.tree, pattern):
            found += _NAMED.findall(node.tree.read(path, _MAX) or b"")
    return [path.decode("utf-8", "replace") for path in dict.fromkeys(found)]


@fact
def spec_hooks(node: ExaminedNode) -> dict[str, str]:
    """Return path of a gpuhook-hook -> path of the spec that names it."""
    found: dict[str, str] = {}
    for path in cdi_specs.paths(node):
        for hook in _HOOKS.findall(node.tree.read(path) or b""):
            found.setdefault(hook.decode("utf-8", "replace"), path)
    return found
