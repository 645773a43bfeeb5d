# SPDX-License-Identifier: Apache-2.0
"""gpuhook itself: its programs can run, are of one version, and have a valid settings file."""

from __future__ import annotations

import re
from functools import partial
from os import chmod

from gpuhook.doctor.check import FAILED, GPUHOOK, WARNING, Check, Finding, Mend, absent, ok
from gpuhook.doctor.checks.installation import programs
from gpuhook.doctor.checks.installation.programs import HOOK, NEEDED, OF_THE_CLI, RUNTIME, Launcher
from gpuhook.doctor.package_commands import gpuhook_again
from gpuhook.host.hot import settings
from gpuhook.node import node_readings, settings_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.doctor.checks.installation.programs import Installation

_OLDEST = dict.fromkeys(OF_THE_CLI, (3, 10))
_OLDEST_HOT = (3, 9)
_NAME = re.compile(r"python(3)\.([0-9]+)")
_PACKAGE = ("gpuhook/__init__.py", "gpuhook_bundle.py", "gpuhook_os.py")
_NOT_INSTALLED = "gpuhook's runtime wrapper is not installed on this node"
_FAILS = (
    'containers with GPUs do not start: the engine says "gpuhook-runtime: error GH1404", or that it'
    " cannot run its runtime"
)


def _programs(node: ExaminedNode) -> Iterable[Finding]:
    """Find programs that are missing or cannot run, and what they need to run."""
    found = programs.installations(node)
    for one in found:
        wrong = [
            *_incomplete(node, one),
            *_interpreters(node, one),
            *_libraries(node, one),
            *_compiler(node, one),
        ]
        yield from wrong or [ok(f"{one.directory} has all of {', '.join(NEEDED)}", one.directory)]
    if not found:
        yield absent(_NOT_INSTALLED, RUNTIME)


def _incomplete(node: ExaminedNode, one: Installation) -> Iterator[Finding]:
    for name in NEEDED:
        path = f"{one.directory}/{name}"
        if name == HOOK and path in programs.spec_hooks(node):
            continue  # that the hook of a spec can be run is looked at with the specs
        launcher = one.launchers.get(name)
        if launcher is None:
            yield _wrong(path, f"{path} is not there, beside {RUNTIME}", _again(node, one))
        elif not launcher.status.is_executable:
            place = node.tree.root.rstrip("/") + path
            mend = Mend(f"make {path} executable", partial(chmod, place, 0o755))
            said = f"{path} may not be executed: its mode is {launcher.status.permissions:04o}"
            yield _wrong(path, said, f"chmod 0755 {path}", mend)


def _interpreters(node: ExaminedNode, one: Installation) -> Iterator[Finding]:
    """Find interpreters that are missing or too old for the newest program that they run."""
    pythons = {launcher.python: launcher for launcher in one.launchers.values() if launcher.python}
    for python, launcher in pythons.items():
        reason = _unfit(node, python, launcher)
        if reason:
            is_cli = launcher.path.rpartition("/")[2] in OF_THE_CLI
            options = f"{'--cli-python' if is_cli else '--python'} /usr/bin/python3"
            command = gpuhook_again(node.tree, one.directory, options)
            yield _wrong(python, f"{python}, which runs {launcher.path}, is {reason}", command)


def _unfit(node: ExaminedNode, python: str, launcher: Launcher) -> str:
    """Return why an interpreter cannot run a launcher, "" if it can."""
    status = node.tree.status(python)
    if status is None:
        return "not there"
    if not status.is_executable:
        return "not executable"
    real = node.tree.real(python)
    named = _NAME.search(real.rpartition("/")[2]) if real else None
    oldest = _OLDEST.get(launcher.path.rpartition("/")[2], _OLDEST_HOT)
    if named is None or (int(named[1]), int(named[2])) >= oldest:
        return ""
    return f"Python {named[1]}.{named[2]}: {oldest[0]}.{oldest[1]} or newer is needed"


def _libraries(node: ExaminedNode, one: Installation) -> Iterator[Finding]:
    for library in one.libraries:
        missing = [name for name in _PACKAGE if node.tree.status(f"{library}/{name}") is None]
        if missing:
            said = f"{library} lacks {', '.join(missing)}, and is what {one.directory} runs"
            yield _wrong(library, said, _again(node, one))


def _compiler(node: ExaminedNode, one: Installation) -> Iterator[Finding]:
    """Warn if YAML has to be compiled for the wrapper, and no command is there that does it."""
    texts = [path for path in programs.spec_files(node) if path.endswith(".yaml")]
    if node.tree.status(settings.DEFAULT_PATH) is not None:
        texts.append(settings.DEFAULT_PATH)
    own = one.launchers.get(programs.CLI)
    has_own = own is not None and own.status.is_executable
    if texts and not has_own and not programs.program(node, programs.CLI):
        yield Finding(
            WARNING,
            f"there is no `gpuhook` beside {one.directory}/{RUNTIME}, nor in a directory of"
            f" programs, to compile {texts[0]}",
            subject=one.directory,
            meaning="containers with GPUs do not start (error GH1402) once this file has changed"
            " or the node was booted",
            command=_again(node, one),
            looked_at=(one.directory, *texts),
        )


def _versions(node: ExaminedNode) -> Iterable[Finding]:
    """Find installations of several versions beside each other."""
    found: dict[str, str] = {}
    for one in programs.installations(node):
        for library in one.libraries:
            version = programs.version(node.tree, library)
            if version:
                found[library] = version
    if not found:
        return [absent(_NOT_INSTALLED, RUNTIME)]
    itself = node.readings.document(node_readings.SELF)
    if itself and itself["package"] not in (f"{library}/gpuhook" for library in found):
        found[itself["package"]] = itself["version"]
    if len(set(found.values())) == 1:
        return [ok(f"gpuhook is {next(iter(found.values()))}", *found)]
    told = ", ".join(f"{version} in {place}" for place, version in found.items())
    library = next(iter(found))
    return [
        Finding(
            WARNING,
            f"there are several versions of gpuhook: {told}",
            meaning="what one of them writes the other may not understand, and what one command"
            " tells need not be true of the wrapper",
            command=gpuhook_again(node.tree, programs.installations(node)[0].directory),
            looked_at=tuple(found),
            subject=library,
        )
    ]


def _settings(node: ExaminedNode) -> Iterable[Finding]:
    """Find a settings file that is broken, or has keys that nobody reads."""
    path = settings.DEFAULT_PATH
    real = node.tree.real(path)
    if real is None:
        return [absent(f"there is no {path}: the defaults count", path)]
    place = node.tree.root.rstrip("/") + real
    wrong = settings_file.problem(place)
    if wrong:
        return [
            Finding(
                FAILED,
                f"{path} is not valid: {wrong.replace(place, path)}",
                subject=path,
                meaning="no container with a GPU starts by gpuhook's wrapper: error GH1530",
                command=f"gpuhook config validate {path}  # after mending that line",
                looked_at=(path,),
            )
        ]
    unknown = settings_file.unknown_keys(place)
    if unknown:
        return [
            Finding(
                WARNING,
                f"{path} says what nobody reads: {unknown.replace(place, path)}",
                subject=path,
                meaning="the setting that was meant has its default",
                command=f"gpuhook config validate {path}  # after mending that line",
                looked_at=(path,),
            )
        ]
    return [ok(f"{path} is valid", path)]


def _again(node: ExaminedNode, one: Installation) -> str:
    return gpuhook_again(node.tree, one.directory)


def _wrong(subject: str, said: str, command: str, mend: Mend | None = None) -> Finding:
    return Finding(FAILED, said, subject, _FAILS, command, (subject,), mend)


CHECKS = (
    Check(
        "installation.launchers",
        GPUHOOK,
        "The programs that engines and runtimes call are there and can run",
        _programs,
    ),
    Check(
        "installation.versions",
        GPUHOOK,
        "There is one version of gpuhook on the node",
        _versions,
        ("installation.launchers",),
    ),
    Check(
        "installation.settings",
        GPUHOOK,
        "The settings file is valid",
        _settings,
    ),
)
