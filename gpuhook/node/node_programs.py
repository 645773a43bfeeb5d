# SPDX-License-Identifier: Apache-2.0
"""Programs of the node, run with a deadline: their versions, and what containerd has read."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
from contextlib import suppress
from typing import Any

from gpuhook.engines.read import engine_config
from gpuhook.engines.read.containerd_config import configuration_file
from gpuhook.host.hot import state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.node_facts.sources.node_tree import Tree


# Each prints its version for --version. crun makes its state directory first: / exists.
_PROGRAMS = (
    "containerd", "crio", "crun", "dockerd", "k3s", "kubelet", "nvidia-cdi-hook",
    "nvidia-container-cli", "nvidia-container-runtime", "nvidia-ctk", "podman", "runc", "youki",
)  # fmt: skip
_OPTIONS = {"crun": ("--root=/",)}
_VERSION = re.compile(r"\bv?([0-9]+(?:\.[0-9]+)+(?:[-+~.][0-9A-Za-z.+~-]*[0-9A-Za-z])?)")
_PROCESS = "containerd"
_HEAD = 4096  # bytes of a script that show whose it is


def programs(tree: Tree) -> dict[str, dict[str, str]]:
    """Return path and version of each installed program.

    Without a version, that is "" and `trouble` is the reason. Programs that a user other than root
    could have replaced are not run. Fronts of gpuhook's with NVIDIA's names are skipped: their
    versions are not those of NVIDIA's toolkit.
    """
    found = {name: path for name in _PROGRAMS if (path := where(tree, name))}
    found = {name: path for name, path in found.items() if not _is_front(tree, name, path)}
    started: dict[str, ProgramOutput | OSError] = {}
    for name, path in found.items():
        try:
            _require_roots(tree, path)
            options = _OPTIONS.get(name, ())
            started[name] = ProgramOutput([path, *options, "--version"], tree.root)
        except OSError as error:
            started[name] = error
    return {name: _version(path, started[name]) for name, path in found.items()}


def _is_front(tree: Tree, name: str, path: str) -> bool:
    """Return whether a program with NVIDIA's name is a script of gpuhook's (packaging/compat)."""
    try:
        return name.startswith("nvidia-") and engine_config.is_gpuhook_script(
            tree.read(path, _HEAD) or b""
        )
    except OSError:
        return False


def where(tree: Tree, name: str) -> str:
    """Return the path of a program of the node, "" without one."""
    for directory in DIRECTORIES:
        path = f"{directory}/{name}"
        try:
            found = tree.status(path)
        except OSError:
            continue
        if found is not None and found.is_executable:
            return path
    return ""


def containerd(tree: Tree, processes: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Return {"config": the output of `containerd config dump`, "command": the command}.

    It uses the file with which the running containerd was started. Raises OSError.
    """
    path, file = "", ""
    for process in processes or ():
        if process["name"] == _PROCESS:
            path, file = process["exe"], configuration_file(process["argv"])
            break
    path = path if path and tree.status(path) else where(tree, _PROCESS)
    if not path:
        raise OSError(errno.ENOENT, "there is no such program on this node", _PROCESS)
    _require_roots(tree, path)
    words = [path, *(["--config", file] if file else []), "config", "dump"]
    return {"config": answer(words, tree.root), "command": " ".join(words)}


def _version(path: str, started: ProgramOutput | OSError) -> dict[str, str]:
    try:
        if isinstance(started, OSError):
            raise started
        text = started.output()
    except OSError as error:
        return {"path": path, "version": "", "trouble": error.strerror or str(error)}
    found = _VERSION.search(text)
    if found is None:
        return {"path": path, "version": "", "trouble": "it prints no version"}
    return {"path": path, "version": found[1], "trouble": ""}


def _require_roots(tree: Tree, path: str) -> None:
    """Raise OSError if a user other than root, or this one, may change a program."""
    found = tree.status(path)
    if found is None or found.uid not in (0, os.geteuid()) or found.permissions & 0o002:
        raise OSError(errno.EPERM, "it is not run: users other than root may change it", path)


TIMEOUT = 5.0  # seconds
# Directories of programs outside the system's PATH: snaps, k3s and rke2 have their own.
_MORE = (
    "/snap/bin",
    "/var/lib/rancher/k3s/data/current/bin",
    "/var/lib/rancher/rke2/bin",
    "/opt/bin",
)
DIRECTORIES = (*state.PROGRAM_DIRS, *_MORE)
_MAX_OUTPUT = 1 << 20
_ENDS_WITHIN = 1.0  # seconds


class ProgramOutput:
    """A program that is running, whose output is read later: several run at the same time.

    Programs are run in the node's own files: if these are in another directory, as in a pod that
    examines its node, that is the root of the program.
    """

    def __init__(self, argv: Sequence[str], root: str = "/") -> None:
        """Start `argv`, an absolute path first, below `root`; raises OSError."""
        self._argv = argv
        command = list(argv) if root == "/" else ["chroot", root, *argv]
        environment = {"PATH": ":".join(DIRECTORIES), "LC_ALL": "C", "HOME": "/"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd="/",
            start_new_session=True,
        )

    def output(self, seconds: float = TIMEOUT) -> str:
        """Return its output; raises OSError if it fails or takes too long."""
        try:
            out, _ = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self._end()
            late = f"it did not answer within {seconds:g} seconds"
            raise OSError(errno.ETIMEDOUT, late, self._argv[0]) from None
        if self._process.returncode != 0:
            status = self._process.returncode
            raise OSError(errno.EIO, f"it exited with status {status}", self._argv[0])
        return out[:_MAX_OUTPUT].decode("utf-8", "replace")

    def _end(self) -> None:
        """Kill it with its children; one that hangs in the kernel is not waited for."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._process.stdout is not None:
            self._process.stdout.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDS_WITHIN)


def answer(argv: Sequence[str], root: str = "/") -> str:
    """Return the output of a program; raises OSError with its name."""
    return ProgramOutput(argv, root).output()
