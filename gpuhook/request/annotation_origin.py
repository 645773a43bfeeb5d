# SPDX-License-Identifier: Apache-2.0
"""The origin of annotations that name devices: the kubelet, a pod, or the caller of the engine.

Imported only for a container with an annotation that names devices.

CRI-O copies every annotation of the pod into config.json, then writes its own keys over them. One
of its keys, `io.kubernetes.cri-o.Annotations`, is a JSON object with the annotations of the
container as the kubelet sent them, without those of the pod.

containerd's CRI plugin copies annotations of the container by the patterns `container_annotations`
of its configuration, annotations of the pod by `pod_annotations`, and then writes its own keys.
config.json does not distinguish the two: if `pod_annotations` covers a key, a pod can write it.

In a pod's sandbox all annotations are the pod's. containerd writes its key for a sandbox last.
CRI-O writes the pod's annotations over its own keys there, but its labels last: they name the
container POD, which is not a valid container name in Kubernetes.
"""

from __future__ import annotations

from gpuhook.host.hot import fastjson
from gpuhook.host.hot.settings import ANY, KUBELET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

CRIO = "io.kubernetes.cri-o.Annotations"
CONTAINERD = "io.kubernetes.cri.container-type"
BY_KUBELET = f"the kubelet wrote it: it is in {CRIO}"
BY_CONTAINERD = "containerd copied it, by container_annotations or pod_annotations"
BY_CALLER = "the caller of the engine wrote it"
BY_POD = "the pod wrote it"
_NAME = "io.kubernetes.container.name"


def origins(annotations: dict[str, Any], keys: Iterable[str]) -> dict[str, str]:
    """Return the origin of each of the annotations `keys`: one of the BY_ sentences."""
    if annotations.get(CONTAINERD) == "sandbox" or annotations.get(_NAME) == "POD":
        return dict.fromkeys(keys, BY_POD)
    if CRIO in annotations:
        from_kubelet = _of_kubelet(annotations[CRIO])
        return {
            key: BY_KUBELET if from_kubelet.get(key) == annotations[key] else BY_POD for key in keys
        }
    by = BY_CONTAINERD if CONTAINERD in annotations else BY_CALLER
    return dict.fromkeys(keys, by)


def is_grant(origin: str, accept: str) -> bool:
    """Return whether an annotation of this origin is a grant; `accept` is the node's setting."""
    if accept == KUBELET:
        return origin in (BY_KUBELET, BY_CONTAINERD)
    return accept == ANY or origin != BY_POD


def _of_kubelet(text: object) -> dict[str, Any]:
    """Return the annotations that CRI-O got from the kubelet, {} if they cannot be read."""
    if not isinstance(text, str):
        return {}
    try:
        document = fastjson.loads(text.encode("utf-8", "surrogateescape"))
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
