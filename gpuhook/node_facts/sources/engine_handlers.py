# SPDX-License-Identifier: Apache-2.0
"""The runtime handlers of a node's Kubernetes engines: the names that a RuntimeClass may have.

Only names of sections are searched, in every file that the engine may read; the checks of the
engines find out whether a handler is registered correctly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuhook.node_facts.sources import node_tree as trees

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node_facts.sources.node_tree import Tree

CONTAINERD_FILES = (
    "/etc/containerd/config.toml",
    "/etc/containerd/conf.d/*.toml",
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "/var/snap/microk8s/current/args/containerd.toml",
    "/run/k0s/containerd-cri.toml",
    "/etc/k0s/containerd.d/*.toml",
)
CRIO_FILES = ("/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*.conf")

_NAME = r"(?:\"([^\"\n]+)\"|'([^'\n]+)'|([\w-]+))"
_SECTION = re.compile(rf"^\s*\[[^\n]*\.runtimes\.{_NAME}\s*\]", re.MULTILINE)
_DEFAULT = re.compile(rf"^\s*default_runtime(?:_name)?\s*=\s*{_NAME}", re.MULTILINE)
_GPU = re.compile(r"^(nvidia|gpuhook)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Handlers:
    """The handlers by name, with the file of each, and the default one."""

    written: dict[str, str]
    default: str = ""
    files: tuple[str, ...] = ()

    @property
    def gpu(self) -> list[str]:
        """The names of the handlers for GPUs."""
        return [name for name in self.written if is_for_gpus(name)]


def is_for_gpus(name: str) -> bool:
    """Return whether runtimes for GPUs are registered under this name."""
    return bool(_GPU.match(name))


def engine_handlers(tree: Tree, dumped: str = "") -> Handlers:
    """Return the handlers of the node's engines; `dumped`: output of `containerd config dump`."""
    texts = [("containerd config dump", dumped)] if dumped else []
    for pattern in (*(() if dumped else CONTAINERD_FILES), *CRIO_FILES):
        paths = trees.matching(tree, pattern)
        texts += [(path, trees.text(tree, path) or "") for path in paths]
    written: dict[str, str] = {}
    default = ""
    for path, text in texts:
        for match in _SECTION.finditer(text):
            written.setdefault(_name(match), path)
        named = _DEFAULT.search(text)
        default = _name(named) if named else default
    return Handlers(written, default, tuple(path for path, _ in texts))


def _name(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group is not None)
