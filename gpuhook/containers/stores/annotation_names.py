# SPDX-License-Identifier: Apache-2.0
"""The name and the image of a container in the annotations of its config.json.

Sources: containerd, internal/cri/annotations; CRI-O, pkg/annotations; nerdctl, pkg/labels (it
copies its labels to annotations).
"""

from __future__ import annotations

from gpuhook.containers.hot import ledger
from gpuhook.containers.stores import stored_container

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_NERDCTL = "nerdctl/name"
_IMAGES = ("io.kubernetes.cri.image-name", "io.kubernetes.cri-o.ImageName")
_SANDBOX = "POD"  # CRI-O's name for a sandbox


def name(annotations: Mapping[str, object], pod: Mapping[str, str]) -> str:
    """Return the name of a container in its pod, or nerdctl's name; "" without one.

    A pod can have any annotation, so nerdctl's does not apply to it.
    """
    if pod:
        found = pod.get("container")
        return stored_container.name(found) if found != _SANDBOX else ""
    return stored_container.name(annotations.get(_NERDCTL))


def image(annotations: Mapping[str, object]) -> str:
    """Return the image of a pod's container, "" if it is unknown."""
    key = _IMAGES[1] if ledger.is_of_crio(annotations) else _IMAGES[0]
    return stored_container.image(annotations.get(key))
