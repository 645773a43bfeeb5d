# SPDX-License-Identifier: Apache-2.0
"""What is worth knowing of a container that asks for GPUs, where nothing is wrong with it."""

from __future__ import annotations

from gpuhook.diagnose.pods import resource_names
from gpuhook.diagnose.pods.asked import CONTAINER, EPHEMERAL, INIT, SIDECAR
from gpuhook.diagnose.pods.pod_rules import RUNTIME_CLASSES
from gpuhook.vendors.nvidia.words import VOCABULARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuhook.diagnose.pods.asked import Asked


def of(asked: Asked, pod: Sequence[Asked], classes_known: bool) -> Iterator[str]:
    """Return the notes on one of the containers of `pod`."""
    devices = VOCABULARY.devices_env
    why = asked.unknown_env.get(devices)
    if why is not None:
        yield f"{devices} is from {why}: its value is not in the manifest"
    elif devices not in asked.env and "*" in asked.unknown_env:
        yield f"{devices} may be among {asked.unknown_env['*']}, which is not in the manifest"
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
        yield from _of_gpus(asked, classes_known)
        yield from _counting(asked, pod)


def _of_gpus(asked: Asked, classes_known: bool) -> Iterator[str]:
    if asked.runtime_class is None:
        yield (
            "no runtimeClassName: the GPU reaches the container where the node's default runtime "
            "hands out GPUs, or the plugin's list strategy is cdi-cri or host-files"
        )
    elif not classes_known and asked.runtime_class not in RUNTIME_CLASSES:
        yield (
            f"runtimeClassName {asked.runtime_class}: nobody here can tell if the cluster has it "
            "(kubectl get runtimeclass), and which runtime its handler is"
        )
    if asked.host_pid:
        yield "hostPID: its nvidia-smi shows the processes of all containers on the GPU"
    for name in asked.gpus:
        if not resource_names.is_usual(name):
            yield f"{name}: a name that only a plugin's configuration gives"


def _counting(asked: Asked, pod: Sequence[Asked]) -> Iterator[str]:
    """Return how the scheduler counts where an init container asks for GPUs."""
    if asked.kind not in (INIT, SIDECAR):
        return
    for name in asked.gpus:
        together = sum(one.gpus.get(name, 0) for one in pod if one.kind in (CONTAINER, SIDECAR))
        alone = max((one.gpus.get(name, 0) for one in pod if one.kind == INIT), default=0)
        if asked.kind == SIDECAR:
            yield f"{name}: a sidecar holds its own beside those of the others, {together} in all"
        else:
            yield (
                f"{name}: the scheduler books {max(together, alone)}, the larger of {alone} for an "
                f"init container and {together} for the others together; they get the same devices"
            )
