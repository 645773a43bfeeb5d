# SPDX-License-Identifier: Apache-2.0
"""The programs of gpuhook that engines call: whole, safe, and with a Python that can run them."""

from __future__ import annotations

import re
from functools import partial
from os import chmod
from posixpath import dirname

from gpuhook.doctor.check import FAILED, GPUHOOK, WARNING, Check, Finding, Mend, absent, ok
from gpuhook.doctor.checks.installation import programs
from gpuhook.doctor.checks.installation.programs import (
    HOOK,
    NEEDED,
    OF_THE_CLI,
    RUNTIME,
    Installation,
    Launcher,
)
from gpuhook.doctor.package_commands import gpuhook_again

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpuhook.doctor.check import Node

_OLDEST = dict.fromkeys(OF_THE_CLI, (3, 10))
_OLDEST_HOT = (3, 9)
_NAME = re.compile(r"python(3)\.([0-9]+)")
_TAG = re.compile(r"\.cpython-3([0-9]+)\.")
_NOBODY = absent("gpuhook's runtime wrapper is not installed on this node", "gpuhook-runtime")
_FAILS = (
    'containers with GPUs do not start: the engine says "gpuhook-runtime: error GH1404", or that it'
    " cannot run its runtime"
)


def _whole(node: Node) -> Iterable[Finding]:
    """Find launchers that are not there, or cannot be run."""
    for one in programs.installations(node):
        wrong = list(_incomplete(node, one))
        yield from wrong or [ok(f"{one.directory} has all of {', '.join(NEEDED)}", one.directory)]


def _incomplete(node: Node, one: Installation) -> Iterator[Finding]:
    for name in NEEDED:
        path = f"{one.directory}/{name}"
        if name == HOOK and path in programs.spec_hooks(node):
            continue  # that the hook of a spec can be run is looked at with the specs
        launcher = one.launchers.get(name)
        if launcher is None:
            yield _wrong(path, f"{path} is not there, beside {RUNTIME}", _FAILS, _again(node, one))
        elif not launcher.status.is_executable:
            mend = _mode(node, path, 0o755, f"make {path} executable")
            said = f"{path} may not be executed: its mode is {launcher.status.permissions:04o}"
            yield _wrong(path, said, _FAILS, f"chmod 0755 {path}", mend)


def _safe(node: Node) -> Iterable[Finding]:
    """Find programs and libraries that others than root may change."""
    for one in programs.installations(node):
        paths = [launcher.path for launcher in one.launchers.values()]
        for library in one.libraries:
            paths += [library, f"{library}/gpuhook", f"{library}/gpuhook_bundle.py"]
        wrong = list(_changeable(node, paths))
        yield from wrong or [ok(f"only root may change gpuhook in {one.directory}", *paths)]


def _changeable(node: Node, paths: list[str]) -> Iterator[Finding]:
    for path in paths:
        status = node.tree.status(path)
        if status is None:
            continue
        if status.uid == 0 and not status.permissions & 0o022:
            continue
        mode = status.permissions & ~0o022
        said = (
            f"{path} may be changed by others than root: owner {status.uid}, mode"
            f" {status.permissions:04o}"
        )
        mend = _mode(node, path, mode, f"set the mode of {path} to {mode:04o}")
        yield _wrong(
            path,
            said,
            "whoever may change it runs programs as root on this node, each time that a container"
            " starts",
            f"chown root:root {path} && chmod {mode:04o} {path}",
            mend if status.uid == 0 else None,
        )


def _interpreter(node: Node) -> Iterable[Finding]:
    """Find interpreters that are not there, or too old."""
    for python, launcher in _pythons(node).items():
        status = node.tree.status(python)
        name = launcher.path.rpartition("/")[2]
        option = "--cli-python" if name in OF_THE_CLI else "--python"
        options = f"{option} /usr/bin/python3"
        command = gpuhook_again(node.tree, dirname(launcher.path), options)
        if status is None or not status.is_executable:
            state = "not there" if status is None else "not executable"
            yield _wrong(
                python, f"{python}, which runs {launcher.path}, is {state}", _FAILS, command
            )
            continue
        oldest, found = _OLDEST.get(name, _OLDEST_HOT), _version(node, python)
        if found is not None and found < oldest:
            said = f"{python}, which runs {launcher.path}, is Python {_dotted(found)}"
            yield _wrong(python, f"{said}: {_dotted(oldest)} or newer is needed", _FAILS, command)
            continue
        told = f" is Python {_dotted(found)}" if found else " is there"
        yield ok(f"{python}, which runs {launcher.path},{told}", python, subject=python)


def _isolation(node: Node) -> Iterable[Finding]:
    """Find launchers whose Python would heed the environment of who calls them."""
    for one in programs.installations(node):
        for launcher in one.launchers.values():
            needed = "I" if launcher.path.rpartition("/")[2] in OF_THE_CLI else "IS"
            missing = [flag for flag in needed if flag not in launcher.options]
            if not launcher.python or not missing:
                continue
            yield _wrong(
                launcher.path,
                f"{launcher.path} runs {launcher.python} without -{''.join(missing)}",
                "Python then loads what PYTHONPATH and PYTHONSTARTUP name: the environment of an"
                " image becomes a program that root runs on this node",
                _again(node, one),
            )
            return
    for one in programs.installations(node):
        yield ok("Python is called with -I, away from every variable", one.directory)


def _library(node: Node) -> Iterable[Finding]:
    """Find package directories that are not there, or not whole."""
    for one in programs.installations(node):
        for library in one.libraries:
            names = ("gpuhook/__init__.py", "gpuhook_bundle.py", "gpuhook_os.py")
            missing = [name for name in names if node.tree.status(f"{library}/{name}") is None]
            if missing:
                said = f"{library} lacks {', '.join(missing)}, and is what {one.directory} runs"
                yield _wrong(library, said, _FAILS, _again(node, one))
            else:
                yield ok(f"{library} has the package", library, subject=library)


def _byte_code(node: Node) -> Iterable[Finding]:
    """Find byte code that was made for another Python than runs it."""
    for one in programs.installations(node):
        runtime = one.launchers.get(RUNTIME)
        if runtime is None or not runtime.library:
            continue
        found = _version(node, runtime.python)
        place = f"{runtime.library}/gpuhook/__pycache__"
        tags = {int(tag) for name in node.tree.names(place) for tag in _TAG.findall(name)}
        if found is None:
            yield absent(f"{runtime.python} does not tell its version by its name", place)
        elif found[1] in tags:
            yield ok(f"the byte code is of Python {_dotted(found)}", place)
        else:
            made = " and ".join(f"Python 3.{tag}" for tag in sorted(tags)) or "no Python"
            yield Finding(
                WARNING,
                f"{place} is of {made}, and {runtime.python} is Python {_dotted(found)}",
                subject=place,
                meaning="all of gpuhook is compiled anew for each container: starts take many"
                " times as long",
                command=_again(node, one),
                looked_at=(place, runtime.python),
            )


def _pythons(node: Node) -> dict[str, Launcher]:
    """Return each interpreter with the launcher that needs the newest of it."""
    found: dict[str, Launcher] = {}
    for one in programs.installations(node):
        for launcher in one.launchers.values():
            if launcher.python:
                found[launcher.python] = launcher  # the command line is the last
    return found


def _version(node: Node, python: str) -> tuple[int, int] | None:
    """Return the version of an interpreter, by the name of the file; None where it has none."""
    real = node.tree.real(python)
    found = _NAME.search(real.rpartition("/")[2]) if real else None
    return (int(found[1]), int(found[2])) if found else None


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _again(node: Node, one: Installation) -> str:
    return gpuhook_again(node.tree, one.directory)


def _mode(node: Node, path: str, mode: int, says: str) -> Mend:
    return Mend(says, partial(chmod, node.tree.root.rstrip("/") + path, mode))


def _wrong(
    subject: str, said: str, meaning: str, command: str, mend: Mend | None = None
) -> Finding:
    return Finding(FAILED, said, subject, meaning, command, (subject,), mend)


def _look(
    look: Callable[[Node], Iterable[Finding]],
) -> Callable[[Node], Iterable[Finding]]:
    """Return what looks at the installations of a node, or says that there is none."""

    def looked(node: Node) -> list[Finding]:
        return list(look(node)) if programs.installations(node) else [_NOBODY]

    return looked


CHECKS = (
    Check(
        "installation.launchers",
        GPUHOOK,
        "The programs that engines and runtimes call are there and can be run",
        _look(_whole),
    ),
    Check(
        "installation.owner",
        GPUHOOK,
        "Nobody but root may change what runs at each container's start",
        _look(_safe),
    ),
    Check(
        "installation.interpreter",
        GPUHOOK,
        "The Python of gpuhook's programs is there and new enough",
        _look(_interpreter),
    ),
    Check(
        "installation.isolation",
        GPUHOOK,
        "Python runs isolated from the variables of containers",
        _look(_isolation),
    ),
    Check(
        "installation.library",
        GPUHOOK,
        "The package that the programs load is there",
        _look(_library),
    ),
    Check(
        "installation.byte-code",
        GPUHOOK,
        "The byte code is of the Python that loads it",
        _look(_byte_code),
        ("installation.interpreter", "installation.library"),
    ),
)
