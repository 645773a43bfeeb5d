# SPDX-License-Identifier: Apache-2.0
"""Findings that the checks of several engines make."""

from __future__ import annotations

import posixpath

from gpuhook.doctor.facts.gpu_runtimes import has_gpu_specs, spec_dirs
from gpuhook.engines.configure.configure_record import OF_THE_HOST
from gpuhook.engines.read.engine_config import GPUHOOK_RUNTIME
from gpuhook.node_facts import package_commands
from gpuhook.node_facts.check import FAILED, Finding, ok
from gpuhook.node_facts.program_facts import BIN_DIRS, program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.engines.read.engine_config import EngineConfiguration, Runtime
    from gpuhook.node_facts.check import ExaminedNode, Findings
    from gpuhook.node_facts.engine_facts import EngineHere
    from gpuhook.node_facts.sources.node_tree import Tree

TOOLKIT = "nvidia-container-toolkit"
# The packages of other runtimes.
_PACKAGES = {"amd-container-runtime": "amd-container-toolkit"}
UNREAD = (
    "gpuhook does not know what this file sets and does not change it; the program that reads"
    " the file may not have this limit"
)


def unregistered_default(
    name: str, configuration: EngineConfiguration, subject: str, meaning: str, command: str
) -> Finding:
    """Return the finding that the default runtime of the engine `name` is not registered."""
    return Finding(
        FAILED,
        f'the default runtime "{configuration.default}" of {name} is not registered'
        f" ({', '.join(configuration.runtimes)})",
        subject=subject,
        meaning=meaning,
        command=command,
        looked_at=configuration.files,
    )


def config_faults(configuration: EngineConfiguration, meaning: str, verify: str) -> list[Finding]:
    """Return a finding for each fault that keeps an engine from starting, and each unread file.

    The intended value is unknown, so the command opens the file and tries the result.
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
        for one in configuration.trouble
    ]


def without_program(
    tree: Tree, runtimes: Iterable[Runtime], meaning: str, command: str, engine: str
) -> list[Finding]:
    """Return a finding for each runtime whose program does not exist or cannot be run.

    `command` installs the program again, unless it is gpuhook's own.
    """
    return [
        Finding(
            FAILED,
            f'the program of runtime "{one.name}" ({one.where}) is {one.path},'
            f" {_reason(tree, one.path)}",
            subject=one.name,
            meaning=meaning.format(path=one.path, name=one.name),
            command=_program_command(tree, one, command, engine),
            looked_at=(one.where.path, one.path),
        )
        for one in runtimes
        if one.path and program(tree, one.path) is None
    ]


def _reason(tree: Tree, path: str) -> str:
    if "/" not in path:
        return f"which is in none of {', '.join(BIN_DIRS)}"
    status = tree.status(path)
    if status is None:
        link = tree.status(path, follow=False)
        return f"a link to {link.target}, which does not exist" if link else "which does not exist"
    return f"which is not executable: its mode is {status.permissions:04o}"


def _program_command(tree: Tree, one: Runtime, command: str, engine: str) -> str:
    status = tree.status(one.path) if "/" in one.path else None
    if status and status.is_file:
        return f"chmod 0755 {one.path}"
    name = posixpath.basename(one.path)
    if name != GPUHOOK_RUNTIME:
        return command.replace(TOOLKIT, _PACKAGES.get(name, TOOLKIT))
    again = package_commands.gpuhook_again(tree, posixpath.dirname(one.path))
    if tree.status(f"{OF_THE_HOST}/{engine}/record.json") is None:
        return again
    return f"{again.partition(' #')[0]} # or, without gpuhook: gpuhook configure undo {engine}"


def unseen_specs(node: ExaminedNode, engine: str, one: EngineHere, command: str) -> list[Finding]:
    """Return a finding if an engine reads none of the directories that have CDI specs of GPUs."""
    here, read = spec_dirs(node), one.configuration.cdi_dirs
    if not here or any(has_gpu_specs(node.tree, directory) for directory in read):
        return []
    return [
        Finding(
            FAILED,
            f"{engine} reads CDI specs in {', '.join(read)}, but those for GPUs are in"
            f" {', '.join(here)}",
            meaning="a container that requests a CDI device does not start: unresolvable CDI"
            " devices nvidia.com/gpu=all",
            command=command,
            looked_at=(*one.configuration.files, *read, *here),
        )
    ]


def cdi_findings(node: ExaminedNode, name: str, one: EngineHere, *looked_at: str) -> Findings:
    """Return whether the engine with that name reads the CDI specs of GPUs."""
    files, directories = one.configuration.files, one.configuration.cdi_dirs
    edit = f"sed -i '/cdi_spec_dirs/d' {' '.join(files)}"  # the default directories then apply
    command = f"{edit} && {one.restart}" if one.restart else edit
    message = f"{name} reads CDI specs in {', '.join(directories)}"
    return unseen_specs(node, name, one, command) or ok(message, *looked_at, *directories)
