# SPDX-License-Identifier: Apache-2.0
"""Notes on the GPU requests of a container that are not objections."""

from __future__ import annotations

import re

from gpuhook.explain.pods import resource_names
from gpuhook.explain.pods.pod_requests import CDI_PREFIX, EPHEMERAL, INIT, SIDECAR
from gpuhook.host.suggestion import nearest
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuhook.explain.pods.pod_requests import PodRequest
    from gpuhook.vendors.interfaces.vendor_interface import Vendor

_OWN_CLASS = "gpuhook"


def pod_notes(asked: PodRequest, pod: Sequence[PodRequest]) -> Iterator[str]:
    """Yield the notes on one of the containers of a pod."""
    yield from _unknown_variables(asked)
    for vendor in vendors():
        yield from _image_notes(asked, vendor)
    for name in sorted(asked.annotations):
        if name.startswith(CDI_PREFIX):
            yield (
                f"the pod annotation {name} does not assign a device: engines read the annotations "
                "that a device plugin adds to containers. containerd passes it to a runtime only "
                "if pod_annotations matches it; on CRI-O it is treated like a variable, unless "
                "request.acceptAnnotations is any (a grant) or none (ignored)"
            )
    if asked.privileged and not asked.gpus:
        yield "is privileged: it has the device nodes of all GPUs of its node"
    if asked.kind == EPHEMERAL:
        yield (
            "an ephemeral container gets no devices from the device plugin, only the ones "
            "that its image requests"
        )
    yield from _resource_notes(asked)
    if asked.claims:
        yield (
            f"claims {', '.join(asked.claims)} by Dynamic Resource Allocation: a DRA driver "
            "serves them, not the device plugin"
        )
    if asked.gpus:
        yield from _gpu_notes(asked)
        yield from _total_notes(asked, pod)


def _resource_notes(asked: PodRequest) -> Iterator[str]:
    for name in asked.limits:
        if resource_names.is_gpu(name):
            continue
        if name.rpartition("/")[2].startswith(("gpu", "i915", "xe")) and "/" in name:
            yield f"{name} belongs to another vendor and is not explained"


def _unknown_variables(asked: PodRequest) -> Iterator[str]:
    words = [vendor.vocabulary for vendor in vendors()]
    names = [one.devices_env for one in words] + [one.capabilities_env for one in words]
    for name in names:
        why = asked.unknown_env.get(name)
        if why is not None:
            yield f"{name} is from {why}: the manifest does not have its value"


def _image_notes(asked: PodRequest, vendor: Vendor) -> Iterator[str]:
    """Yield the possible request of an image for the GPUs of a vendor."""
    images, name = vendor.requests.REQUESTING_IMAGES, vendor.vocabulary.devices_env
    if images is None or name in asked.env or name in asked.unknown_env:
        return
    is_such = re.search(images.pattern, asked.image, re.IGNORECASE)
    if "*" in asked.unknown_env:
        yield f"{name} may be among {asked.unknown_env['*']}, which the manifest does not have"
    elif not asked.gpus and not asked.claims and is_such:
        yield (
            f"requests no GPU, but {images.name} images set {name}=all: if the node's runtime "
            f'accepts that, it gets all GPUs; {name}: "void" in its env prevents it'
        )


def _gpu_notes(asked: PodRequest) -> Iterator[str]:
    # Devices without files of a driver need no runtime.
    names = {resource_names.vendor_of(name).name for name in asked.gpus}
    with_files = [one for one in vendors() if one.name in names and one.traces.HAS_FILES]
    if asked.runtime_class is None and with_files:
        yield (
            "no runtimeClassName: the container gets the GPU only if the node's default runtime "
            "or an NRI plugin adds GPUs, or the plugin's list strategy is cdi-cri or host-files"
        )
    elif asked.runtime_class is None:
        pass
    elif asked.handler is not None:
        yield f"runtimeClassName {asked.runtime_class}: its handler is {asked.handler}"
    elif asked.runtime_class not in (usual := _usual_classes()):
        like = nearest(asked.runtime_class, usual)
        meant = f"; did you mean {like}?" if like else ""
        yield (
            f"runtimeClassName {asked.runtime_class}: not checked whether the cluster has it "
            f"(kubectl get runtimeclass), or which runtime its handler uses{meant}"
        )
    for vendor in with_files if asked.host_pid else ():
        program = vendor.requests.PROCESS_LIST
        yield f"hostPID: {program} in it shows the processes of all containers on the GPU"
    for name in asked.gpus:
        if not resource_names.is_usual(name):
            yield f"{name}: only a plugin's configuration can define this name"


def _usual_classes() -> list[str]:
    return [*(name for one in vendors() for name in one.requests.RUNTIME_CLASSES), _OWN_CLASS]


def _total_notes(asked: PodRequest, pod: Sequence[PodRequest]) -> Iterator[str]:
    """Yield the total request of a pod whose init container requests GPUs.

    Init containers run one at a time, before the others.
    """
    if asked.kind not in (INIT, SIDECAR):
        return
    for name in asked.gpus:
        together = sum(one.gpus.get(name, 0) for one in pod if one.kind != INIT)
        if asked.kind == SIDECAR:
            yield f"{name}: a sidecar adds its own to those of the others, {together} in total"
        else:
            alone = max(one.gpus.get(name, 0) for one in pod if one.kind == INIT)
            yield (
                f"{name}: the scheduler reserves {max(together, alone)}, the larger of {alone} for "
                f"an init container and {together} for the others together; they share the devices"
            )
