# SPDX-License-Identifier: Apache-2.0
"""The containers of a node with GPUs, by the reading of containers and by gpuhook's ledger."""

from __future__ import annotations

from typing import Any

from gpuhook.containers.hot import ledger
from gpuhook.host import documents
from gpuhook.host.hot import procfs, state
from gpuhook.node_facts.check import fact
from gpuhook.node_facts.sources import node_readings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.node_facts.check import ExaminedNode

_LEDGER = f"{state.DIRECTORY}/containers"
_NAMES = ("namespace", "pod", "container")


@fact
def holders(node: ExaminedNode) -> list[tuple[str, list[Any]]]:
    """Return (name, paths of device nodes) of each container with assigned GPUs of any vendor."""
    reading = node.readings.document(node_readings.CONTAINERS) or {}
    running = [one for one in reading.get("containers") or () if one["injected_by"]]
    known = {one["id"] for one in running}
    entries = [one for one in ledger_entries(node) if one["id"] not in known]
    return [(_name(one), _nodes(one)) for one in (*running, *entries)]


def containers_with_nodes(node: ExaminedNode) -> list[tuple[str, list[Any]]]:
    """Return the same, also of containers that do not show who gave them their device nodes.

    The engine may have applied a CDI spec, or its user has named the nodes.
    """
    reading = node.readings.document(node_readings.CONTAINERS) or {}
    others = [one for one in reading.get("containers") or () if not one["injected_by"]]
    return [*holders(node), *((_name(one), nodes) for one in others if (nodes := _nodes(one)))]


def _nodes(one: dict[str, Any]) -> list[Any]:
    nodes = one.get("nodes")
    return nodes if isinstance(nodes, list) else []


def _name(one: dict[str, Any]) -> str:
    return "/".join(str(one[key]) for key in _NAMES if one.get(key)) or str(one["id"])


def ledger_entries(node: ExaminedNode) -> Iterator[dict[str, Any]]:
    """Yield the ledger entry of each container that exists."""
    for name in node.tree.names(_LEDGER):
        path = f"{_LEDGER}/{name}"
        if name.endswith(".json") and _is_usable(node, path):
            entry = _entry(node.tree.read(path) or b"")
            if entry is not None and _is_alive(node, entry):
                yield entry


def _is_usable(node: ExaminedNode, path: str) -> bool:
    """Return whether a state file is a regular file of root that no other user may write."""
    found = node.tree.status(path, follow=False)
    return found is None or (found.is_file and found.uid == 0 and not found.permissions & 0o022)


def _entry(content: bytes) -> dict[str, Any] | None:
    """Return the entry in a file of the ledger, None if it is not an entry."""
    try:
        found = documents.parse_json_object(content)
    except ValueError:
        return None
    if found.get("schema") != ledger.SCHEMA:
        return None
    is_whole = isinstance(found.get("id"), str) and isinstance(found.get("root"), str)
    return found if is_whole and isinstance(found.get("since"), (int, float)) else None


def _is_alive(node: ExaminedNode, entry: dict[str, Any]) -> bool:
    """Return whether the container of an entry exists, by the files of the node.

    In the device plugin's pod no state root exists: no file shows that a container has exited.
    """
    root = entry["root"]
    if root and (
        node.tree.status(root) is None or node.tree.status(f"{root}/{entry['id']}") is not None
    ):
        return True
    content = node.tree.read(f"/proc/{entry.get('pid')}/stat", 65536)
    try:
        return content is not None and procfs.start_ticks(content) == entry.get("started")
    except (ValueError, IndexError):
        return False
