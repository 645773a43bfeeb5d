# SPDX-License-Identifier: Apache-2.0
"""What is found of every engine alike: files that it refuses, programs, CDI specs, its start."""

from __future__ import annotations

import posixpath

from gpuhook.doctor import package_commands
from gpuhook.doctor.check import FAILED, WARNING, Finding, ok
from gpuhook.doctor.facts.engine_facts import BIN_DIRS, gives_gpus, program
from gpuhook.engines.configure.configure_record import OF_THE_HOST
from gpuhook.engines.read.engine_config import GPUHOOK_RUNTIME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.engines.read.engine_config import EngineConfiguration, Runtime
    from gpuhook.node.node_tree import Tree

SPEC_DIRS = ("/etc/cdi", "/var/run/cdi", "/run/cdi")
# k3s and others write a file and start their engine at once; the start is known to the second.
AT_ONCE = 2.0
UNREAD = (
    "gpuhook does not know what this file sets, and does not change it; the program that the file"
    " is for may read it, as it has no such bound"
)
_SPEC = (".yaml", ".yml", ".json")


def refused(configuration: EngineConfiguration, meaning: str, verify: str) -> list[Finding]:
    """Return a finding for everything that keeps an engine from starting, and for unread files.

    No command writes what was meant: the place is opened, and what was written is tried.
    """
    return [
        Finding(
            FAILED,
            f"{one.where} {one.said}",
            subject=one.where.path,
            meaning=UNREAD if one.is_unread else meaning,
            command=f"vi +{one.where.line or 1} {one.where.path} && {verify}",
            looked_at=configuration.files or (one.where.path,),
        )
        for one in configuration.fatal
    ]


def without_program(
    tree: Tree, runtimes: Iterable[Runtime], meaning: str, command: str, engine: str
) -> list[Finding]:
    """Return a finding for every runtime whose program is not there, or may not be run.

    `command` installs the program again, unless it is gpuhook's.
    """
    return [
        Finding(
            FAILED,
            f'{one.where} has runtime "{one.name}" be {one.path}, {_lacks(tree, one.path)}',
            subject=one.name,
            meaning=meaning.format(path=one.path, name=one.name),
            command=_cure(tree, one, command, engine),
            looked_at=(one.where.path, one.path),
        )
        for one in runtimes
        if one.path and program(tree, one.path) is None
    ]


def _lacks(tree: Tree, path: str) -> str:
    if "/" not in path:
        return f"which is in none of {', '.join(BIN_DIRS)}"
    status = tree.status(path)
    if status is None:
        link = tree.status(path, follow=False)
        return f"a link to {link.target}, which is not there" if link else "which is not there"
    return f"which may not be run: its mode is {status.permissions:04o}"


def _cure(tree: Tree, one: Runtime, command: str, engine: str) -> str:
    status = tree.status(one.path) if "/" in one.path else None
    if status and status.is_file:
        return f"chmod 0755 {one.path}"
    if posixpath.basename(one.path) == GPUHOOK_RUNTIME:
        return _ours_again(tree, one.path, engine)
    return command


def _ours_again(tree: Tree, path: str, engine: str) -> str:
    """Return the command for gpuhook's own program: it was removed, and its engine not told."""
    again = package_commands.gpuhook_again(tree, posixpath.dirname(path))
    if tree.status(f"{OF_THE_HOST}/{engine}/record.json") is None:
        return again
    return f"{again.partition(' #')[0]} # or, without gpuhook: gpuhook configure undo {engine}"


def gpu_runtimes(tree: Tree, configuration: EngineConfiguration) -> list[Runtime]:
    """Return the runtimes of an engine that give containers GPUs."""
    return [one for one in configuration.runtimes.values() if gives_gpus(tree, one)]


def named(runtimes: Iterable[Runtime]) -> str:
    """Return runtimes in words, with where each is written."""
    return ", ".join(f'"{one.name}" ({one.path or "runc"}, {one.where})' for one in runtimes)


def spec_dirs(node: ExaminedNode) -> tuple[str, ...]:
    """Return the usual directories that have CDI specs of GPUs."""
    found: tuple[str, ...] = node.once(_spec_dirs)
    return found


def _spec_dirs(node: ExaminedNode) -> tuple[str, ...]:
    return tuple(place for place in SPEC_DIRS if has_gpu_specs(node.tree, place))


def has_gpu_specs(tree: Tree, directory: str) -> bool:
    """Return whether a directory has a CDI spec that is about GPUs of NVIDIA."""
    return any(
        b"nvidia.com/" in (tree.read(f"{directory}/{name}") or b"")
        for name in tree.names(directory)
        if name.endswith(_SPEC)
    )


def unseen_specs(
    node: ExaminedNode, engine: str, configuration: EngineConfiguration, command: str
) -> list[Finding]:
    """Return a finding where an engine looks for CDI specs in none of the places that have some.

    `command` has the engine look where it does by default.
    """
    here = spec_dirs(node)
    looked = configuration.cdi_dirs
    if not here or any(has_gpu_specs(node.tree, place) for place in looked):
        return []
    said = (
        f"{engine} looks for CDI specs in {', '.join(looked)}, and those of GPUs are in"
        f" {', '.join(here)}"
    )
    return [
        Finding(
            FAILED,
            said,
            meaning="a container that asks for a CDI device does not start: unresolvable CDI"
            " devices nvidia.com/gpu=all",
            command=command,
            looked_at=(*configuration.files, *looked, *here),
        )
    ]


def not_read_yet(
    tree: Tree,
    engine: str,
    paths: Iterable[str],
    started: float,
    command: str,
    *,
    literal: str,
    fails: bool = False,
) -> list[Finding]:
    """Return a finding where files were changed after the engine that reads them was started."""
    newer = [path for path in paths if _changed(tree, path) > started + AT_ONCE]
    were = "were" if len(newer) > 1 else "was"
    if not newer:
        return []
    return [
        Finding(
            FAILED if fails else WARNING,
            f"{', '.join(newer)} {were} changed after {engine} was started",
            meaning="containers are made by the configuration of before: a runtime that was added"
            f" since is not known: {literal}",
            command=command,
            looked_at=tuple(newer),
        )
    ]


def _changed(tree: Tree, path: str) -> float:
    status = tree.status(path)
    return status.mtime if status else 0.0


def all_is_well(findings: list[Finding], said: str, *looked_at: str) -> list[Finding]:
    """Return the findings, or that all is well where there is none."""
    return findings or [ok(said, *looked_at)]


def installing(tree: Tree, package: str, *, again: bool = False) -> str:
    """Return the command that installs a package on this node, over what is there if `again`."""
    return package_commands.install(tree, package, again=again)


def without_cdi_dirs(configuration: EngineConfiguration, restart: str) -> str:
    """Return the command that has an engine look for CDI specs in the usual directories."""
    edit = f"sed -i '/cdi_spec_dirs/d' {' '.join(configuration.files)}"
    return f"{edit} && {restart}" if restart else edit
