# SPDX-License-Identifier: Apache-2.0
"""The handlers of the engines that a kubelet can use on this machine, and the pods without one.

A handler that any file registers is accepted: the engine may read files that gpuhook does not
know, and `gpuhook doctor` checks how a handler is registered.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.engines.read import containerd_config, crio_config
from gpuhook.errors import GpuhookError
from gpuhook.explain.pods.pod_requests import ENGINE, NO_HANDLER, REFUSED, WARNING, Objection
from gpuhook.node import daemons
from gpuhook.node_facts.sources import engine_handlers
from gpuhook.node_facts.sources.node_tree import DirectoryTree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.engines.read.engine_config import EngineConfiguration
    from gpuhook.explain.pods.pod_requests import PodRequest
    from gpuhook.node_facts.sources.node_tree import Tree

_CONTAINERD, _CRIO = "containerd", "crio"
_OF_DOCKER = ("/var/run/docker/", "/run/docker/")  # containerds that Docker starts
_REGISTERED = "nvidia"  # by `gpuhook configure`
_ERRORS = {
    _CONTAINERD: 'failed to get sandbox runtime: no runtime for "{handler}" is configured',
    _CRIO: "failed to find runtime handler {handler} from runtime list",
}


@dataclass(frozen=True, slots=True)
class CriHandlers:
    """The names of all handlers, and the engines with their files: {"containerd": (path, ...)}."""

    names: frozenset[str]
    engines: dict[str, tuple[str, ...]]

    def objection(self, asked: PodRequest) -> Objection | None:
        """Return the objection to a RuntimeClass whose handler no engine has, None without.

        The handler of a RuntimeClass that is not in the manifest is assumed to have its name; that
        is only a warning.
        """
        name = asked.runtime_class
        handler = asked.handler or name
        if name is None or handler is None or handler in self.names:
            return None
        engine = next(iter(self.engines))
        files = ", ".join(self.engines[engine]) or "its defaults"
        said = "Failed to create pod sandbox: " + _ERRORS[engine].format(handler=handler)
        if asked.handler is None:
            said = f"{said}, unless RuntimeClass {name} names another handler"
        instead = f"a handler of {engine}: {', '.join(sorted(self.names))} ({files})"
        if handler == _REGISTERED:
            instead = f"the same, after `gpuhook configure {engine} --restart`, which adds it"
        result = WARNING if asked.handler is None else REFUSED
        return Objection(NO_HANDLER, ENGINE, result, said, instead, asked.runtime_class_where)


def cri_handlers(host_root: str) -> CriHandlers | None:
    """Return the handlers of this machine; None without an engine or if a file is not readable."""
    try:
        tree = DirectoryTree(host_root)
    except GpuhookError:
        return None
    try:
        found = [*_configurations(tree)]
        written = engine_handlers.engine_handlers(tree).written
    except OSError:
        return None
    finally:
        tree.close()
    if not found or any(one.trouble for one in found):
        return None
    names = frozenset(name for one in found for name in one.runtimes) | written.keys()
    return CriHandlers(names, {one.engine: one.files for one in found})


def _configurations(tree: Tree) -> Iterator[EngineConfiguration]:
    """Yield the configurations of containerds with CRI, and of CRI-O. Raises OSError."""
    roots = [one for one in engine_handlers.CONTAINERD_FILES if "*" not in one]
    here = [path for path in roots if tree.status(path) is not None]
    has_crio = bool(tree.status(crio_config.PATH) or tree.names(crio_config.DROP_INS))
    for process in daemons.processes(tree):
        if process["name"] == _CONTAINERD:
            path = containerd_config.configuration_file(process["argv"]) or containerd_config.PATH
            here += [] if path.startswith(_OF_DOCKER) else [path]
        has_crio = has_crio or process["name"] == _CRIO
    for path in dict.fromkeys(here):
        found = containerd_config.read(tree, path)
        if found.has_cri:
            yield found.configuration
    if has_crio:
        yield crio_config.read(tree).configuration
