# SPDX-License-Identifier: Apache-2.0
"""NRI on the node: gpuhook's plugin, the other plugins, and the engines that would ask them."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from gpuhook.node_facts.check import fact
from gpuhook.node_facts.engine_facts import containerds, crios
from gpuhook.node_facts.program_facts import processes, unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.engines.read.nri_config import NriConfig
    from gpuhook.node_facts.check import ExaminedNode
    from gpuhook.node_facts.engine_facts import ContainerdHere, CrioHere

UNIT = "gpuhook-nri.service"
_RUN = ("nri", "run")
_NAME, _INDEX = "gpuhook", "10"  # the defaults of `gpuhook nri run`
# The name of a program that an engine starts: index, hyphen, name.
_LAUNCHED = re.compile(r"(\d\d)-(.+)")


@dataclass(frozen=True, slots=True)
class NriEngine:
    """An engine with the kubelet's interface, and its NRI."""

    here: ContainerdHere | CrioHere
    nri: NriConfig


@dataclass(frozen=True, slots=True)
class NriInstance:
    """A running `gpuhook nri run`, with its index and name."""

    pid: int
    index: str
    name: str


@fact
def nri_engines(node: ExaminedNode) -> tuple[NriEngine, ...]:
    """Return the engines with the kubelet's interface."""
    of_containerd = (NriEngine(one, one.read.nri) for one in containerds(node) if one.read.has_cri)
    of_crio = (NriEngine(one, one.read.nri(one.daemon)) for one in crios(node))
    return (*of_containerd, *of_crio)


@fact
def nri_instances(node: ExaminedNode) -> tuple[NriInstance, ...]:
    """Return the running plugins of gpuhook, also those in containers."""
    argvs = [(one["pid"], one["argv"]) for one in processes(node, "gpuhook")]
    return tuple(
        NriInstance(
            int(pid),
            _option(argv, "--index", _INDEX).zfill(2),
            _option(argv, "--name", _NAME),
        )
        for pid, argv in argvs
        if _RUN in zip(argv, argv[1:], strict=False)
    )


def uses_nri(node: ExaminedNode) -> bool:
    """Return whether gpuhook's plugin runs, or systemd is to start it."""
    state = unit(node, UNIT)
    is_chosen = state.get("enabled") == "enabled" or state.get("active") in ("active", "failed")
    return bool(nri_instances(node)) or is_chosen


def launched_plugins(node: ExaminedNode, nri: NriConfig) -> tuple[dict[str, str], list[str]]:
    """Return the plugins that an engine starts, path -> index, and the paths of other files.

    An engine whose directory has a file of another kind of name does not start its NRI.
    """
    found, others = {}, []
    for name in node.tree.names(nri.plugins):
        path, match = posixpath.join(nri.plugins, name), _LAUNCHED.fullmatch(name)
        if match:
            found[path] = match[1]
        else:
            others.append(path)
    return found, others


def _option(argv: Sequence[str], name: str, default: str) -> str:
    for position, word in enumerate(argv):
        option, equals, value = word.partition("=")
        if option == name:
            return value if equals else "".join(argv[position + 1 : position + 2]) or default
    return default
