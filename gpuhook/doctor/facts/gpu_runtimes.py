# SPDX-License-Identifier: Apache-2.0
"""How engines give GPUs to containers: by a registered runtime, an OCI hook, or a CDI spec."""

from __future__ import annotations

import posixpath

from gpuhook.doctor.facts.gpu_engine import why_no_gpus
from gpuhook.doctor.facts.toolkit_settings import files
from gpuhook.engines.read import oci_hooks
from gpuhook.node_facts.check import fact
from gpuhook.node_facts.engine_facts import (
    containerds,
    crios,
    dockers,
    podmans,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.engines.read.engine_config import EngineConfiguration, Runtime
    from gpuhook.node_facts.check import ExaminedNode
    from gpuhook.node_facts.sources.node_tree import Tree

_HOOKS = (b"nvidia-container-runtime-hook", b"nvidia-container-toolkit", b"gpuhook-")
_SPEC_DIRS = ("/etc/cdi", "/var/run/cdi", "/run/cdi")
_SPEC = (".yaml", ".yml", ".json")
_NAMES = {"docker": "Docker", "crio": "CRI-O"}
_BY_SPEC = "NVIDIA's runtime in mode cdi"


def gives_gpus(tree: Tree, runtime: Runtime) -> bool:
    """Return whether a runtime gives GPUs: by its program, or by the hooks of its base spec."""
    if runtime.gives_gpus:
        return True
    spec = runtime.options.get("base_runtime_spec")
    if not isinstance(spec, str) or not posixpath.isabs(spec):
        return False
    content = tree.read(spec) or b""
    return any(hook in content for hook in _HOOKS)


def gpu_runtimes(tree: Tree, configuration: EngineConfiguration) -> list[Runtime]:
    """Return the runtimes of an engine that give GPUs to containers."""
    return [one for one in configuration.runtimes.values() if gives_gpus(tree, one)]


def runtime_names(runtimes: Iterable[Runtime]) -> str:
    """Return the names of runtimes, each with its program and the place that registers it."""
    return ", ".join(f'"{one.name}" ({one.path or "runc"}, {one.where})' for one in runtimes)


@fact
def spec_dirs(node: ExaminedNode) -> tuple[str, ...]:
    """Return the default CDI directories that have specs of NVIDIA GPUs."""
    return tuple(place for place in _SPEC_DIRS if has_gpu_specs(node.tree, place))


def has_gpu_specs(tree: Tree, directory: str) -> bool:
    """Return whether a directory has a CDI spec of NVIDIA GPUs."""
    return any(
        b"nvidia.com/" in (tree.read(f"{directory}/{name}") or b"")
        for name in tree.names(directory)
        if name.endswith(_SPEC)
    )


def spec_users(node: ExaminedNode) -> list[str]:
    """Return the names of the engines that give GPUs by CDI specs and in no other way."""
    hook_dirs = [directory for one in crios(node) for directory in one.read.hook_dirs]
    by_cri = [one for one in containerds(node) if one.read.has_cri]
    found, by_runtime = [], False
    for one in (*by_cri, *dockers(node), *crios(node)):
        if gpu_runtimes(node.tree, one.configuration):
            by_runtime = True
        elif not why_no_gpus(node, one.engine) and not _has_hook(node, hook_dirs):
            found.append(_NAMES.get(one.engine, one.name))
    found += [
        "podman"
        for one in podmans(node)
        if not why_no_gpus(node, "podman") and not _has_hook(node, one.read.hook_dirs)
    ]
    if by_runtime and any(one.mode == "cdi" for one in files(node)):
        found.append(_BY_SPEC)
    return found


def _has_hook(node: ExaminedNode, directories: Iterable[str]) -> bool:
    return any(one.gives_gpus for one in oci_hooks.read(node.tree, directories))
