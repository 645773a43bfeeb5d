# SPDX-License-Identifier: Apache-2.0
"""Which engines of a node give containers GPUs by CDI specs, and in no other way."""

from __future__ import annotations

from gpuhook.doctor.engine_findings import gpu_runtimes
from gpuhook.doctor.facts.engine_facts import (
    containerds,
    crio_here,
    dockers,
    podman_here,
    why_no_gpus,
)
from gpuhook.doctor.facts.toolkit_settings import files
from gpuhook.engines.read import oci_hooks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.engines.read.engine_config import EngineConfiguration

_BY_SPEC = "NVIDIA's runtime in mode cdi"


def users(node: ExaminedNode) -> list[str]:
    """Return the names of what needs a spec for its containers to get GPUs."""
    crio, podman = crio_here(node), podman_here(node)
    engines: list[tuple[str, str, EngineConfiguration]] = [
        *(("containerd", one.distribution.name, one.read.configuration)
          for one in containerds(node) if one.read.has_cri),
        *(("docker", "Docker", one.read.configuration) for one in dockers(node)),
        *([("crio", "CRI-O", crio.configuration)] if crio else []),
    ]  # fmt: skip
    found, by_runtime = [], False
    for engine, name, configuration in engines:
        if gpu_runtimes(node.tree, configuration):
            by_runtime = True
        elif not why_no_gpus(node, engine) and not (crio and _has_hook(node, crio.hook_dirs)):
            found.append(name)
    if podman and not why_no_gpus(node, "podman") and not _has_hook(node, podman.hook_dirs):
        found.append("podman")
    if by_runtime and any(one.mode == "cdi" for one in files(node)):
        found.append(_BY_SPEC)
    return found


def _has_hook(node: ExaminedNode, directories: tuple[str, ...]) -> bool:
    return any(one.gives_gpus for one in oci_hooks.read(node.tree, directories))
