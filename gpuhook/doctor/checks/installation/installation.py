# SPDX-License-Identifier: Apache-2.0
"""gpuhook itself: its programs can run, have one version, and have a valid settings file."""

from __future__ import annotations

import re
from functools import partial
from os import chmod

from gpuhook.doctor.checks.installation import programs
from gpuhook.doctor.checks.installation.programs import HOOK, NEEDED, OF_THE_CLI, RUNTIME, Launcher
from gpuhook.host.hot import settings
from gpuhook.node import settings_file
from gpuhook.node_facts import cdi_specs
from gpuhook.node_facts.check import FAILED, WARNING, Finding, Fix, absent, check, for_each, ok
from gpuhook.node_facts.package_commands import gpuhook_again
from gpuhook.node_facts.program_facts import program
from gpuhook.node_facts.sources import node_readings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuhook.doctor.checks.installation.programs import Installation
    from gpuhook.node_facts.check import ExaminedNode, Findings

_OLDEST = dict.fromkeys(OF_THE_CLI, (3, 10))
_OLDEST_HOT = (3, 9)
_NAME = re.compile(r"python(3)\.([0-9]+)")
_PACKAGE = ("gpuhook/__init__.py", "gpuhook_bundle.py", "gpuhook_os.py")
_NOT_INSTALLED = "gpuhook's runtime wrapper is not installed on this node"
_FAILS = (
    'containers with GPUs do not start: the engine prints "gpuhook-runtime: error GH1404", or that'
    " it cannot run its runtime"
)


@check(
    "installation.launchers", "The programs that engines and runtimes call exist and are executable"
)
@for_each(programs.installations, absent(_NOT_INSTALLED, RUNTIME))
def _programs(node: ExaminedNode, one: Installation) -> Iterable[Finding]:
    wrong = [
        *_incomplete(node, one),
        *_shells(node, one),
        *_interpreters(node, one),
        *_libraries(node, one),
        *_compiler(node, one),
    ]
    yield from wrong or [ok(f"{one.directory} has all of {', '.join(NEEDED)}", one.directory)]


def _incomplete(node: ExaminedNode, one: Installation) -> Iterator[Finding]:
    for name in NEEDED:
        path = f"{one.directory}/{name}"
        if name == HOOK and path in programs.spec_hooks(node):
            continue  # specs.hooks checks the hooks of specs
        launcher = one.launchers.get(name)
        if launcher is None:
            yield _wrong(path, f"{path} does not exist, but {RUNTIME} does", _again(node, one))
        elif not launcher.status.is_executable:
            place = node.tree.root.rstrip("/") + path
            fix = Fix(f"make {path} executable", partial(chmod, place, 0o755))
            message = f"{path} is not executable: its mode is {launcher.status.permissions:04o}"
            yield _wrong(path, message, f"chmod 0755 {path}", fix)


def _shells(node: ExaminedNode, one: Installation) -> Iterator[Finding]:
    """Find missing programs of the first lines of launchers."""
    for shell, path in {one.shell: one.path for one in one.launchers.values()}.items():
        status = node.tree.status(shell) if shell else None
        if shell and (status is None or not status.is_executable):
            reason = "missing" if status is None else "not executable"
            message = f"{shell}, which runs {path}, is {reason}"
            yield _wrong(shell, message, _again(node, one))


def _interpreters(node: ExaminedNode, one: Installation) -> Iterator[Finding]:
    """Find interpreters that are missing or too old for their programs."""
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
        return "missing"
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
            message = f"{library}, which {one.directory} runs, lacks {', '.join(missing)}"
            yield _wrong(library, message, _again(node, one))


def _compiler(node: ExaminedNode, one: Installation) -> Iterator[Finding]:
    """Warn if the wrapper needs compiled YAML, and no command can compile it."""
    texts = [path for path in cdi_specs.paths(node) if path.endswith(".yaml")]
    if node.tree.status(settings.DEFAULT_PATH) is not None:
        texts.append(settings.DEFAULT_PATH)
    own = one.launchers.get(programs.CLI)
    has_own = own is not None and own.status.is_executable
    if texts and not has_own and not program(node.tree, programs.CLI, programs.OWN_DIRECTORIES):
        yield Finding(
            WARNING,
            f"no `gpuhook` in {one.directory} or in PATH can compile {texts[0]}",
            subject=one.directory,
            meaning="containers with GPUs do not start (error GH1402) after a change of this file"
            " or a boot",
            command=_again(node, one),
            looked_at=(one.directory, *texts),
        )


@check(
    "installation.versions",
    "The node has one version of gpuhook",
    needs=("installation.launchers",),
)
def _versions(node: ExaminedNode) -> Findings:
    found: dict[str, str] = {}
    for one in programs.installations(node):
        for library in one.libraries:
            version = programs.version(node.tree, library)
            if version:
                found[library] = version
    if not found:
        return absent(_NOT_INSTALLED, RUNTIME)
    itself = node.readings.document(node_readings.SELF)
    if itself and itself["package"] not in (f"{library}/gpuhook" for library in found):
        found[itself["package"]] = itself["version"]
    if len(set(found.values())) == 1:
        return ok(f"gpuhook is {next(iter(found.values()))}", *found)
    versions = ", ".join(f"{version} in {place}" for place, version in found.items())
    library = next(iter(found))
    return Finding(
        WARNING,
        f"several versions of gpuhook are installed: {versions}",
        meaning="one version may not read the files of another, and the output of a command may"
        " not apply to the wrapper",
        command=gpuhook_again(node.tree, programs.installations(node)[0].directory),
        looked_at=tuple(found),
        subject=library,
    )


@check("installation.settings", "The settings file is valid")
def _settings(node: ExaminedNode) -> Findings:
    path = settings.DEFAULT_PATH
    real = node.tree.real(path)
    if real is None:
        return absent(f"{path} does not exist: the defaults apply", path)
    place = node.tree.root.rstrip("/") + real
    if wrong := settings_file.problem(place):
        status, state = FAILED, "is not valid"
        meaning = "gpuhook's wrapper does not start containers with GPUs: error GH1530"
    elif wrong := settings_file.unknown_keys(place):
        status, state = WARNING, "has a key that gpuhook does not know"
        meaning = "gpuhook ignores it: the intended setting keeps its default"
    else:
        return ok(f"{path} is valid", path)
    message = f"{path} {state}: {wrong.replace(place, path)}"
    command = f"gpuhook config validate {path}  # after fixing that line"
    return Finding(status, message, path, meaning, command, (path,))


def _again(node: ExaminedNode, one: Installation) -> str:
    return gpuhook_again(node.tree, one.directory)


def _wrong(subject: str, message: str, command: str, fix: Fix | None = None) -> Finding:
    return Finding(FAILED, message, subject, _FAILS, command, (subject,), fix)


CHECKS = (_programs, _versions, _settings)
