# SPDX-License-Identifier: Apache-2.0
"""What is worth knowing of a container that asks for GPUs, where nothing is wrong with it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuhook.explain.pods import resource_names
from gpuhook.explain.pods.pod_requests import EPHEMERAL, INIT, SIDECAR
from gpuhook.explain.pods.pod_rules import RUNTIME_CLASSES
from gpuhook.host.suggestion import nearest
from gpuhook.vendors.nvidia.hot.vocabulary import VOCABULARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuhook.explain.pods.pod_requests import PodRequest

_DEVICES = VOCABULARY.devices_env
_CDI_PREFIX = "cdi.k8s.io/"
# Images that are likely built upon NVIDIA's images of CUDA.
_CUDA = re.compile(r"cuda|nvidia|nvcr\.io|pytorch|tensorflow|triton|vllm", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Booked:
    """What the scheduler counts of a pod: init containers run one at a time, before the others.

    `alone` is the most that one of them asks for, `together` what all others do, by resource.
    """

    alone: Mapping[str, int]
    together: Mapping[str, int]


def booked(pod: Iterable[PodRequest]) -> Booked:
    """Return what is counted of the containers of a pod."""
    alone: dict[str, int] = {}
    together: dict[str, int] = {}
    for one in pod:
        for name, count in one.gpus.items():
            if one.kind == INIT:
                alone[name] = max(count, alone.get(name, 0))
            else:
                together[name] = together.get(name, 0) + count
    return Booked(alone, together)


def pod_notes(asked: PodRequest, pod: Booked, *, classes_known: bool) -> Iterator[str]:
    """Return the notes on one of the containers of a pod."""
    yield from _of_variables(asked)
    for name in sorted(asked.annotations):
        if name.startswith(_CDI_PREFIX):
            yield (
                f"annotation {name} of a pod assigns no device: engines read those that a device "
                "plugin adds to containers. containerd copies it for a runtime only if "
                "pod_annotations covers it; on CRI-O it is judged as a variable is, unless "
                "request.acceptAnnotations is any (a grant) or none (ignored)"
            )
    if asked.privileged and not asked.gpus:
        yield "is privileged: it sees the device nodes of all GPUs of its node"
    if asked.kind == EPHEMERAL:
        yield "an ephemeral container is given no devices: what it sees is what its image asks for"
    for name in asked.resources.limits:
        if resource_names.is_gpu(name):
            continue
        if name.rpartition("/")[2].startswith(("gpu", "i915", "xe")) and "/" in name:
            yield f"{name} is another vendor's: nothing is said of it here"
    if asked.claims:
        yield (
            f"claims {', '.join(asked.claims)} by Dynamic Resource Allocation: a driver answers "
            "them, not the device plugin"
        )
    if asked.gpus:
        yield from _of_gpus(asked, classes_known=classes_known)
        yield from _counting(asked, pod)


def _of_variables(asked: PodRequest) -> Iterator[str]:
    for name in (_DEVICES, VOCABULARY.capabilities_env):
        why = asked.unknown_env.get(name)
        if why is not None:
            yield f"{name} is from {why}: its value is not in the manifest"
    if _DEVICES in asked.env or _DEVICES in asked.unknown_env:
        return
    if "*" in asked.unknown_env:
        yield f"{_DEVICES} may be among {asked.unknown_env['*']}, which is not in the manifest"
    elif not asked.gpus and not asked.claims and _CUDA.search(asked.image):
        yield (
            f"asks for no GPU, and images of CUDA say {_DEVICES}=all: where the node's runtime "
            f'listens to that, it gets all GPUs; {_DEVICES}: "void" in its env prevents it'
        )


def _of_gpus(asked: PodRequest, *, classes_known: bool) -> Iterator[str]:
    if asked.runtime_class is None:
        yield (
            "no runtimeClassName: the GPU reaches the container where the node's default runtime "
            "hands out GPUs, or the plugin's list strategy is cdi-cri or host-files"
        )
    elif not classes_known and asked.runtime_class not in RUNTIME_CLASSES:
        like = nearest(asked.runtime_class, RUNTIME_CLASSES)
        meant = f"; is {like} meant?" if like else ""
        yield (
            f"runtimeClassName {asked.runtime_class}: nobody here can tell if the cluster has it "
            f"(kubectl get runtimeclass), and which runtime its handler is{meant}"
        )
    if asked.host_pid:
        yield "hostPID: its nvidia-smi shows the processes of all containers on the GPU"
    for name in asked.gpus:
        if not resource_names.is_usual(name):
            yield f"{name}: a name that only a plugin's configuration gives"


def _counting(asked: PodRequest, pod: Booked) -> Iterator[str]:
    """Return how the scheduler counts where an init container asks for GPUs."""
    if asked.kind not in (INIT, SIDECAR):
        return
    for name in asked.gpus:
        together, alone = pod.together.get(name, 0), pod.alone.get(name, 0)
        if asked.kind == SIDECAR:
            yield f"{name}: a sidecar holds its own beside those of the others, {together} in all"
        else:
            yield (
                f"{name}: the scheduler books {max(together, alone)}, the larger of {alone} for an "
                f"init container and {together} for the others together; they get the same devices"
            )
