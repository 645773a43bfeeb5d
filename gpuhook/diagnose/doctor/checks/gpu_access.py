# SPDX-License-Identifier: Apache-2.0
"""Who gives containers GPUs besides the engine: runtimes in a row, and images that ask."""

from __future__ import annotations

import posixpath

from gpuhook.diagnose.doctor.check import ENGINES, WARNING, Check, Finding, absent, ok
from gpuhook.diagnose.doctor.engine_facts import KUBELET, containerds, crio_here, program
from gpuhook.diagnose.doctor.engine_findings import all_is_well
from gpuhook.diagnose.doctor.toolkit_settings import PATHS, files
from gpuhook.engines.configuration import GPUHOOK_RUNTIME, NVIDIA_RUNTIME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.diagnose.doctor.check import Node
    from gpuhook.engines.configuration import Configuration

_BY_ENV = "accept-nvidia-visible-devices-envvar-when-unprivileged"
_BY_MOUNTS = "accept-nvidia-visible-devices-as-volume-mounts"


def in_a_row(node: Node) -> Iterable[Finding]:
    """Say whether one GPU runtime calls another, so that both work on a container."""
    for one in files(node):
        paths = [path for name in one.runtimes for path in [program(node.tree, name)] if path]
        found = []
        if paths and posixpath.basename(paths[0]) == GPUHOOK_RUNTIME:
            found = [
                Finding(
                    WARNING,
                    f"{one.place('nvidia-container-runtime.runtimes')} has NVIDIA's runtime call"
                    f" {paths[0]}, and both give containers GPUs",
                    subject=one.path,
                    meaning="a container that asks for GPUs is worked on twice: its environment"
                    " says NVIDIA_VISIBLE_DEVICES=void when the second looks",
                    command=f"nvidia-ctk config --config-file {one.path} --in-place --set"
                    " nvidia-container-runtime.runtimes=runc:crun",
                    looked_at=(one.path,),
                )
            ]
        yield from all_is_well(found, "NVIDIA's runtime calls no other GPU runtime", one.path)
    if not files(node):
        yield absent("NVIDIA's toolkit has no settings file here", *PATHS)


def by_image(node: Node) -> Iterable[Finding]:
    """Say whether pods that were given no GPU can take all, because their image says so."""
    if not node.tree.status(KUBELET):
        yield absent("no kubelet is here: who starts a container chooses its GPUs", KUBELET)
        return
    open_to_all = _open_to_all(node)
    settings = next(iter(files(node)), None)
    is_accepted = settings is None or settings.of(_BY_ENV) is not False
    if not open_to_all or not is_accepted:
        yield ok("what an image asks for gives no GPU to a pod that was given none")
        return
    path = settings.path if settings else PATHS[0]
    yield Finding(
        WARNING,
        f'"{open_to_all.default}" is the default runtime of {open_to_all.engine}, and {path} lets'
        " unprivileged containers choose GPUs by their environment",
        subject=open_to_all.engine,
        meaning="every pod whose image sets NVIDIA_VISIBLE_DEVICES=all, as nvidia/cuda does, sees"
        " all GPUs of the node without having been given one",
        command=f"nvidia-ctk config --config-file {path} --in-place --set {_BY_ENV}=false --set"
        f" {_BY_MOUNTS}=true # and have the device plugin use DEVICE_LIST_STRATEGY=volume-mounts",
        looked_at=(path, *open_to_all.files),
    )


def _open_to_all(node: Node) -> Configuration | None:
    """Return the configuration of a kubelet's engine whose default runtime is NVIDIA's."""
    crio = crio_here(node)
    found = [one.read.configuration for one in containerds(node) if one.read.has_cri]
    for configuration in (*found, *([crio.configuration] if crio else [])):
        chosen = configuration.runtimes.get(configuration.default)
        if chosen and NVIDIA_RUNTIME in posixpath.basename(chosen.path):
            return configuration
    return None


CHECKS = (
    Check(
        "nvidia-toolkit.two-stacks",
        ENGINES,
        "NVIDIA's runtime calls no other runtime that gives GPUs",
        in_a_row,
        ("nvidia-toolkit.config", "nvidia-toolkit.values", "nvidia-toolkit.low-level"),
    ),
    Check(
        "nvidia-toolkit.images",
        ENGINES,
        "Pods that were given no GPU see none",
        by_image,
        ("nvidia-toolkit.config", "containerd.config", "containerd.default", "crio.config"),
    ),
)
