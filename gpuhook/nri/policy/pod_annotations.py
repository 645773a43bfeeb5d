# SPDX-License-Identifier: Apache-2.0
"""The annotations by which a pod itself requests CDI devices for its containers.

The keys of the vendors' own NRI plugins (`nvidia.cdi.k8s.io`) are aliases of gpuhook's. Of the keys
that apply to a container, the most specific one applies.
"""

from __future__ import annotations

from gpuhook.cdi.hot import names
from gpuhook.errors import fault
from gpuhook.request import parse
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.host.hot.settings import Settings

PREFIX = "devices.gpuhook.io"
ANYONE = "*"
_MANAGEMENT = "management."


def prefixes() -> list[str]:
    """Return what the keys begin with: gpuhook's own, and that of each vendor's plugin."""
    labels = [vendor.domain.partition(".")[0] for vendor in vendors()]
    return [PREFIX, *(f"{label}.cdi.k8s.io" for label in labels)]


def annotation_source(annotations: Mapping[str, str], container: str) -> parse.Source | None:
    """Return the request of a pod's annotations for a container, None if there is none.

    Raises GH2711 for a name that is not a CDI name, GH2712 for an unknown key of gpuhook, GH1004
    and GH1005 for a malformed list.
    """
    _require_known(annotations)
    for form in (f"/container.{container}", "/pod", ""):
        key = next((one + form for one in prefixes() if one + form in annotations), "")
        if not key:
            continue
        where = f"annotation {key}"
        found = parse.names_of(annotations[key], where)
        for name in found:
            if names.split(name) is None:
                raise fault("GH2711", where=where, name=name)
        return parse.Source(parse.ANNOTATIONS, where, found, "the pod wrote it") if found else None
    return None


def _require_known(annotations: Mapping[str, str]) -> None:
    own = f"{PREFIX}/"
    for key in annotations:
        if key.startswith(own) and key != f"{own}pod" and not key.startswith(f"{own}container."):
            raise fault("GH2712", key=key, prefix=PREFIX)


def objection(source: parse.Source, namespace: str, settings: Settings) -> str:
    """Return why a pod of a namespace may not request these devices, "" if it may."""
    managing = [name for name in source.names if name.startswith(_MANAGEMENT)]
    if managing and not is_listed(namespace, settings.nri_management_namespaces):
        return f"{managing[0]} is for the namespaces of nri.managementNamespaces only"
    others = [name for name in source.names if name not in managing]
    if others and not is_listed(namespace, settings.nri_namespaces):
        return f"the namespace {namespace} is not in nri.namespaces"
    listed = settings.nri_devices
    for name in others:
        kind = name.partition("=")[0]
        if listed and not {name, kind}.intersection(listed):
            return f"{name} is not in nri.devices"
        if not listed and not is_gpu(name):
            return f"{name} is not a GPU of a known vendor, and not in nri.devices"
    return ""


def is_listed(name: str, allowed: list[str]) -> bool:
    """Return whether a name is in a list of the settings, in which * is any name."""
    return ANYONE in allowed or name in allowed


def is_gpu(name: str) -> bool:
    """Return whether a CDI name is that of a known vendor's device."""
    return name.partition("/")[0] in {vendor.domain for vendor in vendors()}
