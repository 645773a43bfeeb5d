# SPDX-License-Identifier: Apache-2.0
"""The kinds of objects that the server keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
DRA = "resource.k8s.io"
NAMES = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True)
class Kind:
    """A kind; `selectors` are its field selectors in addition to those of all kinds."""

    name: str
    plural: str
    group: str = ""
    is_namespaced: bool = True
    selectors: tuple[str, ...] = ()


KINDS = (
    Kind("Node", "nodes", is_namespaced=False),
    Kind("Pod", "pods", selectors=("spec.nodeName", "status.phase")),
    Kind("Event", "events", selectors=("involvedObject.name", "involvedObject.kind", "reason")),
    Kind("ResourceSlice", "resourceslices", DRA, False, ("spec.nodeName", "spec.driver")),
    Kind("DeviceClass", "deviceclasses", DRA, is_namespaced=False),
    Kind("ResourceClaim", "resourceclaims", DRA),
    Kind("ResourceClaimTemplate", "resourceclaimtemplates", DRA),
)
BY_PLURAL = {kind.plural: kind for kind in KINDS}
BY_NAME = {kind.name: kind for kind in KINDS}


def field_of(one: Object, path: str) -> str:
    """Return the value at "spec.nodeName", "" without one."""
    found: Any = one
    for word in path.split("."):
        found = found.get(word, "") if isinstance(found, dict) else ""
    return str(found)


def parsed_selector(text: str, kind: Kind) -> dict[str, str]:
    """Return the fields of a selector; raises ValueError for one that the kind does not have."""
    found = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.replace("==", "=").partition("=")
        if name not in (*NAMES, *kind.selectors):
            raise ValueError(f'field label "{name}" not supported for {kind.name}')
        found[name] = value
    return found


def matches(one: Object, selector: dict[str, str]) -> bool:
    return all(field_of(one, name) == value for name, value in selector.items())
