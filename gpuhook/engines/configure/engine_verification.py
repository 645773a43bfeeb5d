# SPDX-License-Identifier: Apache-2.0
"""What was written is verified by the engine's own program, where the host has it."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.engines.configure import engine_reader, plan_check
from gpuhook.engines.configure.host_programs import last_words
from gpuhook.engines.read import containerd_config
from gpuhook.engines.read.containerd_files import CRI_OF_1
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.engine_options import EngineNode
    from gpuhook.engines.configure.engine_plan import EnginePlan
    from gpuhook.engines.configure.host_programs import HostPrograms, Ran

_UNKNOWN = ("unknown flag", "flag provided but not defined")


class _Printed:
    """A configuration that an engine's program has printed, as its one file."""

    def __init__(self, text: str) -> None:
        self._text = text.encode()

    def read(self, path: str) -> bytes | None:
        """Return it at whatever path it is looked for."""
        return self._text if path == containerd_config.PATH else None

    def names(self, path: str) -> list[str]:  # noqa: ARG002 # there are no drop-ins
        """Return nothing: what is imported is in the one file."""
        return []


@dataclass(frozen=True, slots=True)
class Verified:
    """The command that has found the written configuration right, or why there is none.

    Both are "" where the host has no program that could.
    """

    command: str = ""
    reason: str = ""


def verify(programs: HostPrograms, plan: EnginePlan, node: EngineNode) -> Verified:
    """Return what has verified the written configuration.

    A program that is there and cannot be started says nothing about the configuration: it may be
    of another architecture, or we may not call chroot(2). Raises GH2005 with what the engine's
    program says, and OSError.
    """
    if not plan_check.is_read(plan, node):
        return Verified()
    words = _command(plan, node)
    ran = programs.run(words)
    if ran is None or (ran.status and any(word in ran.said for word in _UNKNOWN)):
        return Verified()
    if not ran.is_started:
        return Verified(reason=f"not verified: `{ran.command}` cannot be started: {ran.said}")
    if ran.status:
        raise fault("GH2005", command=ran.command, said=last_words(ran), engine=plan.engine)
    if plan.engine == "containerd":
        _require_printed(plan, node, ran)
    return Verified(ran.command)


def _command(plan: EnginePlan, node: EngineNode) -> tuple[str, ...]:
    config = plan.config or node.config
    if plan.engine == "containerd":
        return ("containerd", "--config", config or containerd_config.PATH, "config", "dump")
    if plan.engine == "docker":
        return ("dockerd", "--validate", "--config-file", config or engine_reader.docker_path(node))
    if plan.engine == "crio":
        return ("crio", "config")
    return ("podman", "--version")  # it reads containers.conf for that, and changes nothing


def _require_printed(plan: EnginePlan, node: EngineNode, ran: Ran) -> None:
    """Raise GH2005 if the runtimes are not in what containerd has read, imports and all."""
    config = plan.config or node.config or containerd_config.PATH
    if containerd_config.read(node.files, config, node.version).key == CRI_OF_1:
        return  # it prints its defaults of version 2 then, not what it goes by
    found = containerd_config.read(_Printed(_without_imports(ran.printed)), daemon=node.version)
    for lack in plan_check.unregistered(plan.expected, found.configuration):
        said = f"by what it prints, it would not {lack}"
        raise fault("GH2005", command=ran.command, said=said, engine=plan.engine)


def _without_imports(printed: str) -> str:
    lines = printed.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("imports "))
