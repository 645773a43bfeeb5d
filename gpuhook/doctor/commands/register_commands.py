# SPDX-License-Identifier: Apache-2.0
"""The commands that register a GPU runtime with an engine: gpuhook's or NVIDIA's.

A registered runtime keeps its stack. A new one is gpuhook's if gpuhook is installed or NVIDIA's
toolkit is not.
"""

from __future__ import annotations

from gpuhook.engines.read import containerd_config, crio_config, engine_config
from gpuhook.engines.read.engine_config import GPUHOOK_RUNTIME
from gpuhook.node_facts import engine_facts, package_commands
from gpuhook.node_facts.program_facts import program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.read.engine_config import Runtime
    from gpuhook.node_facts.check import ExaminedNode
    from gpuhook.node_facts.engine_facts import EngineHere

_INSTALLED = ("/opt/gpuhook/bin", "/usr/local/gpuhook/bin")  # in addition to BIN_DIRS


def is_gpuhooks(node: ExaminedNode, runtime: Runtime | None = None) -> bool:
    """Return whether `runtime` is gpuhook's; if it is None, whether a new one should be."""
    if runtime is not None:
        return engine_config.is_gpuhook_runtime(node.tree, runtime.path)
    return has_gpuhook(node) or not engine_facts.has_toolkit(node)


def has_gpuhook(node: ExaminedNode) -> bool:
    """Return whether gpuhook's runtime is installed."""
    return program(node.tree, GPUHOOK_RUNTIME, _INSTALLED) is not None


def register(
    node: ExaminedNode, one: EngineHere, runtime: Runtime | None = None, options: str = ""
) -> str:
    """Return the command for an engine; `options` are further options of gpuhook."""
    if not is_gpuhooks(node, runtime):
        return f"{one.configure} && {one.restart}"
    if one.name == "rootless":
        command = f"gpuhook configure docker{options} && {one.restart} # as its user"
    else:
        is_usual = one.name == "docker" or one.path in (containerd_config.PATH, crio_config.PATH)
        path = "" if is_usual else f" --config {one.path}"
        command = f"gpuhook configure {one.engine}{path}{options} --restart"
    return command if has_gpuhook(node) else f"{package_commands.gpuhook(node.tree)} && {command}"


def as_default(name: str) -> str:
    """Return the options that make a runtime with that name the engine's default."""
    named = "" if name == "nvidia" else f" --runtime-name {name}"
    return f"{named} --set-as-default"
