# SPDX-License-Identifier: Apache-2.0
"""The commands that register a GPU runtime with an engine: gpuhook's or NVIDIA's.

A registered runtime keeps its stack. A new one is gpuhook's if gpuhook is installed or NVIDIA's
toolkit is not.
"""

from __future__ import annotations

from gpuhook.doctor.commands import package_commands
from gpuhook.doctor.facts import spec_facts
from gpuhook.doctor.facts.containerd_distributions import CONTAINERD
from gpuhook.doctor.facts.program_facts import program
from gpuhook.engines.read import engine_config
from gpuhook.engines.read.engine_config import GPUHOOK_RUNTIME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.doctor.facts.engine_facts import ContainerdHere, DockerHere
    from gpuhook.engines.read.engine_config import Runtime

_CTK = "nvidia-ctk runtime configure --runtime="
_INSTALLED = ("/opt/gpuhook/bin", "/usr/local/gpuhook/bin")  # in addition to BIN_DIRS
_CONFIGURE = "gpuhook configure"


def is_gpuhooks(node: ExaminedNode, runtime: Runtime | None = None) -> bool:
    """Return whether `runtime` is gpuhook's; if it is None, whether a new one should be."""
    if runtime is not None:
        return engine_config.is_gpuhook_runtime(node.tree, runtime.path)
    return has_gpuhook(node) or not spec_facts.has_toolkit(node)


def has_gpuhook(node: ExaminedNode) -> bool:
    """Return whether gpuhook's runtime is installed."""
    return program(node.tree, GPUHOOK_RUNTIME, _INSTALLED) is not None


def with_containerd(
    node: ExaminedNode, one: ContainerdHere, runtime: Runtime | None = None, options: str = ""
) -> str:
    """Return the command for a containerd; `options` are further options of gpuhook."""
    if is_gpuhooks(node, runtime):
        path = "" if one.root == CONTAINERD.path else f" --config {one.root}"
        return _ours(node, f"containerd{path}{options} --restart")
    return f"{one.distribution.configure} && {one.distribution.restart}"


def with_docker(
    node: ExaminedNode, one: DockerHere, runtime: Runtime | None = None, options: str = ""
) -> str:
    """Return the command for a Docker daemon; a user runs that of a rootless one."""
    if is_gpuhooks(node, runtime):
        if one.kind == "rootless":
            return _ours(node, f"docker{options} && {one.restart} # as its user")
        path = "" if one.kind == "docker" else f" --config {one.read.path}"
        return _ours(node, f"docker{path}{options} --restart")
    path = "" if one.kind == "docker" else f" --config={one.read.path}"
    return f"{_CTK}docker{path} && {one.restart}"


def with_crio(
    node: ExaminedNode, restart: str, runtime: Runtime | None = None, options: str = ""
) -> str:
    """Return the command for CRI-O."""
    if is_gpuhooks(node, runtime):
        return _ours(node, f"crio{options} --restart")
    return f"{_CTK}crio && {restart}"


def as_default(name: str) -> str:
    """Return the options that make a runtime with that name the engine's default."""
    named = "" if name == "nvidia" else f" --runtime-name {name}"
    return f"{named} --set-as-default"


def _ours(node: ExaminedNode, words: str) -> str:
    command = f"{_CONFIGURE} {words}"
    return command if has_gpuhook(node) else f"{package_commands.gpuhook(node.tree)} && {command}"
