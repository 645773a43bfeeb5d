# SPDX-License-Identifier: Apache-2.0
"""The kubelet's files on Dynamic Resource Allocation: sockets of drivers, and prepared claims.

Sources: pkg/kubelet/pluginmanager, pkg/kubelet/cm/dra/state. The state of claims is a private
format of the kubelet: it is read as far as it is known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuhook.errors import GpuhookError
from gpuhook.host import documents
from gpuhook.node_facts.sources import kubelet_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.node_facts.sources.node_tree import Tree

STATE = "dra_manager_state"
MAX_STATE = 64 << 20
_UID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_REGISTRATION = re.compile(rf"(?P<driver>.+?)(?:-{_UID})?-reg\.sock")


@dataclass(frozen=True, slots=True)
class KubeletClaim:
    """A claim that the kubelet has prepared, and the UIDs of its pods."""

    namespace: str
    name: str
    uid: str
    drivers: frozenset[str]
    pods: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def registry(directory: str) -> str:
    """Return the directory of registration sockets."""
    return f"{directory}/plugins_registry"


def driver_of(name: str) -> str:
    """Return the driver in the name of a registration socket, "" for another name."""
    found = _REGISTRATION.fullmatch(name)
    return found["driver"] if found else ""


def registrations(tree: Tree, directory: str) -> dict[str, list[str]]:
    """Return the paths of the registration sockets by driver."""
    found: dict[str, list[str]] = {}
    for name in tree.names(registry(directory)):
        path = f"{registry(directory)}/{name}"
        if (driver := driver_of(name)) and kubelet_files.has_socket(tree, path):
            found.setdefault(driver, []).append(path)
    return found


def services(tree: Tree, directory: str, driver: str) -> list[str]:
    """Return the paths of a driver's service sockets."""
    place = f"{directory}/plugins/{driver}"
    named = (f"{place}/{name}" for name in tree.names(place) if name.startswith("dra"))
    return [path for path in named if kubelet_files.has_socket(tree, path)]


def sockets(tree: Tree, directory: str) -> list[str]:
    """Return the paths of the sockets of all drivers."""
    found = registrations(tree, directory)
    own = [path for driver in found for path in services(tree, directory, driver)]
    return [path for paths in found.values() for path in paths] + own


def prepared_claims(tree: Tree, directory: str) -> dict[str, list[str]]:
    """Return the claims that the kubelet has prepared, "namespace/name", by driver."""
    content = tree.read(f"{directory}/{STATE}", MAX_STATE)
    found: dict[str, list[str]] = {}
    try:
        for one in kubelet_claims(content) if content is not None else ():
            for driver in sorted(one.drivers):
                found.setdefault(driver, []).append(str(one))
    except (GpuhookError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return found


def kubelet_claims(content: bytes) -> list[KubeletClaim]:
    """Return the claims of the kubelet's file of claims.

    Raises GpuhookError, ValueError, KeyError, TypeError or AttributeError for unknown content.
    """
    return [
        KubeletClaim(
            one["Namespace"],
            one["ClaimName"],
            one["ClaimUID"],
            frozenset(one["DriverState"] or ()),
            tuple(sorted(one["PodUIDs"] or ())),
        )
        for one in _entries(documents.parse_json_object(content))
    ]


def _entries(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the entries; before Kubernetes 1.32 the file has no document in a document."""
    data = documents.parse_json_object(content["Data"]) if "Data" in content else content
    for key in ("ClaimInfoStateList", "Entries", "entries"):
        if data.get(key):
            return list(data[key])
    return []
