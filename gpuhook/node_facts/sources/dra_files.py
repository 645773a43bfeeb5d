# SPDX-License-Identifier: Apache-2.0
"""The kubelet's files on Dynamic Resource Allocation: sockets of drivers, and prepared claims.

Sources: pkg/kubelet/pluginmanager, pkg/kubelet/cm/dra/state. The state of claims is a private
format of the kubelet: it is read as far as it is known.
"""

from __future__ import annotations

import re

from gpuhook.host import documents
from gpuhook.node_facts.sources import kubelet_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node_facts.sources.node_tree import Tree

_STATE = "dra_manager_state"
_MAX_STATE = 64 << 20
_UID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_REGISTRATION = re.compile(rf"(?P<driver>.+?)(?:-{_UID})?-reg\.sock")


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
    content = tree.read(f"{directory}/{_STATE}", _MAX_STATE)
    found: dict[str, list[str]] = {}
    if content is None:
        return found
    try:
        data = documents.parse_json_object(content)
        inner = data.get("Data")
        entries = documents.parse_json(inner)["Entries"] if isinstance(inner, str) else []
        for one in entries or ():
            for driver in one["DriverState"] or ():
                found.setdefault(str(driver), []).append(f"{one['Namespace']}/{one['ClaimName']}")
    except (ValueError, KeyError, TypeError):
        return {}
    return found
