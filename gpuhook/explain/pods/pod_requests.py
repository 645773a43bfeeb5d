# SPDX-License-Identifier: Apache-2.0
"""What one container of a manifest asks for, and what Kubernetes has to say about it."""

from __future__ import annotations

from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Who objects: the API server and the kubelet in their own words, the others in ours.
API_SERVER, SCHEDULER, KUBELET, PLUGIN = "API server", "scheduler", "kubelet", "device plugin"
# What comes of it.
REFUSED, PENDING, WARNING = "refused", "pending", "warning"
# Which list of the pod a container stands in.
CONTAINER, INIT, SIDECAR, EPHEMERAL = "container", "init", "sidecar", "ephemeral"


@dataclass(frozen=True, slots=True)
class Objection:
    """Something in a manifest that does not work, or not as whoever wrote it may think.

    `id` is stable ("gpu-under-requests"), `result` one of REFUSED (the pod or container is not
    created), PENDING (it is never scheduled) and WARNING (it runs). `said` has the words of who
    objects, where there are such; `instead` is what to write.
    """

    id: str
    by: str
    result: str
    said: str
    instead: str
    where: str  # "pod.yaml:17"


@dataclass(frozen=True, slots=True)
class Resources:
    """Amounts of resources as the manifest has them, "2" or "500m", by name."""

    limits: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VolumeMount:
    """A mount of a container. `source` is the host's path, or says the kind: "emptyDir"."""

    path: str
    source: str
    is_host: bool = False
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class PodRequest:
    """One container of one pod, as its manifest describes it.

    `env` has the variables of which the value is known, $(NAME) replaced as the kubelet does;
    `unknown_env` says of the others where their value is from: "ConfigMap settings, key gpus".
    `annotations` are the pod's. `gpus` are the resources of GPUs that it asks for and how many,
    as the kubelet allocates them.
    """

    pod: str
    namespace: str
    container: str
    where: str  # "pod.yaml:12", where the container begins
    image: str = ""
    kind: str = CONTAINER
    workload: str = ""  # "Deployment/train" where the pod is its template, else "Pod/name"
    env: Mapping[str, str] = field(default_factory=dict)
    unknown_env: Mapping[str, str] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    gpus: Mapping[str, int] = field(default_factory=dict)
    claims: tuple[str, ...] = ()  # of Dynamic Resource Allocation
    annotations: Mapping[str, str] = field(default_factory=dict)
    runtime_class: str | None = None
    privileged: bool = False
    capabilities: tuple[str, ...] = ()  # added ones: "SYS_ADMIN"
    host_pid: bool = False
    mounts: tuple[VolumeMount, ...] = ()
    objections: tuple[Objection, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What people call it: "Deployment/train in default, container main (pod.yaml:12)"."""
        kind = "container" if self.kind == CONTAINER else f"{self.kind} container"
        workload = self.workload or f"Pod/{self.pod}"
        return f"{workload} in {self.namespace}, {kind} {self.container} ({self.where})"
